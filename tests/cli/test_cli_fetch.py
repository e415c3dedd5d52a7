"""What a run wrote comes home: whole, once, continued after an interruption, and never over something else unasked.

`docker run` is a stand-in that runs the helper's program here, on a folder.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import TWO
from standin import Socket
from workdesk import Desk

RUN, OLD = "20261201-100838-32c", "20261130-090000-aaa"


class Home(Desk):
    """A desk whose primary holds a folder with the output of two runs."""

    @property
    def there(self) -> Path:
        return self.folder.parent / "volume"

    @property
    def here(self) -> Path:
        return self.folder / "output" / RUN

    def stand(self, *, volume: bool = True, image: bool = True, helper: str = "") -> None:
        """`helper` is shell code before the helper's program starts."""
        self.docker(
            f"""
            echo "$1 $2 $3 $4" >> {self.folder.parent}/calls
            [ "$1 $2" = "context ls" ] && exec cat {self.folder.parent}/contexts
            shift 2
            case "$1 $2" in
            "volume inspect") {"echo [{}]" if volume else "echo 'no such volume' >&2; exit 1"} ;;
            "image inspect") {"echo [{}]" if image else "echo 'No such image' >&2; exit 1"} ;;
            "create "*) echo helper ;;
            "cp "*)
                [ -e {self.folder.parent}/records ] || {{ echo 'Could not find the file' >&2; exit 1; }}
                exec tar -C {self.folder.parent} -c records ;;
            "run "*)
                while [ "$1" != -c ]; do shift; done
                {helper}
                exec python3 -c "$2" {self.there} ;;
            esac
            """
        )

    def write_there(self, path: str, data: bytes, run: str = RUN) -> None:
        target = self.there / run / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def record(self, run: str, begin: float) -> None:
        (self.folder.parent / "records").mkdir(exist_ok=True)
        (self.folder.parent / "records" / f"{run}.json").write_text(json.dumps({"run": run, "begin": begin}))

    def helpers(self) -> int:
        return (self.folder.parent / "calls").read_text().count(" run --interactive")

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.here)): path.read_bytes() for path in self.here.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    desk = Home(tmp_path)
    socket = tmp_path / "socket"
    lines = [{"Name": name, "DockerEndpoint": f"unix://{socket}"} for name in ("alpha", "beta")]
    (tmp_path / "contexts").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    desk.write(TWO + "  output: demo-output\n")
    desk.stand()
    desk.write_there("model.pt", b"model of the last run")
    desk.write_there("deep/log.txt", b"epoch 1\n")
    desk.write_there("model.pt", b"old", OLD)
    with Socket(socket, desk.bin / "docker"):
        yield desk


LAST = {"model.pt": b"model of the last run", "deep/log.txt": b"epoch 1\n"}


def test_the_last_run_that_wrote_anything(home):
    (home.there / "20261202-000000-000").mkdir()
    code, out, err = home.run("fetch")
    assert (code, out) == (0, "")
    assert err == f"run {RUN}: 2 files fetched (0.0 kB sent) into output/{RUN}\n"
    assert home.files() == LAST


def test_a_newer_run_that_wrote_nothing_is_told(home):
    """Nobody takes an older run's model for the last one's; a run that is asked for by name is what was wanted."""
    newer = "20261202-000000-000"
    home.record(OLD, 1.0)
    home.record(RUN, 2.0)
    assert json.loads(home.run("fetch", "--json")[1])["data"]["newer"] is None
    home.record(newer, 3.0)
    code, out, err = home.run("fetch", "--json")
    assert (code, json.loads(out)["data"]["newer"]) == (0, newer)
    assert f"run {newer} is newer, and wrote nothing to $HVD_OUTPUT: this is run {RUN}'s" in err
    assert "newer" not in home.run("fetch", OLD)[2]


def test_another_run_and_another_folder(home):
    assert home.run("fetch", OLD[:8], "-o", "mine/old")[0] == 0
    assert (home.folder / "mine" / "old" / "model.pt").read_bytes() == b"old"
    code, _, err = home.run("fetch", "2025")
    assert (code, err) == (2, f"error: there is no output of a run 2025\n  -> there are: {RUN}, {OLD}\n")


