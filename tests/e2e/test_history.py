"""Past runs on real hosts: what is kept, what survives `down`, and what a person sees while a run lives."""

from __future__ import annotations

import json
import time

import pytest
from made import Made, interrupt

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
  output: <name>-output
"""
JOB = """
import json, os, sys, time
rank = int(os.environ["HOROVOD_RANK"])
print("the same of all")
print(f"rank {rank} is here", flush=True)
open(os.path.join(os.environ["HVD_OUTPUT"], f"rank-{rank}.txt"), "w").write(str(rank))
for word in sys.argv[1:]:
    if word.isdigit():
        time.sleep(int(word))
    elif rank == 2:
        time.sleep(3)  # horovodrun ends the others, and what they had said should be out
        raise ValueError("no such data set")
if rank == 0:
    print(json.dumps({"accuracy": 0.5, "loss": 0.25}), flush=True)
"""


@pytest.fixture
def job(cluster: Made) -> Made:
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text(JOB)
    cluster.write(CLUSTER)
    return cluster


def runs_of(job: Made, **env: str) -> list[dict]:
    return json.loads(job.hvd("runs", "--json", **env).stdout)["data"]["runs"]


def test_two_runs_are_kept_and_survive_down(job: Made) -> None:
    h1, h2, h3 = (job.desk.host(n) for n in (1, 2, 3))
    job.hvd("apply", "--follow")
    job.hvd("run", "--", "python", "code/job.py", "fail", code=1)
    failed, well = runs_of(job)
    assert (well["state"], well["metrics"], well["hosts"]) == ("done", {"accuracy": 0.5, "loss": 0.25}, [h1, h2, h3])
    assert [entry["code"] for entry in well["ranks"]] == [0, 0, 0]
    assert (failed["state"], failed["cause"]["rank"], failed["cause"]["host"]) == ("failed", 2, h3)
    assert failed["code_digest"] == well["code_digest"] != ""

    job.hvd("down")
    assert [job.containers(n) for n in (1, 2, 3)] == [[], [], []]
    assert [run["run"] for run in runs_of(job)] == [failed["run"], well["run"]]
    shown = job.hvd("runs", "show", failed["run"][:-1]).stdout
    assert "python code/job.py fail" in shown
    assert "ValueError: no such data set" in shown

    logs = job.hvd("logs", "--run", "last").stdout
    assert f"{h3} r2  | ValueError: no such data set" in logs
    same = [line for line in logs.splitlines() if "| the same of all" in line]
    assert same == [f"{h1} r0  | the same of all   (the same from 2 other ranks)"] or len(same) == 3, (
        same
    )  # 3 on a busy machine
    assert f"{h2}     | " in logs  # the worker's own
    assert job.hvd("logs", "--run", well["run"], "--rank", "1", "--raw").stdout.splitlines() == [
        f"{h2} r1  | the same of all",
        f"{h2} r1  | rank 1 is here",
    ]

    job.hvd("report", failed["run"])
    page = (job.folder / f"report-{failed['run']}.html").read_text()
    for told in ("ValueError: no such data set", "python code/job.py fail", f"rank 2 on {h3}", "<svg "):
        assert told in page, told
    assert [job.containers(n) for n in (1, 2, 3)] == [[], [], []]


def test_a_live_run_an_interrupted_one_and_one_that_was_stopped(job: Made) -> None:
    job.hvd("apply")
    job.wait_for_log("ranks ended")
    detached = job.hvd("run", "-d", "--", "python", "code/job.py", "300").stderr
    assert "goes on by itself; come back: hvdcompose logs -f; end it: hvdcompose stop" in detached
    job.wait_for_log("rank 2 is here")
    assert runs_of(job)[0]["state"] == "live"
    job.hvd("stop")
    assert runs_of(job)[0]["state"] == "stopped"

    job.hvd("run", "-d", "--", "python", "code/job.py", "300")
    job.wait_for_log("rank 2 is here")
    job.docker(1, "kill", job.container(1))
    assert runs_of(job)[0]["state"] == "interrupted"
    assert "interrupted" in job.hvd("runs").stdout


def test_a_view_of_all_hosts_ends_with_ctrl_c_and_leaves_the_run(job: Made) -> None:
    job.hvd("apply")
    job.hvd("run", "-d", "--replace", "--", "python", "code/job.py", "300")
    job.wait_for_log("rank 2 is here")
    view = job.start("logs", "-f")
    other = job.start("logs", "-f", "--rank", "2")
    time.sleep(6)
    for shown in (view, other):
        interrupt(shown)
    told, of_rank = (shown.communicate(timeout=30)[0] for shown in (view, other))
    assert (view.returncode, other.returncode) == (130, 130)
    assert "the view is ended, a run goes on; come back: hvdcompose logs -f; end it: hvdcompose stop" in told
    at = [told.index(text) for text in ("Server listening on", "workers proved themselves", "rank 2 is here")]
    assert at == sorted(at)
    assert [line for line in of_rank.splitlines() if " | " in line] == [
        f"{job.desk.host(3)} r2  | the same of all",
        f"{job.desk.host(3)} r2  | rank 2 is here",
    ]
    assert job.inspect(1)["State"]["Running"]
    job.hvd("stop")
