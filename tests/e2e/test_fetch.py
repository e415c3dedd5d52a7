"""What rank 0 writes on the primary comes home, whole, through a helper that never stays."""

from __future__ import annotations

import hashlib
import json
import os
import signal

import pytest
from made import Made, errors_of

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1}
hosts:
  <h1>}
  <h2>}
train:
  command: python code/job.py
  code: ./code
  output: <output>
"""
JOB = """
import os, random
folder = os.environ["HVD_OUTPUT"]
if os.environ["HOROVOD_RANK"] == "0":
    random.seed(1)
    block = random.randbytes(1000003)
    with open(f"{folder}/large.bin", "wb") as file:
        for _ in range(300):
            file.write(block)
    os.makedirs(f"{folder}/deep")
    open(f"{folder}/deep/model.pt", "w").write("model")
    os.symlink("deep/model.pt", f"{folder}/last.pt")
"""
SIZE = 300 * 1000003


def ran(cluster: Made, output: str) -> Made:
    """Return the cluster after one run that wrote 300 MB."""
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text(JOB)
    cluster.write(CLUSTER.replace("<output>", output))
    cluster.hvd("apply", "--follow")
    return cluster


def test_a_fetch_that_is_killed_goes_on_and_leaves_nothing(cluster: Made) -> None:
    job = ran(cluster, f"{cluster.name}-output")
    run = json.loads(job.hvd("runs", "show", "--json").stdout)["data"]["run"]["run"]
    here = job.folder / "output" / run
    part = here / "large.bin.part"
    first = job.start("fetch")
    job.wait_for(lambda: part.exists() and part.stat().st_size > 5_000_000, 60, "the large file comes")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    size = part.stat().st_size
    assert 0 < size < SIZE
    job.wait_for(lambda: job.containers(1) == [job.container(1)], 20, "the helper ends with its client")

    told = json.loads(job.hvd("fetch", "--json").stdout)["data"]
    assert told["bytes"] == SIZE - size + len("model")
    assert (here / "large.bin").stat().st_size == SIZE
    there = job.docker(1, "run", "--rm", "-v", f"{job.name}-output:/o", "--entrypoint", "sha256sum", job_image(job),
                       f"/o/{run}/large.bin").split()[0]  # fmt: skip
    assert hashlib.sha256((here / "large.bin").read_bytes()).hexdigest() == there
    assert (here / "last.pt").read_text() == "model"
    assert sorted(path.name for path in here.iterdir()) == ["deep", "large.bin", "last.pt"]

    with (here / "large.bin").open("r+b") as file:  # a bit flips here
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    refused = job.hvd("fetch", code=2)
    assert "holds other files than run" in errors_of(refused)[0]
    job.hvd("fetch", "--yes")
    assert hashlib.sha256((here / "large.bin").read_bytes()).hexdigest() == there

    job.hvd("down")
    (here / "deep" / "model.pt").unlink()
    told = json.loads(job.hvd("fetch", "--json").stdout)["data"]  # the volume is still there
    assert (told["files"], told["bytes"]) == (1, len("model"))
    assert job.containers(1) == []


def job_image(job: Made) -> str:
    return str(json.loads(job.docker(1, "inspect", job.container(1)))[0]["Config"]["Image"])


def test_a_folder_of_the_primary(cluster: Made) -> None:
    host = f"hvdcompose-{cluster.desk.host(1)}"
    place = f"/srv/{cluster.name}, the 'output'"
    cluster.desk.engine("exec", host, "mkdir", "-p", place)
    try:
        job = ran(cluster, json.dumps(place))
        job.hvd("fetch", "last", "-o", "mine")
        assert (job.folder / "mine" / "deep" / "model.pt").read_text() == "model"
        assert job.containers(1) == [job.container(1)]
    finally:
        cluster.desk.engine("exec", host, "rm", "-r", place)
