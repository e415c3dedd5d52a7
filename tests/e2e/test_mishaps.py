"""Mishaps in the middle of things: a client that is killed, hosts that freeze or reboot, addresses mixed up."""

from __future__ import annotations

import os
import signal
import subprocess
import time

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
DONE = "all 3 ranks ended with exit 0"


@pytest.fixture
def job(cluster: Made) -> Made:
    """A cluster on three hosts whose job sleeps as long as its code says, not yet applied."""
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text("print('whole')\n")
    cluster.write(CLUSTER)
    return cluster


@pytest.mark.parametrize("seconds", [0.9, 1.4, 1.9])
def test_a_client_that_is_killed_leaves_what_the_next_apply_completes(job: Made, seconds: float) -> None:
    first = job.start("apply")
    time.sleep(seconds)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    job.hvd("apply", "--follow")
    job.settled()
    assert job.docker(1, "logs", job.container(1)).count("whole") == 3
    assert [job.containers(n) for n in (1, 2, 3)] == [[job.container(n)] for n in (1, 2, 3)]


def test_hosts_that_freeze_or_reboot_in_the_middle_of_a_run(job: Made) -> None:
    h2, h3 = job.desk.host(2), job.desk.host(3)
    job.hvd("apply", "--follow")
    (job.folder / "code" / "job.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(300)\n")

    def start() -> subprocess.Popen[str]:
        """Launch, and wait until three ranks have begun."""
        before, view = job.inspect(1)["Id"], job.start("run")
        log = ("logs", job.container(1))

        def begun() -> bool:
            assert view.poll() is None, view.communicate()[0]
            return job.docker(1, *log, code=None).count("begun") == 3 and job.inspect(1)["Id"] != before

        job.wait_for(begun, 60, "begun")
        return view

    # a frozen host: the run can be ended on the others, and on that one ends by itself
    view = start()
    job.desk.engine("pause", f"hvdcompose-{h3}")
    try:
        job.hvd("stop")
        log = job.docker(1, "logs", job.container(1))
        assert f"hvdcompose: rank 1 on {h2}: " in log
        assert f"hvdcompose: rank 2 on {h3}: no record of its end\n" in log
        assert not job.processes(2, "code/job.py")
        assert view.wait(30) == 1
    finally:
        job.desk.engine("unpause", f"hvdcompose-{h3}")
    job.wait_for(lambda: not job.processes(3, "code/job.py"), 30, "the rank on the frozen host ends")

    # a secondary that reboots: the run fails, its worker comes back, the next run is well
    view = start()
    job.desk.engine("restart", "--time", "1", f"hvdcompose-{h3}")
    told, _ = view.communicate(timeout=90)
    assert view.returncode == 1
    assert f"hvdcompose: first failure: rank 2 on {h3}: no record of its end: " in told
    assert DONE in job.hvd("run", "--", "true").stdout

    # the primary reboots: the view comes back to the log, no rank survives anywhere
    view = start()
    job.desk.engine("restart", "--time", "1", f"hvdcompose-{job.desk.host(1)}")
    told, _ = view.communicate(timeout=90)
    assert view.returncode == 1, told
    for number in (2, 3):
        job.wait_for(lambda n=number: not job.processes(n, "code/job.py"), 30, "no rank outlives its launcher")
    assert DONE in job.hvd("run", "--", "true").stdout


def test_addresses_that_are_mixed_up(job: Made) -> None:
    h1, h2, h3 = (job.desk.host(n) for n in (1, 2, 3))
    a1, a2, a3 = (job.desk.address(n) for n in (1, 2, 3))
    job.file.write_text(job.file.read_text().replace(a2, "<a3>").replace(a3, a2).replace("<a3>", a3))
    refused = job.hvd("apply", code=4).stderr
    for host, address in ((h2, a3), (h3, a2)):
        assert f"{host}: address {address} is on no interface of its containers; found " in refused
        assert f"write the address that {host} has in cluster.yaml: hosts.{host}: address: IP" in refused

    job.write(CLUSTER)
    job.edit(a1, job.desk.address(8))
    refused = job.hvd("apply", code=4).stderr
    assert f"{h1}: address {job.desk.address(8)} is on no interface of its containers; found " in refused
    assert [job.containers(n) for n in (1, 2, 3)] == [[], [], []]

    job.write(CLUSTER)
    assert DONE in job.hvd("apply", "--follow").stdout
