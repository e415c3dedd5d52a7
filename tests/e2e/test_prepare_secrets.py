"""What hosts are prepared with once, and what nobody may read: train.prepare, train.secrets, train.output."""

from __future__ import annotations

import json

import pytest
from made import Made

pytestmark = pytest.mark.engine

VALUE = "hunter2-6Tz-very-secret"
CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
hosts:
  <h1>}
  <h2>}
  <h3>}
train:
  command: python code/job.py
  code: ./code
  prepare: python code/fill.py /data
  volumes: {/data: <name>-data}
  output: <name>-output
  secrets: {TOKEN: {env: MY_TOKEN}, "login.txt": {file: login}}
  env: {OMP_NUM_THREADS: 1}
"""
FILL = """
import os, sys
if os.path.exists(sys.argv[1] + "/refuse"):
    sys.exit("this host refuses")
assert open("/run/secrets/TOKEN").read() and "HOROVOD_RANK" not in os.environ
with open(sys.argv[1] + "/filled", "a") as file:
    print("filled by", os.environ["HVD_RUN"], file=file)
print("filled")
"""
JOB = """
import hashlib, json, os, stat
import horovod.torch as hvd
hvd.init()
told = {}
for name in sorted(os.listdir("/run/secrets")):
    path = "/run/secrets/" + name
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
    told[name] = [oct(stat.S_IMODE(os.stat(path).st_mode)), os.stat(path).st_uid, digest[:8]]
print("secrets", hvd.rank(), json.dumps(told), flush=True)
assert not [name for name, value in os.environ.items() if "hunter2" in value]
with open(os.environ["HVD_OUTPUT"] + "/model-%d" % hvd.rank(), "w") as file:
    file.write("weights of " + os.environ["HVD_RUN"])
"""
# sha256sum
DIGESTS = {"TOKEN": "9975daf1", "login.txt": "f9e92f47"}


@pytest.fixture
def job(cluster: Made) -> Made:
    """The cluster of this file, with its code and its secrets, not yet applied."""
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text(JOB)
    (cluster.folder / "code" / "fill.py").write_text(FILL)
    (cluster.folder / "login").write_text(f"login {VALUE}\n")
    cluster.write(CLUSTER)
    cluster.env["MY_TOKEN"] = VALUE
    return cluster


def filled(job: Made, number: int) -> list[str]:
    return job.docker(number, "exec", job.container(number), "cat", "/data/filled").splitlines()


def test_prepared_once_per_host_and_told_where_it_fails(job: Made) -> None:
    hosts = [job.desk.host(n) for n in (1, 2, 3)]
    ran = job.hvd("apply", "--follow").stdout
    for host in hosts:
        assert f"prepare {host} | filled" in ran
    assert "prepared 3 of 3 hosts" in ran and "all 3 ranks ended with exit 0" in ran

    again = job.hvd("run").stdout
    assert "prepared 0 of 3 hosts; 3 were prepared before" in again
    assert all(len(filled(job, n)) == 1 for n in (2, 3))

    # on one host it cannot be done: it is named, and nothing is launched
    job.edit("/data\n", "/data again\n")
    job.docker(2, "exec", job.container(2), "touch", "/data/refuse")
    failed = job.hvd("run", code=1)
    assert f"not launched: train.prepare failed on 1 of 3 hosts: {hosts[1]} (exit 1)" in failed.stdout
    assert "| this host refuses" in failed.stdout
    assert "secrets 0" not in failed.stdout
    assert [len(filled(job, n)) for n in (2, 3)] == [1, 2]
    job.docker(2, "exec", job.container(2), "rm", "/data/refuse")
    assert "prepared 1 of 3 hosts; 2 were prepared before" in job.hvd("run").stdout

    read = json.loads(job.docker(1, "run", "--rm", "--entrypoint", "sh", "-v", f"{job.name}-runs:/r", "hvd-trainer:cpu",
        "-c", "cat $(ls /r/records/*.json | tail -n 1)"))  # fmt: skip
    assert {host: entry["skipped"] for host, entry in read["prepare"].items()} == {
        hosts[0]: True, hosts[1]: False, hosts[2]: True
    }  # fmt: skip
    logs = job.docker(1, "run", "--rm", "--entrypoint", "ls", "-v", f"{job.name}-runs:/r", "hvd-trainer:cpu",
        f"/r/{read['run']}")  # fmt: skip
    assert set(logs.split()) >= {
        "launcher.log", *(f"prepare-{host}.log" for host in hosts), *(f"worker-{host}.log" for host in hosts[1:])
    }  # fmt: skip
    kept = job.docker(3, "exec", job.container(3), "cat", f"/hvd/output/{read['run']}/model-2")
    assert kept == f"weights of {read['run']}"


def test_secrets_reach_every_rank_and_are_nowhere_else(job: Made) -> None:
    ran = job.hvd("apply", "--follow")
    told = [line.partition("secrets ")[2] for line in ran.stdout.splitlines() if "secrets " in line]
    seen = {int(line.split(" ", 1)[0]): json.loads(line.split(" ", 1)[1]) for line in told}
    wanted = {name: ["0o400", 0, digest] for name, digest in DIGESTS.items()}
    assert seen == {0: wanted, 1: wanted, 2: wanted}

    assert VALUE not in ran.stdout + ran.stderr
    for path in (job.folder / "compose").rglob("*"):
        assert not path.is_file() or VALUE not in path.read_text()
    for number in (1, 2, 3):
        container = job.container(number)
        assert VALUE not in job.docker(number, "inspect", container)
        assert VALUE not in job.docker(number, "logs", container)
        assert not job.processes(number, VALUE)
    runs = job.docker(1, "run", "--rm", "--entrypoint", "grep", "-v", f"{job.name}-runs:/r", "hvd-trainer:cpu",
        "-rc", VALUE, "/r", code=None)  # fmt: skip
    assert runs.strip() and all(line.endswith(":0") for line in runs.splitlines())

    # another value makes the workers anew, and says why without saying what
    changed = job.hvd("apply", MY_TOKEN="another-hunter2")
    assert changed.stderr.count("its secrets changed") == 2
    assert "hunter2" not in changed.stderr
    job.settled(MY_TOKEN="another-hunter2")

    # without the values: what needs them says so, all at once; what does not, works
    del job.env["MY_TOKEN"]
    (job.folder / "login").unlink()
    for command in ("plan", "apply", "run"):
        refused = job.hvd(command, code=4).stderr
        assert "train.secrets.TOKEN: the variable MY_TOKEN is not set in this environment" in refused
        assert f"train.secrets.login.txt: cannot read {job.folder}/login: No such file or directory" in refused
    assert job.hvd("status").stdout.count(" worker    Up ") == 2
    assert "secrets 0" in job.hvd("logs").stdout
    job.hvd("stop")
