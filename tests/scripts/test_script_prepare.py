"""/hvd/prepare on one host, and the launcher's side of it on all: once per host, skipped where it is done."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import hvdhosts
import hvdlib
import hvdproc
import prepare
import pytest
from script_settings import SETTINGS

HOST = {**SETTINGS, "host": "beta", "address": "127.0.0.1", "own_env": []}
DRIVER = """
import json, sys, hvdproc, prepare
hvdproc.container_environment = lambda: json.loads(sys.argv[3])
sys.exit(prepare.run(json.loads(sys.argv[1]), sys.argv[2]))
"""
SPEC = {"command": ["true"], "folder": "/", "run": "r1", "output": "", "image": "i1", "code": "c1"}


class Prepared:
    """A host where /hvd/prepare runs; its mounts, and the variables of its container."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.data.mkdir()
        self.settings = {**HOST, "mounts": {str(self.data): "mnist-data"}}
        self.variables = {"PATH": os.environ["PATH"], "LEVEL": "1"}

    def start(self, *command: str, **spec: str) -> subprocess.Popen:
        (self.folder / "host.json").write_text(json.dumps(self.settings))
        env = {"PYTHONPATH": str(Path(prepare.__file__).parent), "HVD_SETTINGS": str(self.folder / "host.json")}
        text = json.dumps({**SPEC, "command": command, "folder": str(self.folder), **spec})
        words = [sys.executable, "-c", DRIVER, text, str(self.folder / "prepared"), json.dumps(self.variables)]
        return subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *command: str, **spec: str) -> tuple[int, str]:
        process = self.start(*command, **spec)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out


@pytest.fixture
def a_host(tmp_path: Path) -> Prepared:
    return Prepared(tmp_path)


DONE = (0, "hvdcompose: prepared before\n")
FILL = ("/bin/sh", "-c", "echo filling; pwd; echo x > data/file")


def test_once_it_succeeded_it_is_skipped(a_host):
    assert a_host.run(*FILL) == (0, f"filling\n{a_host.folder}\n")
    assert a_host.run(*FILL, run="r2") == DONE


def test_a_failure_is_told_and_tried_again(a_host):
    assert a_host.run("/bin/sh", "-c", "echo no; exit 7") == (7, "no\n")
    assert a_host.run("/bin/sh", "-c", "echo no; exit 7") == (7, "no\n")
    assert a_host.run("/bin/sh", "-c", "kill -9 $$")[0] == 137
    assert a_host.run("/no/such") == (127, "hvdcompose: beta: cannot run '/no/such': No such file or directory\n")


def test_with_anything_that_matters_changed_it_is_done_again(a_host):
    a_host.run(*FILL)
    assert a_host.run(*FILL, image="i2")[1].startswith("filling")
    assert a_host.run(*FILL, code="c2")[1].startswith("filling")
    assert a_host.run(*FILL[:-1], "echo other")[1] == "other\n"
    a_host.variables["LEVEL"] = "2"
    assert a_host.run(*FILL)[1].startswith("filling")
    a_host.settings["mounts"] = {str(a_host.data): "other-data"}
    assert a_host.run(*FILL)[1].startswith("filling")
    a_host.variables.update({"HVD_KEYS": "rotated", "HOSTNAME": "another container"})
    assert a_host.run(*FILL) == DONE


def test_a_mount_that_was_emptied_is_filled_again(a_host):
    a_host.run(*FILL)
    (a_host.data / "file").unlink()
    assert a_host.run(*FILL)[1].startswith("filling")
    assert a_host.run(*FILL) == DONE


def test_it_sees_what_a_rank_sees_but_no_rank_s_number(a_host):
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    code, out = a_host.run(sys.executable, "-c", program, output=str(a_host.folder / "out"))
    seen = json.loads(out)
    assert (code, seen["LEVEL"], seen["HVD_RUN"], seen["HOROVOD_GLOO_IFACE"]) == (0, "1", "r1", "lo")
    assert seen["HVD_OUTPUT"] == str(a_host.folder / "out") and (a_host.folder / "out").is_dir()
    assert "HOROVOD_RANK" not in seen


def pid_in(path: Path) -> int:
    limit = time.monotonic() + 30
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < limit
        time.sleep(0.02)
    return int(path.read_text())


def test_it_ends_with_all_it_started(a_host):
    process = a_host.start("/bin/sh", "-c", f"sleep 60 & echo $! > {a_host.folder}/pid; wait")
    pid = pid_in(a_host.folder / "pid")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert hvdproc.started_at(pid) is None