def test_what_is_here_is_not_fetched_again(home):
    home.run("fetch")
    before = (home.here / "model.pt").stat().st_mtime_ns
    home.write_there("new.txt", b"new")
    code, out, _ = home.run("fetch", "--json")
    told = json.loads(out)["data"]
    assert (code, told["files"], told["same"], told["bytes"]) == (0, 1, 2, 3)
    assert home.files() == {**LAST, "new.txt": b"new"}
    assert (home.here / "model.pt").stat().st_mtime_ns == before


def test_another_file_is_replaced_only_when_told(home):
    home.here.mkdir(parents=True)
    (home.here / "model.pt").write_bytes(b"mine, of the same len")
    code, _, err = home.run("fetch")
    assert code == 2
    assert err.startswith(f"error: output/{RUN} holds other files than run {RUN}: model.pt. Replace them?")
    assert (home.here / "model.pt").read_bytes() == b"mine, of the same len"
    assert home.run("fetch", "--yes")[0] == 0
    assert home.files() == LAST


def test_a_client_that_is_killed_goes_on_where_it_was(home):
    """Half of a large file is here; the second fetch asks for the other half only."""
    large = os.urandom(40_000_000)
    home.write_there("large.bin", large)
    part = home.here / "large.bin.part"
    stops = "s/left -= len(data)/&; left > 15000000 or time.sleep(60)/"  # with 15 MB to go
    home.stand(helper=f"""exec python3 -c "$(printf '%s' "$2" | sed '{stops}')" {home.there}""")
    first = home.start("fetch", start_new_session=True)
    limit = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > 20_000_000):
        assert time.monotonic() < limit
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    size = part.stat().st_size
    assert not (home.here / "large.bin").exists()
    assert part.read_bytes() == large[:size]
    home.stand()
    told = json.loads(home.run("fetch", "--json")[1])["data"]
    assert told["bytes"] == 40_000_000 - size + sum(len(data) for data in LAST.values())
    assert home.files() == {**LAST, "large.bin": large}


def test_a_way_that_breaks_is_taken_again(home):
    """The first helper that sends ends in the middle."""
    home.write_there("large.bin", bytes(3_000_000))
    once = home.folder.parent / "once"
    cut = f"if [ $(wc -l < {home.folder.parent}/calls) -gt 4 ] && mkdir {once} 2>/dev/null; then "
    home.stand(helper=cut + f'python3 -c "$2" {home.there} 2>/dev/null | head -c 1000000; exit 1; fi')
    code, out, err = home.run("fetch", "--json")
    assert once.exists(), home.helpers()
    assert code == 0, err
    assert json.loads(out)["data"]["bytes"] == 3_000_000 + sum(len(data) for data in LAST.values())
    assert home.helpers() == 3
    assert "its helper container ended; once more" in err
    assert home.files() == {**LAST, "large.bin": bytes(3_000_000)}


def test_a_way_that_stays_broken_is_told_and_what_came_stays(home):
    home.write_there("a.bin", bytes(3_000_000))
    home.run("fetch", "-o", "elsewhere")
    listed = home.helpers() + 1  # of each fetch the first helper lists what is there, the next ones send it
    cut = f"[ $(grep -c ' run --interactive' {home.folder.parent}/calls) -le {listed} ] || exit 1"
    home.stand(helper=cut)
    code, _, err = home.run("fetch")
    assert code == 1
    assert err.splitlines()[-2:] == [
        "error: alpha: its helper container ended",
        "  -> the same command goes on from there",
    ]


def test_a_part_of_another_content_is_fetched_anew(home):
    home.here.mkdir(parents=True)
    (home.here / "model.pt.part").write_bytes(b"MODEL of")
    code, _, err = home.run("fetch")
    assert (code, home.files()) == (0, LAST), err


