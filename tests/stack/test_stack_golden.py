"""cluster.yaml -> the text of each host's Compose file, compared whole with files under golden/.

The scripts that are embedded are cut out there, so that a golden file shows what cluster.yaml decides; that they come
back byte for byte is held in test_stack_values.py.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from clusters import TWO, cluster_of

from hvdcompose.config.source import load_cluster
from hvdcompose.stack.plan import plan_hosts
from hvdcompose.stack.render import header_of, render, spec_of

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
REGENERATE = "HVD_GOLDEN=write .venv/bin/pytest tests/stack/test_stack_golden.py, then read `git diff tests/stack`"

GPUS = """\
name: gpus
image: trainer:1
hosts:
  h-all: {address: 10.0.0.1, gpus: all, slots: 2}
  h-count: {address: 10.0.0.2, gpus: 2}
  h-ids: {address: 10.0.0.3, gpus: [0, GPU-8a5e0b9c]}
  h-cdi: {address: 10.0.0.4, gpus: {driver: cdi, ids: [nvidia.com/gpu=0, nvidia.com/gpu=1]}}
  h-none: {address: 10.0.0.5, gpus: none}
train: {command: python train.py}
"""

CLUSTERS = {
    "two": TWO,
    "alone": "name: alone\nimage: trainer:1\nhosts:\n  alpha: {address: 10.0.0.1}\ntrain: {command: python train.py}\n",
    "gpus": GPUS,
    "nfs": f"{TWO}ssh: {{port: 2222, volume: /mnt/nfs2/ssh}}\n",
    "mounts": f"""{TWO}\
  code: ./src/model
  volumes:
    /data: /srv/mnist
    /cache: model-cache
    /again: {{source: model-cache, read_only: true}}
    /ro: {{source: "/srv/with space", read_only: true}}
""",
    "limits": """\
name: limits
image: {name: "registry:5000/team/trainer:1", pull: always}
defaults: {shm_size: 2g, ulimits: {memlock: -1}}
hosts:
  alpha: {address: 10.0.0.1}
  beta:
    address: 10.0.0.2
    shm_size: 512m
    interface: enp3s0
    ulimits: {stack: 67108864, nofile: {soft: 1024, hard: 4096}}
train: {command: python train.py}
""",
    "horovod": f"""{TWO}\
  np: 3
horovod:
  controller: mpi
  fusion_threshold_mb: 32
  cycle_time_ms: 3.5
  timeline: /hvd-out/timeline.json
  start_timeout: 30
  stall_shutdown: 600
  args: [--verbose, --log-level, INFO]
""",
    "extras": """\
name: extras
image: trainer:1
hosts:
  alpha: {address: 10.0.0.1}
  beta: {address: 10.0.0.2}
train:
  command: python train.py
  prepare: [python, -m, data, "to $HOME"]
  volumes: {/data: /srv/data}
  output: results
  secrets: {WANDB_API_KEY: {env: WANDB_KEY}, netrc: {file: ~/.netrc}}
runs: {keep: 7}
""",
    "fewer": """\
name: fewer
image: trainer:1
hosts:
  alpha: {address: 10.0.0.1, slots: 4}
  beta: {address: 10.0.0.2, slots: 4}
  gamma: {address: 10.0.0.3, slots: 4}
train: {command: python train.py, np: 6}
""",
    "second": """\
name: second
image: trainer:1
hosts:
  alpha: {context: rack-1, address: 10.0.0.1}
  beta: {context: rack-2, address: beta.lan, primary: true}
train: {command: ["sh", "-c", "echo $HOSTNAME; exec python train.py"]}
""",
    "env": """\
name: env
image: trainer:1
defaults: {env: {NCCL_DEBUG: WARN, LEVEL: default}}
hosts:
  alpha: {address: 10.0.0.1}
  beta: {address: 10.0.0.2, env: {LEVEL: beta, COST: "$5 and 100%"}}
train:
  command: python train.py
  env: {LEVEL: train, "true": "yes", "null": "~", OMP_NUM_THREADS: 1}