def test_what_it_leaves_in_the_background_is_ended(a_host):
    assert a_host.run("/bin/sh", "-c", f"sleep 60 & echo $! > {a_host.folder}/pid")[0] == 0
    pid, limit = pid_in(a_host.folder / "pid"), time.monotonic() + 10
    while hvdproc.started_at(pid) is not None:
        assert time.monotonic() < limit
        time.sleep(0.02)


# the launcher's side


@pytest.fixture
def hosts(worker, tmp_path, monkeypatch):
    """A launcher on alpha, where a stand-in for /hvd/prepare is a script; the workers' are what ssh runs."""
    monkeypatch.setattr(hvdhosts, "PREPARE", str(tmp_path / "prepare"))
    (tmp_path / "runs").mkdir()

    def write(alpha: str, beta: str, gamma: str) -> None:
        for path, script in ((tmp_path / "prepare", alpha),):
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        worker("10.0.0.2", beta)
        worker("10.0.0.3", gamma)

    return write


def prepared(tmp_path: Path) -> dict:
    record = {"run": "r1", "image": "i1", "code_digest": "c1", "prepare": {}}
    try:
        hvdhosts.prepare({**SETTINGS, "prepare": ["python", "fill.py"]}, record, str(tmp_path / "runs"))
    finally:
        tmp_path.joinpath("record").write_text(json.dumps(record))
    return record["prepare"]


def test_all_hosts_at_once_each_told_by_its_name(hosts, tmp_path, capfd):
    hosts("echo one; echo two >&2", 'sleep 0.2; echo "$@" > asked; printf part', "echo hvdcompose: prepared before")
    told = prepared(tmp_path)
    assert {name: (entry["code"], entry["skipped"]) for name, entry in told.items()} == {
        "alpha": (0, False), "beta": (0, False), "gamma": (0, True)
    }  # fmt: skip
    assert told["beta"]["seconds"] >= 0.2
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["prepare alpha | one", "prepare alpha | two", "prepare beta | part"]
    assert err.splitlines() == [
        "hvdcompose: prepare, once per host: python fill.py",
        "hvdcompose: prepared 2 of 3 hosts; 1 were prepared before",
    ]
    log = (tmp_path / "runs" / "prepare-alpha.log").read_text().splitlines()
    assert [line.partition("Z ")[2] for line in log] == ["one", "two"]
    port, words = (tmp_path / "asked").read_text().split(" ", 1)
    program, text = shlex.split(words)
    assert (port, program) == ("12345", str(tmp_path / "prepare"))
    assert json.loads(text) == {
        **{"command": ["python", "fill.py"], "folder": str(Path.cwd()), "run": "r1", "output": ""},
        **{"image": "i1", "code": "c1"},
    }


def test_every_host_where_it_failed_is_named_with_its_last_lines(hosts, tmp_path):
    hosts("exit 0", "seq 20; exit 3", "echo gone; exit 255")
    with pytest.raises(hvdlib.Fault) as caught:
        prepared(tmp_path)
    lines = str(caught.value).splitlines()
    told = "not launched: train.prepare failed on 2 of 3 hosts: beta (exit 3), gamma (the connection was lost)"
    assert lines == [
        told,
        "  beta, its last lines:",
        *(f"    | {number}" for number in range(11, 21)),
        "  gamma, its last lines:",
        "    | gone",
    ]
    assert caught.value.cause == {
        **{"rank": None, "host": "beta", "code": 3, "oom": False},
        "told": "train.prepare failed on beta (exit 3), gamma (the connection was lost)",
        "lines": [str(number) for number in range(11, 21)],
    }
    record = json.loads((tmp_path / "record").read_text())
    assert {name: entry["code"] for name, entry in record["prepare"].items()} == {"alpha": 0, "beta": 3, "gamma": 255}


def test_a_stop_ends_it_everywhere(hosts, tmp_path, monkeypatch):
    hosts(f"echo $$ > {tmp_path}/alpha; exec sleep 60", f"echo $$ > {tmp_path}/beta; exec sleep 60", "exit 0")

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    def alarm() -> None:
        pid_in(tmp_path / "alpha"), pid_in(tmp_path / "beta")
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    monkeypatch.setattr(hvdlib, "say", lambda text: None)
    before = signal.signal(signal.SIGALRM, stop)
    start = hvdhosts.Job.__init__
    made = []

    def counted(job, *words):
        start(job, *words)
        made.append(job)
        if len(made) == 3:
            alarm()

    monkeypatch.setattr(hvdhosts.Job, "__init__", counted)
    try:
        with pytest.raises(Stopped):
            prepared(tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for name in ("alpha", "beta"):
        assert hvdproc.started_at(pid_in(tmp_path / name)) is None
