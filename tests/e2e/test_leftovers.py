"""Whatever ends a run: 15 s later no rank holds a process or a port on a host that answers; status tells more."""

from __future__ import annotations

import json
import subprocess

import pytest
from made import Made

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1}
hosts:
  <h1>}
  <h2>}
  <h3>}
train:
  command: python code/job.py
  code: ./code
"""
# each rank is deaf to SIGTERM, listens on a port and has a child in a session of its own
JOB = """
import os, signal, socket, subprocess, sys, time
import torch
import horovod.torch as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
port = socket.socket()
port.bind(("0.0.0.0", 0))
port.listen()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)  # code/job.py"], start_new_session=True)
print("begun on port", port.getsockname()[1], flush=True)
what = sys.argv[1:]
if what and hvd.rank() == int(what[0]):
    time.sleep(1)
    if what[1] == "raise":
        raise SystemExit("no")
    os.kill(os.getpid(), int(what[1]))
while True:
    hvd.allreduce(torch.ones(1))
    time.sleep(0.2)
"""
SECONDS = 15


@pytest.fixture
def job(cluster: Made) -> Made:
    """A cluster on three hosts whose ranks never end by themselves, not yet applied."""
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text(JOB)
    cluster.write(CLUSTER)
    return cluster


def listening(made: Made, number: int) -> set[str]:
    """Return the TCP ports that anybody listens on, on host N."""
    table = made.desk.engine("exec", f"hvdcompose-{made.desk.host(number)}", "cat", "/proc/net/tcp", "/proc/net/tcp6")
    rows = [line.split() for line in table.splitlines()]
    return {row[1].rpartition(":")[2] for row in rows if len(row) > 3 and row[3] == "0A"}


def gone(made: Made, before: dict[int, set[str]], *numbers: int) -> None:
    """Wait, no longer than is promised, until no rank and no port of one is left on these hosts."""

    def clear() -> bool:
        return not any(made.processes(n, "code/job.py") or listening(made, n) - before[n] for n in numbers)

    made.wait_for(clear, SECONDS, "no process of a rank is left, and no port")


@pytest.fixture
def ports(job: Made) -> dict[int, set[str]]:
    """The workers, standing without a run, and the ports that are taken then."""
    job.hvd("run", "--", "true")
    return {n: listening(job, n) for n in (1, 2, 3)}


def launch(made: Made, *words: str) -> subprocess.Popen[str]:
    """Start a run and wait until all its ranks have begun."""
    seen = made.inspect(1)["Id"]
    view = made.start("run", "--", "python", "code/job.py", *words)

    def begun() -> bool:
        told = made.docker(1, "logs", made.container(1), code=None)
        return told.count("begun on port") == 3 and made.inspect(1)["Id"] != seen

    made.wait_for(begun, 60, "three ranks have begun")
    return view


@pytest.mark.parametrize(
    "words", [pytest.param(["1", "raise"], id="error"), pytest.param(["2", "9"], id="killed"),
              pytest.param(["0", "11"], id="segfault")],
)  # fmt: skip
def test_a_rank_that_fails(job: Made, ports: dict[int, set[str]], words: list[str]) -> None:
    view = job.start("run", "--", "python", "code/job.py", *words)
    told, _ = view.communicate(timeout=90)
    assert view.returncode == 1, told
    gone(job, ports, 1, 2, 3)


def test_a_run_that_is_stopped_or_taken_down(job: Made, ports: dict[int, set[str]]) -> None:
    view = launch(job)
    job.hvd("stop")
    gone(job, ports, 1, 2, 3)
    assert view.wait(30) == 1

    view = launch(job)
    assert "without a launcher" not in job.hvd("status").stderr
    job.hvd("down", "--yes")
    view.wait(30)
    for number in (1, 2, 3):
        assert not job.processes(number, "code/job.py")


def test_a_launcher_that_is_killed(job: Made, ports: dict[int, set[str]]) -> None:
    view = launch(job)
    job.docker(1, "kill", "--signal", "KILL", job.container(1))
    gone(job, ports, 1, 2, 3)
    assert view.wait(30) == 1


def test_a_primary_that_is_lost(job: Made, ports: dict[int, set[str]]) -> None:
    """Its network goes with it: nobody tells the others that a connection has ended."""
    view, host = launch(job), f"hvdcompose-{job.desk.host(1)}"
    job.desk.engine("kill", host)
    try:
        gone(job, ports, 2, 3)
    finally:
        job.desk.engine("start", host)
        job.wait_for(lambda: "ServerVersion" in job.docker(1, "info", "-f", "{{json .}}", code=None), 60, "is back")
    told, _ = view.communicate(timeout=90)
    assert view.returncode == 1, told
    assert "all 3 ranks ended with exit 0" in job.hvd("run", "--", "true").stdout


def test_status_tells_what_lies_about(job: Made) -> None:
    job.hvd("run", "--", "true")
    assert json.loads(job.hvd("status", "--json").stdout)["data"]["strays"] == []
    h2, h3 = job.desk.host(2), job.desk.host(3)

    # ranks that nobody launched
    words = ("/hvd/rank", "sleep", "300")
    job.docker(2, "exec", "--detach", job.container(2), *words)
    job.wait_for(lambda: job.processes(2, "sleep 300"), 10, "a rank by hand")
    told = job.hvd("status").stderr
    assert f"{h2}: 1 rank without a launcher: sleep 300" in told
    job.docker(2, "restart", "--time", "1", job.container(2))  # as it says

    # a container without a role, a volume that was never filled, a host that left
    role = ("--label", f"com.docker.compose.project={job.name}", "--label", f"hvdcompose.cluster={job.name}")
    image = job.inspect(2)["Config"]["Image"]
    job.docker(2, "create", "--name", f"{job.name}-old", "--label", "com.docker.compose.service=old", *role, image)
    code = (*role[:2], "--label", "com.docker.compose.volume=code")
    job.docker(2, "volume", "create", *code, f"{job.name}-code-0123")
    job.edit(f"  {h3}: {{address: {job.desk.address(3)}}}\n", "")
    strays = json.loads(job.hvd("status", "--json").stdout)["data"]["strays"]
    assert [(stray["host"], stray["what"]) for stray in strays] == [
        (h2, f"container {job.name}-old has no role in cluster.yaml"),
        (h2, f"volume {job.name}-code-0123 is half full: its client was interrupted"),
        (h3, "it left cluster.yaml"),
    ]
    job.hvd("run", "--", "true")
    assert json.loads(job.hvd("status", "--json").stdout)["data"]["strays"] == []