""",
}
CASES = [
    pytest.param(cluster, host, id=f"{cluster}.{host}")
    for cluster, host in [
        *(("two", "alpha"), ("two", "beta")),
        ("alone", "alpha"),
        *(("gpus", host) for host in ("h-all", "h-count", "h-ids", "h-cdi", "h-none")),
        *(("nfs", "alpha"), ("nfs", "beta")),
        *(("mounts", "alpha"), ("mounts", "beta")),
        *(("limits", "alpha"), ("limits", "beta")),
        ("horovod", "alpha"),
        *(("extras", "alpha"), ("extras", "beta")),
        *(("fewer", "alpha"), ("fewer", "gamma")),
        *(("second", "alpha"), ("second", "beta")),
        *(("env", "alpha"), ("env", "beta")),
    ]
]


def rendered(text: str) -> dict[str, str]:
    return {plan.host: render(plan) for plan in plan_hosts(cluster_of(text))}


def without_scripts(text: str) -> str:
    """Cut out what cluster.yaml does not decide: the embedded scripts, and the digest over the whole file."""
    text = re.sub(r'(hvdcompose\.spec: )"[0-9a-f]{16}"', r'\1"DIGEST"', text)
    return re.sub(
        r"^(  hvd_(?!host:)\w+:\n    content: \|\n)(?:      .*\n|\n)+", r"\1      SCRIPT\n", text, flags=re.MULTILINE
    )


@pytest.mark.parametrize(("name", "host"), CASES)
def test_the_text_of_a_host(name, host):
    text = without_scripts(rendered(CLUSTERS[name])[host])
    path = GOLDEN / f"{name}.{host}.yaml"
    if os.environ.get("HVD_GOLDEN") == "write":
        path.write_text(text)
    assert path.exists() and text == path.read_text(), f"if the new text is right: {REGENERATE}"


def test_no_golden_file_is_left_over():
    assert {path.stem for path in GOLDEN.iterdir()} == {case.id for case in CASES}


def test_the_committed_files_of_the_shipped_cluster_are_current():
    texts = {plan.host: render(plan) for plan in plan_hosts(load_cluster(ROOT / "cluster.yaml"))}
    on_disk = {path.parent.name: path.read_text() for path in (ROOT / "compose").glob("*/compose.yaml")}
    assert set(on_disk) == set(texts), "hvdcompose render, and remove the folders of hosts that left"
    stale = [host for host in texts if on_disk[host] != texts[host]]
    assert stale == [], ".venv/bin/hvdcompose render, and commit compose/ together with what changed it"


@pytest.mark.parametrize("name", CLUSTERS)
def test_rendering_twice_gives_the_same_bytes(name):
    assert rendered(CLUSTERS[name]) == rendered(CLUSTERS[name])


def test_the_bytes_do_not_depend_on_the_hash_seed():
    program = (
        "import sys; from hvdcompose.config.source import load_cluster; from hvdcompose.stack.plan import plan_hosts;"
        "from hvdcompose.stack.render import render; from pathlib import Path;"
        "sys.stdout.write(''.join(render(plan) for plan in plan_hosts(load_cluster(Path('cluster.yaml')))))"
    )
    python = [str(ROOT / ".venv/bin/python"), "-c", program]
    texts = {
        subprocess.run(
            python, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def document(name: str, host: str) -> dict:
    return yaml.safe_load(rendered(CLUSTERS[name])[host])


def service(name: str, host: str) -> dict:
    (found,) = document(name, host)["services"].values()
    return found


def test_roles_follow_the_primary_and_not_the_order_of_the_file():
    assert list(document("second", "alpha")["services"]) == ["worker"]
    assert list(document("second", "beta")["services"]) == ["launcher"]
    command = service("second", "beta")["command"]
    assert command[command.index("-H") + 1] == "beta.lan:1,10.0.0.1:1", "rank 0 runs beside the launcher"


RESERVED = [
    ("h-all", {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}),
    ("h-count", {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}),
    ("h-ids", {"driver": "nvidia", "device_ids": ["0", "GPU-8a5e0b9c"], "capabilities": ["gpu"]}),
    (
        "h-cdi",
        {"driver": "cdi", "device_ids": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"], "capabilities": ["gpu"]},
    ),
]


@pytest.mark.parametrize(("host", "device"), RESERVED)
def test_gpu_reservations(host, device):
    assert service("gpus", host)["deploy"] == {"resources": {"reservations": {"devices": [device]}}}


def test_no_reservation_without_gpus():
    assert "deploy" not in service("gpus", "h-none")


@pytest.mark.parametrize(("host", "label"), [("h-all", "all"), ("h-count", "any 2"), ("h-ids", "0,GPU-8a5e0b9c"),
    ("h-cdi", "nvidia.com/gpu=0,nvidia.com/gpu=1"), ("h-none", "")])  # fmt: skip
def test_the_labels_say_what_is_taken(host, label):
    labels = service("gpus", host)["labels"]
    assert (labels["hvdcompose.port"], labels["hvdcompose.gpus"]) == ("12345", label)


def test_an_output_volume_is_everywhere_and_a_path_on_the_primary_alone():
    def outputs(text: str) -> dict[str, list[str]]:
        documents = {host: yaml.safe_load(body) for host, body in rendered(text).items()}
        services = {host: next(iter(told["services"].values())) for host, told in documents.items()}
        return {
            host: [mount["source"] for mount in told["volumes"] if mount["target"] == "/hvd/output"]
            for host, told in services.items()
        }

    text = CLUSTERS["extras"]
    assert outputs(text) == {"alpha": ["data-results"], "beta": ["data-results"]}
    assert outputs(text.replace("results", "/srv/results")) == {"alpha": ["/srv/results"], "beta": []}


def test_of_a_secret_only_its_name_is_rendered():
    for text in rendered(CLUSTERS["extras"]).values():
        assert "WANDB_API_KEY" in text
        assert "WANDB_KEY" not in text and ".netrc" not in text


def test_a_worker_s_file_says_nothing_of_the_run():
    """Another command, np or further hosts must not recreate the workers: the spec label covers the whole file."""
    one = rendered(TWO)["beta"]
    other = rendered(TWO.replace("python train.py", "python other.py --lr 1\n  np: 2"))["beta"]
    assert spec_of(one) == spec_of(other) and one == other
    assert "train.py" not in one


def test_the_spec_changes_with_what_the_container_is():
    texts = [rendered(text)["beta"] for text in (TWO, f"{TWO}ssh: {{port: 999}}\n", f"{TWO}  env: {{A: b}}\n")]
    specs = {spec_of(text) for text in texts}
    assert len(specs) == 3
    assert all(re.fullmatch("[0-9a-f]{16}", spec) for spec in specs)


def test_the_header_tells_whose_file_it_is():
    text = rendered(CLUSTERS["second"])["alpha"]
    assert header_of(text) == {"format": "1", "cluster": "second", "host": "alpha", "context": "rack-1"}
    assert header_of("services: {}\n") is None
    assert header_of("") is None


def test_binds_are_never_made_by_docker():
    """A host path that is missing must be told, not made as an empty folder."""
    for name in ("mounts", "nfs"):
        for text in rendered(CLUSTERS[name]).values():
            (only,) = yaml.safe_load(text)["services"].values()
            binds = [mount for mount in only["volumes"] if mount["type"] == "bind"]
            assert binds and all(mount["bind"] == {"create_host_path": False} for mount in binds)


# The client program `docker compose` is needed here, not an engine; `make test-unit` may run without it.
@pytest.mark.engine
@pytest.mark.parametrize("name", CLUSTERS)
def test_compose_takes_every_file(name, tmp_path):
    for host, text in rendered(CLUSTERS[name]).items():
        path = tmp_path / host / "compose.yaml"
        path.parent.mkdir()
        path.write_text(text)
        done = subprocess.run(["docker", "compose", "-f", str(path), "config", "-q"], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), host
