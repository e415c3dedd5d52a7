"""An image from one engine to many: once for all, once more alone where it did not arrive whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts import transfer
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import values
from hvdcompose.hosts.images import HERE, parse_image
from hvdcompose.hosts.sending import Sending

pytestmark = pytest.mark.usefixtures("fresh_process")

TOLD = {"Architecture": "amd64", "Size": 3_000_000, "RootFS": {"Layers": ["sha256:l1"]}, "Config": {}}
OTHER = {**TOLD, "RootFS": {"Layers": ["sha256:l0"]}}
# docker: `load` on context X keeps what it gets in X.N, N counted from 1, and runs `before`; what is inspected is TOLD
DOCKER = """
where=here
[ "$1" != --context ] || {{ where=$2; shift 2; }}
echo "$where $*" >> {folder}/calls
case "$1" in
save) {save} ;;
load)
    n=$(grep -c "^$where load" {folder}/calls)
    {load}
    cat > {folder}/$where.$n ;;
image) cat {folder}/told.$where 2>/dev/null || cat {folder}/told ;;
esac
"""
ZEROS = "head -c 3000000 /dev/zero"


@pytest.fixture
def docker(program, tmp_path):
    def write(*, save: str = ZEROS, load: str = ":") -> Path:
        (tmp_path / "told").write_text(json.dumps([TOLD]))
        program("docker", DOCKER.format(folder=tmp_path, save=save, load=load))
        return tmp_path

    return write


class Seen:
    def __init__(self, source: Engine = HERE) -> None:
        self.lines: list[str] = []
        self.shown: list[tuple[str, str, int]] = []
        self.sending = Sending(
            source, "trainer:1", parse_image(TOLD), self.say, lambda *progress: self.shown.append(progress)
        )

    def say(self, host: str, text: str) -> None:
        self.lines.append(f"{host}: {text}")


def engines(*names: str) -> dict[str, Engine]:
    return {name: Engine(name, name) for name in names}


def calls(folder: Path, word: str) -> list[str]:
    return sorted(line.split()[0] for line in (folder / "calls").read_text().splitlines() if f" {word}" in line)


def test_one_save_serves_all(docker):
    folder, seen = docker(), Seen()
    outcomes = seen.sending.to(engines("alpha", "beta", "gamma"))
    assert list(outcomes) == ["alpha", "beta", "gamma"] and all(outcome.ok for outcome in outcomes.values())
    assert calls(folder, "save") == ["here"]
    assert calls(folder, "load") == ["alpha", "beta", "gamma"]
    assert all((folder / f"{name}.1").read_bytes() == bytes(3_000_000) for name in outcomes)
    assert sorted(seen.lines) == [f"{name}: image is there" for name in outcomes]
    assert {(name, "image unpacking", 99) for name in outcomes} <= set(seen.shown)


def test_the_source_may_be_a_host(docker):
    folder, seen = docker(), Seen(Engine("alpha", "alpha"))
    assert seen.sending.to(engines("beta"))["beta"].ok
    assert calls(folder, "save") == ["alpha"]


def test_a_full_disk_is_told_of_that_host_and_the_others_have_it(docker):
    full = '[ $where != beta ] || { head -c 10 >/dev/null; echo "write /x: no space left on device" >&2; exit 1; }'
    folder, seen = docker(load=full), Seen()
    outcomes = seen.sending.to(engines("alpha", "beta"))
    error = outcomes["beta"].error
    assert error and (error.host, error.message) == ("beta", "sending trainer:1: its disk is full")
    assert outcomes["alpha"].ok
    assert calls(folder, "load") == ["alpha", "beta"], "no second try: the disk is full still"


def test_a_load_that_is_killed_midway_is_tried_once_more(docker):
    folder, seen = docker(load="[ $where$n != beta1 ] || { head -c 1000 > /dev/null; kill -9 $$; }"), Seen()
    outcomes = seen.sending.to(engines("alpha", "beta"))
    assert all(outcome.ok for outcome in outcomes.values())
    assert calls(folder, "save") == ["here", "here"]
    assert calls(folder, "load") == ["alpha", "beta", "beta"]
    assert (folder / "beta.2").read_bytes() == bytes(3_000_000)
    assert [line for line in seen.lines if line.startswith("beta")] == [
        "beta: image trainer:1 is sent once more, alone",
        "beta: image is there",
    ]


def test_a_load_that_fails_twice_is_told(docker):
    folder, seen = docker(load="[ $where != beta ] || { echo unexpected EOF; exit 1; }"), Seen()
    outcomes = seen.sending.to(engines("alpha", "beta"))
    error = outcomes["beta"].error
    assert error and error.message == "sending trainer:1: unexpected EOF"
    assert outcomes["alpha"].ok and calls(folder, "load") == ["alpha", "beta", "beta"]


@pytest.mark.parametrize(
    ("told", "found"),
    [([OTHER], f"it has {parse_image(OTHER).digest}"), ([], "it has no such image")],
    ids=["the old one", "none"],
)
def test_a_load_that_says_all_is_well_is_not_believed(docker, told, found):
    folder, seen = docker(), Seen()
    (folder / "told.beta").write_text(json.dumps(told))
    outcomes = seen.sending.to(engines("alpha", "beta"))
    error = outcomes["beta"].error
    assert error and error.message == (f"sending trainer:1: after the load {found}, not {parse_image(TOLD).digest}")
    assert outcomes["alpha"].ok and calls(folder, "load") == ["alpha", "beta", "beta"]


def test_a_save_that_fails_is_told_once_of_this_machine(docker):
    folder, seen = docker(save="head -c 1000000 /dev/zero; echo 'reference does not exist' >&2; exit 1"), Seen()
    with pytest.raises(HostError) as caught:
        seen.sending.to(engines("alpha", "beta"))
    assert (caught.value.host, caught.value.message) == ("this machine", "docker save trainer:1 failed")
    assert "reference does not exist" in caught.value.output
    assert calls(folder, "save") == ["here"] and seen.lines == []


def test_a_frozen_host_is_served_alone_once_it_wakes(docker, monkeypatch):
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 1.0)
    folder, seen = docker(load="[ $where$n != beta1 ] || exec sleep 300"), Seen()
    began = time.monotonic()
    outcomes = seen.sending.to(engines("alpha", "beta", "gamma"))
    assert list(values(outcomes)) == [] and all(outcome.ok for outcome in outcomes.values())
    assert time.monotonic() - began < 60
    assert calls(folder, "load") == ["alpha", "beta", "beta", "gamma"]
    assert [line for line in seen.lines if line.startswith("beta")] == [
        "beta: nothing moved for 1 s: the others go on without it",
        "beta: image trainer:1 is sent once more, alone",
        "beta: image is there",
    ]
    assert seen.lines.index("beta: image trainer:1 is sent once more, alone") > seen.lines.index(
        "alpha: image is there"
    )


def test_a_host_that_stays_frozen_is_given_up(docker, monkeypatch):
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 1.0)
    monkeypatch.setattr(transfer, "ALONE_SECONDS", 2.0)
    _, seen = docker(load="[ $where != beta ] || exec sleep 300"), Seen()
    outcomes = seen.sending.to(engines("alpha", "beta"))
    error = outcomes["beta"].error
    assert error and (error.host, error.message) == ("beta", "sending trainer:1: nothing moved for 2 s")
    assert error.hint == "is the host frozen or overloaded?"
    assert outcomes["alpha"].ok


def test_one_host_is_alone_from_the_start(docker, monkeypatch):
    monkeypatch.setattr(transfer, "ALONE_SECONDS", 1.0)
    folder, seen = docker(load="exec sleep 300"), Seen()
    error = seen.sending.to(engines("beta"))["beta"].error
    assert error and error.message == "sending trainer:1: nothing moved for 1 s"
    assert calls(folder, "load") == ["beta"]


SCRIPT = """
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.images import HERE, ImageFacts
from hvdcompose.hosts.sending import Sending
hosts = {name: Engine(name, name) for name in ("alpha", "beta", "gamma")}
Sending(HERE, "trainer:1", ImageFacts("d1", "amd64", 3000000, ""), print, lambda *_: None).to(hosts)
"""


def test_ctrl_c_ends_every_child_soon(docker):
    """Also those that ignore the polite signal, as docker over a frozen ssh does."""
    stubborn = "trap '' TERM; {folder}; exec sleep 300"
    folder = docker()
    pids = folder / "pids"
    docker(save=stubborn.format(folder=f"echo $$ >> {pids}"), load=stubborn.format(folder=f"echo $$ >> {pids}"))
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=subprocess.DEVNULL) as running:
        limit = time.monotonic() + 60
        while not (pids.exists() and len(pids.read_text().split()) == 4):
            assert time.monotonic() < limit
            time.sleep(0.05)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) != 0
        assert time.monotonic() - began < 15, "one after the other they take 2 s each, and 2 s again"
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
