"""The helper container: made as the run's own would be, without what the engine refuses, and gone afterwards."""

from __future__ import annotations

import pytest
from clusters import cluster_of

from hvdcompose.config.model import Ulimit
from hvdcompose.errors import HostError
from hvdcompose.hosts import probe
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.probe import Disk, Helper, Wants, helper_words, open_helper, parse_gpu, task_of
from hvdcompose.stack.plan import plan_hosts

TEXT = """\
name: demo
image: trainer:1
hosts:
  alpha: {address: 10.0.0.1}
  beta:
    address: 10.0.0.2
    gpus: ["0", "2"]
    shm_size: 1g
    ulimits: {memlock: -1}
    volumes: {/nfs: {source: "/mnt/a,b", read_only: true}}
train:
  command: python train.py
  env: {NCCL_DEBUG: WARN}
  volumes: {/data: /srv/data, /cache: pip-cache}
"""
BETA = Engine("beta", "rack-2", "unix:///nowhere")


def wants(text: str = TEXT, host: str = "beta", **changes) -> Wants:
    plan = next(plan for plan in plan_hosts(cluster_of(text)) if plan.host == host)
    return Wants(plan, "token", **changes)


def mounts(words: list[str]) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == "--mount"]


def test_it_gets_what_the_run_s_own_container_gets():
    words = helper_words(wants(volumes=frozenset(("demo-ssh", "demo-host", "pip-cache", "other"))))
    text = " ".join(words)
    assert words[:3] == ["run", "--rm", "--interactive"]
    for part in (
        "--network host",
        "--user 0:0",
        "--pull never",
        "--shm-size 1g",
        "--ulimit memlock=-1:-1",
        '--gpus "device=0,2"',
        "--env NCCL_DEBUG=WARN",
        "--label com.docker.compose.project=demo",
        "--label com.docker.compose.service=fill",
        "--entrypoint python3 trainer:1 -c",
    ):
        assert part in text
    assert mounts(words) == [
        'type=bind,"source=/srv/data",target=/data',
        'type=bind,"source=/mnt/a,b",target=/nfs,readonly',
        'type=volume,"source=pip-cache",target=/cache',
        'type=volume,"source=demo-host",target=/hvd/host,readonly,volume-nocopy',
        'type=volume,"source=demo-ssh",target=/root/.ssh,readonly,volume-nocopy',
    ]


def test_it_makes_no_volume_that_is_not_there():
    assert mounts(helper_words(wants())) == [
        'type=bind,"source=/srv/data",target=/data',
        'type=bind,"source=/mnt/a,b",target=/nfs,readonly',
    ]


def test_a_user_s_own_ssh_folder_is_only_read():
    words = helper_words(wants(TEXT + "ssh: {volume: /nfs/ssh}\n", "alpha"))
    assert mounts(words)[-1] == 'type=bind,"source=/nfs/ssh",target=/root/.ssh,readonly'


def test_it_is_told_what_to_look_at():
    task = task_of(wants(volumes=frozenset(("demo-ssh", "pip-cache"))))
    assert task["paths"] == task["listed"] == ["/cache", "/data", "/nfs"]
    assert task["ssh_folder"] == "/root/.ssh"
    assert task_of(wants())["ssh_folder"] == ""
    assert task["host"] == {"host": "beta", "address": "10.0.0.2", "interface": None, "port": 12345}


def test_what_the_ranks_write_is_no_data_to_compare():
    task = task_of(wants(TEXT + "  output: results\n", volumes=frozenset(("results",))))
    assert "/hvd/output" in task["paths"]
    assert "/hvd/output" not in task["listed"]


