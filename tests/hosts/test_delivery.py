"""What a host's volumes get before its container starts: which calls, and what a killed client leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts.code import Code
from hvdcompose.hosts.delivery import Versions, code_versions, fill_code, prune_code, put_keys, result_of
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


LIST = "volume ls --quiet --filter label=com.docker.compose.project=demo --filter label=com.docker.compose.volume=code"


def listing(*names: str) -> str:
    """A docker whose volumes are these; what it removes, it names."""
    printed = "\n".join(names)
    return (
        f"case $1$2 in volumels) echo '{printed}' ;; volumerm) shift 2; printf '%s\\n' $* ;; create*) echo c0 ;; esac"
    )


def test_the_code_s_volume_is_marked_once_it_is_full(docker, tmp_path):
    docker(f"{listing()}\n[ $1 = cp ] && cat > {tmp_path}/tar; exit 0")
    assert fill_code(BETA, "demo", "img", CODE)
    asked, created, filled, marked, removed = calls(tmp_path)
    assert asked == LIST
    mount = (
        f"type=volume,source={VOLUME},target=/hvd/code,volume-nocopy,"
        "volume-label=com.docker.compose.project=demo,volume-label=com.docker.compose.volume=code"
    )
    assert created == " ".join([*HELPER, "--label", f"hvdcompose.code={CODE.digest}", "--mount", mount, "img"])
    assert (filled, removed) == ("cp - c0:/", "rm --force c0")
    labels = "--label com.docker.compose.project=demo --label com.docker.compose.volume=code"
    assert marked == f"volume create {labels} demo-full-{CODE.digest}"
    assert (tmp_path / "tar").read_bytes() == CODE.tar()


def test_a_volume_with_its_mark_is_full(docker, tmp_path):
    docker(listing(VOLUME, f"demo-full-{CODE.digest}"))
    assert not fill_code(BETA, "demo", "img", CODE)
    assert calls(tmp_path) == [LIST]


def test_a_volume_without_its_mark_is_filled_again(docker, tmp_path):
    docker(f"{listing(VOLUME)}\n[ $1 = cp ] && cat > {tmp_path}/tar; exit 0")
    assert fill_code(BETA, "demo", "img", CODE)
    assert [call.split()[0] for call in calls(tmp_path)] == ["volume", "create", "cp", "volume", "rm"]


def test_a_mark_without_its_volume_goes_before_there_is_one(docker, tmp_path):
    """Else a client that is killed while it fills would leave a volume that passes for full."""
    docker(f"{listing(f'demo-full-{CODE.digest}')}\n[ $1 = cp ] && cat > {tmp_path}/tar; exit 0")
    assert fill_code(BETA, "demo", "img", CODE)
    assert calls(tmp_path)[1] == f"volume rm demo-full-{CODE.digest}"
    assert calls(tmp_path)[2].startswith("create ")


def test_versions_of_the_code(docker):
    docker(listing("demo-code-1", "demo-full-1", "demo-code-2", "demo-full-3", "demo-codex-1", "other-code-4"))
    there = code_versions(BETA, "demo")
    assert there == Versions(frozenset("12"), frozenset("13"))
    assert there.whole == {"1"}


def test_other_versions_of_the_code_go_and_other_volumes_stay(docker, tmp_path):
    docker(listing("demo-code-1", "demo-full-1", "demo-code-2", "demo-full-2", "demo-full-3", "demo-codex-1"))
    prune_code(BETA, "demo", "2")
    assert calls(tmp_path)[1:] == ["volume rm demo-code-1", "volume rm demo-full-1 demo-full-3"]


def test_a_version_in_use_keeps_its_mark(docker, tmp_path):
    docker(
        "case $1$2 in volumels) printf '%s\\n' demo-code-1 demo-full-1 ;; volumerm) echo 'in use' >&2; exit 1 ;; esac"
    )
    prune_code(BETA, "demo", "2")
    assert calls(tmp_path)[1:] == ["volume rm demo-code-1"]


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
