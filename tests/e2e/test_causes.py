"""A run that fails names the rank that failed first, its host and the cause, whatever the others say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from desk import Desk
from made import Made, new_made

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
hosts:
  <h1>}
  <h2>}
  <h3>}
  <h4>}
train:
  command: python code/job.py
  code: ./code
  env: {OMP_NUM_THREADS: 1}
horovod: {controller: CONTROLLER}
"""
JOB = """
import ctypes, os, signal, sys, time
import torch
import horovod.torch as hvd

def exception():
    raise ValueError("no such sample: 17")

def three():
    sys.exit(3)

def memory():
    # the kernel's OOM killer sends this and counts it; the lab's hosts have no limit that it could watch
    os.kill(os.getpid(), signal.SIGKILL)

def segfault():
    ctypes.string_at(0)

hvd.init()
failing = {int(rank): what for rank, what in (word.split("=") for word in sys.argv[1:])}
for step in range(200):
    hvd.allreduce(torch.ones(1000), name="step")
    if step == 5:
        print("at work", flush=True)
    if step == 5 and hvd.rank() in failing:
        globals()[failing[hvd.rank()]]()
    time.sleep(0.02)
"""
CAUSES = {
    "exception": "ValueError: no such sample: 17 (exit 1)",
    "three": "exit 3",
    "memory": "killed by SIGKILL, not by hvdcompose: by hand, or by the kernel for want of memory",
    "segfault": "segmentation fault (SIGSEGV)",
}


@pytest.fixture(scope="module", params=["gloo", "mpi"])
def job(request: pytest.FixtureRequest, lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Four hosts, one after the other with Gloo and MPI."""
    made = new_made(lab4, tmp_path_factory.mktemp(request.param))
    (made.folder / "code").mkdir()
    (made.folder / "code" / "job.py").write_text(JOB)
    made.write(CLUSTER.replace("CONTROLLER", request.param))
    yield made
    made.clear()


def told_at_the_end(stdout: str) -> list[str]:
    """Return what the launcher said once horovodrun had ended, without the host in front of each line."""
    lines = [line.partition("| ")[2] for line in stdout.splitlines()]
    begin = next(at for at, line in enumerate(lines) if line.startswith("hvdcompose: first failure: "))
    return lines[begin:]


@pytest.mark.parametrize("what", CAUSES)
def test_the_first_screen_names_rank_host_and_cause(job: Made, what: str) -> None:
    failed = job.hvd("run", "--", "python", "code/job.py", f"2={what}", code=1)
    told = told_at_the_end(failed.stdout)
    assert told[0] == f"hvdcompose: first failure: rank 2 on {job.desk.host(3)}: {CAUSES[what]}"
    assert "hvdcompose: 3 other ranks ended because of it:" in told
    assert re.search(r"^hvdcompose: run \S+ ended with exit [1-9]", "\n".join(told), re.M)
    assert len(told) <= 45


def test_the_launcher_s_own_rank_and_two_that_fail_at_once(job: Made) -> None:
    told = told_at_the_end(job.hvd("run", "--", "python", "code/job.py", "0=three", code=1).stdout)
    assert told[0] == f"hvdcompose: first failure: rank 0 on {job.desk.host(1)}: exit 3"
    told = told_at_the_end(job.hvd("run", "--", "python", "code/job.py", "1=segfault", "3=segfault", code=1).stdout)
    either = [f"rank {rank} on {job.desk.host(rank + 1)}: segmentation fault (SIGSEGV)" for rank in (1, 3)]
    assert told[0] in [f"hvdcompose: first failure: {one}" for one in either]