# a docker whose helper tells facts, after an engine that refuses things
DOCKER = """
all="$*"
[ -z "$NO_GPUS" ] || case $all in *--gpus*)
  echo 'Error response from daemon: could not select device driver "" with capabilities: [[gpu]].' >&2; exit 125 ;;
esac
[ -z "$NO_LIMITS" ] || case $all in *--ulimit*)
  echo 'error setting rlimits for ready process: error setting rlimit type 8: operation not permitted' >&2; exit 126 ;;
esac
for gone in $GONE; do case $all in *"source=$gone\\""*)
  echo "invalid mount config for type \\"bind\\": bind source path does not exist: $gone" >&2; exit 125 ;;
esac; done
[ -z "$NO_PYTHON" ] || { echo 'exec: "python3": executable file not found in $PATH: unknown.' >&2; exit 127; }
[ -z "$OLD" ] || { read first; echo '{"old_python": "3.6.9"}'; exit; }
exec env -u PYTHONPATH python3 "$(dirname "$0")/helper.py"
"""
HELPER = f"""
import json, sys
first = json.loads(sys.stdin.readline())
assert "def main" in first["scripts"]["probe"]
disk = {Disk("/dev/shm").__dict__}
print(json.dumps(dict(
    interfaces={{"eth0": dict(addresses=["10.0.0.2"], mtu=1500, up=True)}},
    resolved="10.0.0.2", unresolved="", shm=disk,
    limits={{}}, disks=[], listings={{}}, programs={{}}, versions={{}}, built_with=[], account=dict(home="", shell=""),
    gpus=dict(rows=[], error="", asked=False, driver=False), rdma=dict(cards=[], device=False), ssh_folder=[],
    cores=1, memory=1, ssh_free=True, holder="", ports=[2000],
)), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "clock":
        import time
        print(json.dumps(dict(time=time.time() + 5)), flush=True)
    elif order["do"] == "connect":
        calls = [dict(host=p["host"], port=p["ssh"], result="ok", detail=p["token"]) for p in order["peers"]]
        print(json.dumps(dict(calls=calls)), flush=True)
    elif order["do"] == "login":
        told = [dict(host=w["host"], ok=False, reason=w["address"]) for w in order["workers"]]
        print(json.dumps(dict(logins=told)), flush=True)
"""


@pytest.fixture
def docker(program, monkeypatch):
    path = program("docker", DOCKER)
    (path.parent / "helper.py").write_text(HELPER)
    return lambda **env: [monkeypatch.setenv(name, value) for name, value in env.items()]


def test_it_tells_facts_and_obeys(docker):
    opened = open_helper(BETA, wants())
    assert isinstance(opened, Helper)
    assert (opened.facts.owner, opened.facts.ports, opened.refusals) == ("eth0", (2000,), ())
    assert opened.skew() == pytest.approx(5, abs=0.5)
    assert opened.connect([opened])["beta"][0].detail == "token"
    assert opened.log_in({"gamma": "10.0.0.3"})["gamma"].reason == "10.0.0.3"
    opened.close()


def test_all_that_an_engine_refuses_is_told_at_once(docker):
    docker(NO_GPUS="1", NO_LIMITS="1", GONE="/srv/data /mnt/a,b")
    opened = open_helper(BETA, wants())
    assert isinstance(opened, Helper)
    opened.close()
    assert {(refusal.about, refusal.what) for refusal in opened.refusals} == {
        ("gpus", ""),
        ("ulimits", ""),
        ("folder", "/srv/data"),
        ("folder", "/mnt/a,b"),
    }


def test_what_cannot_be_left_out_ends_it(docker):
    docker(NO_PYTHON="1", NO_GPUS="1")
    opened = open_helper(BETA, wants())
    assert isinstance(opened, tuple)
    assert [refusal.about for refusal in opened] == ["gpus", "python"]
    assert opened[1].error.message == "trying the run's container: the image has no python3"


def test_an_old_python_is_told(docker):
    docker(OLD="1")
    (refusal,) = open_helper(BETA, wants())
    assert str(refusal.error) == "the image has Python 3.6.9; 3.8 or later is needed"


def test_a_refusal_that_stays_the_same_is_not_tried_for_ever(program):
    program("docker", "echo 'bind source path does not exist: /elsewhere' >&2; exit 125")
    assert [refusal.what for refusal in open_helper(BETA, wants())] == ["/elsewhere"]


def test_one_that_says_nothing_has_a_deadline(program, monkeypatch):
    monkeypatch.setattr(probe, "FACTS_SECONDS", 0.3)
    program("docker", "exec sleep 60")
    with pytest.raises(HostError, match="its helper container says nothing for 0 s"):
        open_helper(BETA, wants())


def test_one_that_ends_early_is_told(program):
    path = program("docker", 'exec env -u PYTHONPATH python3 "$(dirname "$0")/helper.py"')
    (path.parent / "helper.py").write_text(HELPER.split("for line")[0])
    opened = open_helper(BETA, wants())
    assert isinstance(opened, Helper)
    with pytest.raises(HostError, match="its helper container ended early"):
        opened.skew()
    opened.close()


@pytest.mark.parametrize(("capability", "expected"), [("7.0", (7, 0)), ("[N/A]", ()), ("", ())])
def test_a_row_of_nvidia_smi(capability, expected):
    row = {"name": "TITAN V", "memory.total": "12288", "driver_version": "535.1", "compute_cap": capability}
    gpu = parse_gpu(row)
    assert (gpu.memory, gpu.capability) == (12288, expected)
    assert parse_gpu({**row, "memory.total": "[N/A]"}).memory == 0


def test_the_ulimits_are_those_of_the_plan():
    assert wants().plan.ulimits == {"memlock": Ulimit(soft=-1, hard=-1)}
