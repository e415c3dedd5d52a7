"""What a host's volumes get before its container starts: which calls, and what a killed client leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts.code import Code
from hvdcompose.hosts.delivery import drop_half_filled, fill_code, prune_code, put_keys, result_of, try_folders
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.tars import Entry, pack

BETA = Engine("beta", "c1", "")
CODE = Code("job", (Entry("/hvd/code/job", None, 0o755), Entry("/hvd/code/job/a.py", b"a", 0o644)))
VOLUME = f"demo-code-{CODE.digest}"
HELPER = [
    *("create", "--pull", "never", "--entrypoint", "true", "--label", "com.docker.compose.project=demo"),
    *("--label", "com.docker.compose.service=fill", "--label", "hvdcompose.cluster=demo"),
]


@pytest.fixture
def docker(program, tmp_path: Path):
    """A docker that notes each call on a line, and does what it is told with the words after `--context c1`."""

    def write(then: str = "") -> None:
        program("docker", f'shift 2; echo "$*" >> {tmp_path}/calls\n{then}\n')

    return write


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_the_code_s_volume_and_its_helper_are_made_in_one_call(docker, tmp_path):
    docker(
        f"case $1 in volume) echo 'no such volume' >&2; exit 1 ;; create) echo c0 ;; cp) cat > {tmp_path}/tar ;; esac"
    )
    assert fill_code(BETA, "demo", "img", CODE)
    asked, created, filled, removed = calls(tmp_path)
    assert asked == f"volume inspect {VOLUME}"
    mount = (
        f"type=volume,source={VOLUME},target=/hvd/code,volume-nocopy,"
        "volume-label=com.docker.compose.project=demo,volume-label=com.docker.compose.volume=code"
    )
    assert created == " ".join([*HELPER, "--label", f"hvdcompose.code={CODE.digest}", "--mount", mount, "img"])
    assert (filled, removed) == ("cp - c0:/", "rm --force c0")
    assert (tmp_path / "tar").read_bytes() == CODE.tar()


def test_a_volume_that_is_there_is_full(docker, tmp_path):
    docker("echo '[{}]'")
    assert not fill_code(BETA, "demo", "img", CODE)
    assert calls(tmp_path) == [f"volume inspect {VOLUME}"]


def test_a_helper_that_was_left_goes_with_what_it_was_filling(docker, tmp_path):
    docker()
    drop_half_filled(BETA, "demo", {"c0": "0123", "c1": ""})
    assert calls(tmp_path) == ["rm --force c0", "volume rm demo-code-0123", "rm --force c1"]


def test_other_versions_of_the_code_go_and_other_volumes_stay(docker, tmp_path):
    docker("[ $2 = ls ] && echo demo-code-1 demo-code-2 demo-codex-1 other-code-1")
    prune_code(BETA, "demo", "2")
    assert calls(tmp_path)[1:] == ["volume rm demo-code-1"]


def test_folders_are_mounted_before_anything_starts(docker, tmp_path):
    docker("[ $1 = create ] && echo c0; exit 0")
    try_folders(BETA, "demo", "img", ["/srv/a", '/srv/b,"c"'])
    mounts = '--mount type=bind,"source=/srv/a",target=/hvd/try/0,readonly'
    mounts += ' --mount type=bind,"source=/srv/b,""c""",target=/hvd/try/1,readonly'
    assert calls(tmp_path) == [" ".join([*HELPER, mounts, "img"]), "rm --force c0"]


def test_a_folder_that_is_missing_is_told_with_what_to_do(docker):
    docker("echo 'invalid mount config for type \"bind\": bind source path does not exist: /srv/a' >&2; exit 1")
    with pytest.raises(HostError) as caught:
        try_folders(BETA, "demo", "img", ["/srv/a"])
    assert caught.value.message == "trying its folders: it has no folder /srv/a, which cluster.yaml mounts"
    assert caught.value.hint == "make it on that host, or change the volume in cluster.yaml"


@pytest.mark.parametrize(("held", "brings"), [("d1", False), ("d0", True), (None, True)])
def test_keys_are_brought_only_where_others_or_none_are(docker, tmp_path, held, brings):
    if held is not None:
        (tmp_path / "held.tar").write_bytes(pack([Entry("filled", f"{held}\n".encode(), 0o644)]))
    docker(
        f"[ $2 = - ] && cat > /dev/null || cat {tmp_path}/held.tar || {{ echo 'Could not find the file' >&2; exit 1; }}"
    )
    put_keys(BETA, "worker", b"keys", "d1")
    assert calls(tmp_path) == ["cp worker:/hvd/host/filled -", *(["cp - worker:/"] * brings)]


def test_how_a_run_ended_is_read_from_its_record(docker, tmp_path):
    (tmp_path / "tar").write_bytes(pack([Entry("/r1.json", b'{"run": "r1", "code": 3}', 0o644)]))
    docker(f"cat {tmp_path}/tar")
    assert result_of(BETA, "launcher", "r1") == {"run": "r1", "code": 3}
    assert calls(tmp_path) == ["cp launcher:/hvd/runs/records/r1.json -"]


def test_a_run_that_goes_on_or_was_killed_has_no_end_in_its_record(docker, tmp_path):
    (tmp_path / "tar").write_bytes(pack([Entry("/r1.json", b'{"run": "r1", "code": null}', 0o644)]))
    docker(f"cat {tmp_path}/tar")
    assert result_of(BETA, "launcher", "r1") is None


@pytest.mark.parametrize("text", [b"{torn", b"[1]", b"5"])
def test_a_record_that_cannot_be_read_is_told(text, docker, tmp_path):
    (tmp_path / "tar").write_bytes(pack([Entry("/r1.json", text, 0o644)]))
    docker(f"cat {tmp_path}/tar")
    with pytest.raises(HostError) as caught:
        result_of(BETA, "launcher", "r1")
    assert str(caught.value) == "the record of run r1 cannot be read"
