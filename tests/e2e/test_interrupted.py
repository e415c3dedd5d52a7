"""A client that is killed at any phase of a command, or interrupted: the next command completes what it began."""

from __future__ import annotations

from pathlib import Path

import pytest
from deadly import deadly_docker
from made import Made

from hvdcompose.hosts.code import read_code

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
"""
DONE = "all 2 ranks ended with exit 0"
# last in the tar, behind more than a pipe holds: where the code was cut off, it is missing
JOB = "import zz\nprint('whole', zz.WHOLE)\n"


@pytest.fixture
def job(cluster: Made) -> Made:
    """A cluster on two hosts whose job needs the last file of its code, not yet applied."""
    code = cluster.folder / "code"
    code.mkdir()
    (code / "job.py").write_text(JOB)
    (code / "long.txt").write_text("0123456789abcdef" * 250_000)
    (code / "zz.py").write_text("WHOLE = True\n")
    cluster.write(CLUSTER)
    return cluster


def struck(made: Made, folder: Path, pattern: str, moment: str, *words: str, signal: str = "KILL") -> str:
    """Run a command whose client is ended at a call of docker; return what it printed. <h1>, <h2> are filled in."""
    for number in (1, 2):
        pattern = pattern.replace(f"<h{number}>", made.desk.host(number))
    client = Made(made.desk, made.folder, made.name, made.port, deadly_docker(folder, pattern, moment, signal))
    process = client.start(*words)
    told, _ = process.communicate(timeout=90)
    assert (folder / "struck").is_dir(), f"no call was like {pattern}:\n{told}"
    assert process.returncode == (-9 if signal == "KILL" else 130), told
    return told


def volumes(made: Made, number: int) -> set[str]:
    """Return the cluster's volumes on a host, the claim included."""
    listed = made.docker(number, "volume", "ls", "--format", "{{.Name}}").split()
    return {name for name in listed if name.startswith((f"{made.name}-", f"hvdcompose-claim-{made.name}"))}


def stands_as_if_never_interrupted(made: Made) -> None:
    """Check what is on both hosts: it is what one apply leaves that nobody disturbs."""
    digest = read_code(made.folder / "code").digest
    kinds = ("ssh", "host", "runs", f"code-{digest}", f"full-{digest}")
    for number in (1, 2):
        assert made.containers(number) == [made.container(number)]
        assert volumes(made, number) == {f"{made.name}-{kind}" for kind in kinds}
    made.settled()


# docker's words, the moment of the client's end; in the order of an apply
APPLY = [
    ("*volume*create*claim*", "after"),
    ("*<h2>*create*--mount*", "after"),
    ("*cp - [0-9a-f]*", "during"),
    ("*volume*create*-full-*", "before"),
    ("*volume*create*-full-*", "after"),
    ("*<h2>*compose*up*", "before"),
    ("*<h2>*compose*up*", "during"),
    ("*cp - *worker-1:/*", "before"),
    ("*cp - *worker-1:/*", "after"),
    ("*<h1>*compose*up*", "before"),
    ("*<h1>*compose*up*", "during"),
    ("*cp - *launcher-1:/*", "before"),
    ("*volume*rm*claim*", "before"),
]


def named(phases: list[tuple[str, str]]) -> list[object]:
    return [pytest.param(*phase, id=f"{phase[1]} {phase[0].replace('*', ' ').strip()}") for phase in phases]


@pytest.mark.parametrize(("pattern", "moment"), named(APPLY))
def test_apply(job: Made, tmp_path: Path, pattern: str, moment: str) -> None:
    struck(job, tmp_path / "deadly", pattern, moment, "apply")
    job.hvd("apply", "--follow")
    job.wait_for_log(DONE)
    assert job.docker(1, "logs", job.container(1)).count("whole True") == 2
    stands_as_if_never_interrupted(job)