def test_a_file_that_changes_meanwhile_is_told_and_not_kept(home):
    """Between the list and the bytes the run goes on writing."""
    calls = f"$(wc -l < {home.folder.parent}/calls)"
    home.stand(helper=f"[ {calls} -le 4 ] || printf X | dd of={home.there}/{RUN}/model.pt conv=notrunc 2>/dev/null")
    code, _, err = home.run("fetch")
    assert code == 1, err
    assert err.splitlines()[-2:] == [
        "error: model.pt: its checksum is wrong: it was written to while it was fetched",
        "  -> hvdcompose fetch, once the run has ended",
    ]
    assert home.files() == {"deep/log.txt": LAST["deep/log.txt"]}


def test_nothing_is_written_outside_of_the_folder(home):
    (home.there / RUN / "good").symlink_to("deep/log.txt")
    (home.there / RUN / "evil").symlink_to("/etc/passwd")
    (home.there / RUN / "up").symlink_to("../..")
    os.mkfifo(home.there / RUN / "pipe")
    code, _, err = home.run("fetch")
    assert code == 0
    assert sorted(line for line in err.splitlines() if line.startswith("not brought")) == [
        "not brought home: evil: a link that leads out of the folder, to /etc/passwd",
        "not brought home: pipe: neither a file nor a link",
        "not brought home: up: a link that leads out of the folder, to ../..",
    ]
    assert (home.here / "good").readlink() == Path("deep/log.txt")
    assert not os.path.lexists(home.here / "evil")
    assert (
        home.run("fetch")[2].splitlines()[-1]
        == f"run {RUN}: 0 files fetched (0.0 kB sent) into output/{RUN}; 3 already there"
    )


def test_no_link_here_is_written_through(home, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    home.here.mkdir(parents=True)
    (home.here / "deep").symlink_to(outside)
    code, _, err = home.run("fetch")
    assert (code, list(outside.iterdir())) == (1, [])
    assert err.splitlines()[-2:] == [
        f"error: output/{RUN}/deep is a link: nothing is written through it",
        "  -> remove it",
    ]
    (home.here / "deep").unlink()
    (home.here / "model.pt").unlink()
    (home.here / "model.pt").symlink_to(outside / "x")
    assert home.run("fetch", "--yes")[0] == 0
    assert not (home.here / "model.pt").is_symlink()
    assert list(outside.iterdir()) == []


def test_odd_names(home):
    odd = {"-o": b"1", "a b\n'\"$x": b"2", "x.part": b"3", "x": b"4", os.fsdecode(b"caf\xe9"): b"5", "é": b"6"}
    for name, data in odd.items():
        home.write_there(name, data)
    assert home.run("fetch")[0] == 0
    assert home.files() == {**LAST, **odd}


@pytest.mark.parametrize(
    ("stand", "told"),
    [
        (
            {"volume": False},
            "error: alpha: there is no volume demo-output: no run wrote anything yet\n  -> hvdcompose run\n",
        ),
        (
            {"image": False},
            "error: alpha: the output cannot be read without an image, and it has no trainer:1\n"
            "  -> hvdcompose apply brings it\n",
        ),
    ],
)
def test_what_is_missing_on_the_primary(home, stand, told):
    home.stand(**stand)
    assert home.run("fetch") == (1, "", told)


def test_no_run_wrote_anything(home):
    for run in (RUN, OLD):
        (home.there / run).rename(home.folder / run)
    assert home.run("fetch") == (1, "", "error: there is no output of a run yet\n  -> hvdcompose run\n")


def test_no_output_in_cluster_yaml(home):
    home.write(TWO)
    assert home.run("fetch") == (
        1,
        "",
        "error: cluster.yaml has no train.output: nothing that a run writes is kept\n"
        "  -> train: {output: demo-output}, and have the command write to $HVD_OUTPUT\n",
    )


def test_a_folder_that_cannot_be_made(home):
    (home.folder / "output").write_text("a file")
    code, _, err = home.run("fetch")
    assert code == 1
    assert err.splitlines()[-1].startswith(f"error: cannot write output/{RUN}")