def test_code_that_was_cut_off_does_not_pass_for_whole_after_down(job: Made, tmp_path: Path) -> None:
    struck(job, tmp_path / "deadly", "*<h2>*cp - [0-9a-f]*", "during", "apply")
    job.hvd("down")
    assert "whole True" in job.hvd("apply", "--follow").stdout
    stands_as_if_never_interrupted(job)


RUN = [("*<h1>*compose*up*", "before"), ("*<h1>*compose*up*", "during"), ("*<h1>*logs*--follow*", "before")]


@pytest.mark.parametrize(("pattern", "moment"), named(RUN))
def test_run(job: Made, tmp_path: Path, pattern: str, moment: str) -> None:
    job.hvd("apply", "--follow")
    workers = job.ids(2)
    struck(job, tmp_path / "deadly", pattern, moment, "run")
    assert DONE in job.hvd("run", "--replace").stdout
    assert job.ids(2) == workers
    stands_as_if_never_interrupted(job)


DOWN = [("*<h1>*compose*down*", "before"), ("*<h2>*compose*down*", "during"), ("*volume*rm*-code-*", "after")]


@pytest.mark.parametrize(("pattern", "moment"), named(DOWN))
def test_down(job: Made, tmp_path: Path, pattern: str, moment: str) -> None:
    job.hvd("apply", "--follow")
    struck(job, tmp_path / "deadly", pattern, moment, "down", "--volumes", "--yes")
    job.hvd("down", "--volumes", "--yes")
    for number in (1, 2):
        assert (job.containers(number), volumes(job, number)) == ([], set())


ROTATE = [
    ("*<h2>*rm --force*", "after"),
    ("*<h2>*volume*rm*", "after"),
    ("*<h2>*compose*up*", "during"),
    ("*cp - *worker-1:/*", "before"),
    ("*cp*launcher-1:/*", "before"),
]


@pytest.mark.parametrize(("pattern", "moment"), named(ROTATE))
def test_new_keys(job: Made, tmp_path: Path, pattern: str, moment: str) -> None:
    job.hvd("apply", "--follow")
    struck(job, tmp_path / "deadly", pattern, moment, "keys", "rotate")
    assert DONE in job.hvd("run").stdout
    stands_as_if_never_interrupted(job)


def test_an_image_on_its_way(cluster: Made, tmp_path: Path, tiny: str) -> None:
    """It has no Python: that is what apply says once both hosts have it."""
    name = f"{cluster.name}-tiny:1"
    cluster.desk.engine("tag", tiny, name)
    try:
        cluster.write(CLUSTER.replace("<image>", name).replace("  code: ./code\n", ""))
        struck(cluster, tmp_path / "deadly", "*<h2>*load*", "during", "apply")
        told = cluster.hvd("apply", code=4).stderr
        assert told.count(": the image has no python3\n") == 2
        for number in (1, 2):
            cluster.docker(number, "image", "inspect", name)
    finally:
        cluster.clear()
        for number in (1, 2):
            cluster.docker(number, "image", "rm", "--force", name)
        cluster.desk.engine("image", "rm", name)


CTRL_C = [
    ("*volume*create*claim*", "after"),
    ("*cp - [0-9a-f]*", "during"),
    ("*<h2>*compose*up*", "during"),
    ("*<h1>*compose*up*", "during"),
]


@pytest.mark.parametrize(("pattern", "moment"), named(CTRL_C))
def test_ctrl_c(job: Made, tmp_path: Path, pattern: str, moment: str) -> None:
    told = struck(job, tmp_path / "deadly", pattern, moment, "apply", signal="INT")
    assert told.endswith("(a run that was launched goes on: hvdcompose status); the same command goes on from there\n")
    assert "Traceback" not in told
    assert not [name for name in volumes(job, 1) if "claim" in name]  # no other client has to wait
    job.hvd("apply", "--follow")
    assert job.docker(1, "logs", job.container(1)).count("whole True") == 2
    stands_as_if_never_interrupted(job)
