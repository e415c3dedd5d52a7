"""The words of horovodrun, and what makes two launches the same."""

from __future__ import annotations

import pytest
from clusters import TWO, cluster_of

from hvdcompose.stack.launch import horovodrun, hosts_of_run, launch_digest, rank_hosts, rank_hosts_in

THREE = """\
name: demo
image: {name: trainer:1, pull: missing}
hosts:
  alpha: {address: 10.0.0.1, slots: 2, gpus: 2, env: {A: "1"}, volumes: {/host: /srv/alpha}}
  beta: {address: 10.0.0.2, slots: 2, gpus: 2}
  gamma: {address: 10.0.0.3, slots: 2, gpus: 2}
train:
  command: python train.py --lr 0.1
  np: 4
  env: {NCCL_DEBUG: WARN}
  volumes: {/data: /srv/mnist}
horovod: {fusion_threshold_mb: 32}
"""
FRONT = ["horovodrun", "-np", "3", "-H", "10.0.0.1:2,10.0.0.2:1", "-p", "12345"]
COMMAND = ["/hvd/rank", "python", "train.py"]


def words(horovod: str = "{}", text: str = TWO) -> list[str]:
    return list(horovodrun(cluster_of(f"{text}horovod: {horovod}\n")))


# each setting alone -> the words between `--disable-cache` and the command
OPTIONS = [
    pytest.param("{}", ["--start-timeout", "120"], id="defaults"),
    pytest.param("{start_timeout: 7}", ["--start-timeout", "7"], id="start_timeout"),
    pytest.param(
        "{fusion_threshold_mb: 0}", ["--start-timeout", "120", "--fusion-threshold-mb", "0"], id="fusion off is said"
    ),
    pytest.param("{cycle_time_ms: 3.5}", ["--start-timeout", "120", "--cycle-time-ms", "3.5"], id="cycle time"),
    pytest.param(
        "{cycle_time_ms: 5}", ["--start-timeout", "120", "--cycle-time-ms", "5"], id="whole number without a point"
    ),
    pytest.param(
        "{timeline: /tmp/t.json}", ["--start-timeout", "120", "--timeline-filename", "/tmp/t.json"], id="timeline"
    ),
    pytest.param(
        "{stall_shutdown: 600}",
        ["--start-timeout", "120", "--stall-check-shutdown-time-seconds", "600"],
        id="stall_shutdown",
    ),
    pytest.param(
        "{args: [--log-level, DEBUG, --autotune]}",
        ["--start-timeout", "120", "--log-level", "DEBUG", "--autotune"],
        id="args",
    ),
]


@pytest.mark.parametrize(("horovod", "options"), OPTIONS)
def test_options(horovod, options):
    assert words(horovod) == [*FRONT, "--gloo", "--disable-cache", *options, *COMMAND]


@pytest.mark.parametrize(("controller", "word"), [("auto", "--gloo"), ("gloo", "--gloo"), ("mpi", "--mpi")])
def test_the_controller_is_always_said(controller, word):
    """horovodrun takes MPI where it is built in unless it is told."""
    assert words(f"{{controller: {controller}}}")[7] == word


def test_one_port_for_all_hosts():
    found = list(horovodrun(cluster_of(f"{TWO}ssh: {{port: 2222}}\n")))
    assert found[found.index("-p") + 1] == "2222"


def test_a_word_of_the_command_stays_one_word():
    text = TWO.replace("python train.py", '["sh", "-c", "a b; echo $X \'q\'"]')
    assert horovodrun(cluster_of(text))[-3:] == ("sh", "-c", "a b; echo $X 'q'")


@pytest.mark.parametrize(
    ("np", "counts"),
    [
        (1, [("alpha", 1)]),
        (2, [("alpha", 2)]),
        (3, [("alpha", 2), ("beta", 1)]),
        (4, [("alpha", 2), ("beta", 2)]),
        (6, [("alpha", 2), ("beta", 2), ("gamma", 2)]),
    ],
)
def test_hosts_are_filled_one_after_the_other(np, counts):
    cluster = cluster_of(THREE.replace("np: 4", f"np: {np}"))
    assert [(host.name, count) for host, count in hosts_of_run(cluster)] == counts


def test_the_primary_is_filled_first_wherever_it_stands():
    cluster = cluster_of(THREE.replace("gamma: {", "gamma: {primary: true, "))
    assert [(host.name, count) for host, count in hosts_of_run(cluster)] == [("gamma", 2), ("alpha", 2)]


def digest(text: str = THREE, *, image: str = "i1", code: str = "c1") -> str:
    return launch_digest(cluster_of(text), image=image, code=code)


def test_the_digest_is_short_hex_and_stays():
    assert digest() == digest()
    assert len(digest()) == 16 and set(digest()) <= set("0123456789abcdef")


DECISIVE = [
    pytest.param("--lr 0.1", "--lr 0.2", id="command"),
    pytest.param("train.py --lr 0.1", "train.py '--lr 0.1'", id="where words end"),
    pytest.param("np: 4", "np: 3", id="np"),
    pytest.param("WARN", "INFO", id="env of the run"),
    pytest.param("/srv/mnist", "/srv/other", id="volume of the run"),
    pytest.param('{A: "1"}', '{A: "2"}', id="env of a host"),
    pytest.param("/srv/alpha", "/srv/elsewhere", id="volume of a host"),
    pytest.param("10.0.0.2", "10.0.0.22", id="address of a host"),
    pytest.param("beta: {", "bert: {", id="name of a host"),
    pytest.param("slots: 2, gpus: 2, env", "slots: 1, gpus: 2, env", id="ranks of a host"),
    pytest.param("gpus: 2, env", "gpus: all, env", id="gpus of a host"),
    pytest.param("beta: {", "beta: {primary: true, ", id="who launches"),
    pytest.param("trainer:1", "trainer:2", id="name of the image"),
    pytest.param("fusion_threshold_mb: 32", "fusion_threshold_mb: 64", id="fusion"),
    pytest.param("fusion_threshold_mb: 32", "controller: mpi", id="controller"),
    pytest.param("fusion_threshold_mb: 32", "fusion_threshold_mb: 32, cycle_time_ms: 1", id="cycle time"),
    pytest.param("fusion_threshold_mb: 32", "fusion_threshold_mb: 32, timeline: /tmp/t", id="timeline"),
    pytest.param("fusion_threshold_mb: 32", "fusion_threshold_mb: 32, stall_shutdown: 9", id="stall_shutdown"),
    pytest.param("np: 4", "np: 4\n  prepare: python data.py", id="prepare"),
    pytest.param("np: 4", "np: 4\n  output: results", id="output"),
    pytest.param("np: 4", "np: 4\n  secrets: {A: {env: A}}", id="name of a secret"),
    pytest.param("fusion_threshold_mb: 32", "fusion_threshold_mb: 32, args: [--autotune]", id="args"),
]


@pytest.mark.parametrize(("old", "new"), DECISIVE)
def test_another_launch(old, new):
    assert old in THREE
    assert digest(THREE.replace(old, new, 1)) != digest()


def test_another_image_or_code_is_another_launch():
    assert len({digest(), digest(image="i2"), digest(code="c2"), digest(image="c1", code="i1")}) == 4


INDIFFERENT = [
    pytest.param("fusion_threshold_mb: 32", "fusion_threshold_mb: 32, start_timeout: 9", id="start_timeout"),
    pytest.param("beta: {", "beta: {context: elsewhere, ", id="context"),
    pytest.param("beta: {", "beta: {shm_size: 2g, ", id="shm_size"),
    pytest.param("beta: {", "beta: {ulimits: {memlock: -1}, ", id="ulimits"),
    pytest.param("beta: {", "beta: {interface: eth1, ", id="interface"),
    pytest.param("train:", "ssh: {port: 999, volume: other}\ntrain:", id="port and volume of ssh"),
    pytest.param("train:", "runs: {keep: 3}\ntrain:", id="runs to keep"),
    pytest.param("pull: missing", "pull: always", id="pull"),
    pytest.param("10.0.0.3", "10.0.0.33", id="a host without ranks"),
    pytest.param("name: demo", "name: renamed", id="name of the cluster"),
    pytest.param("{/data: /srv/mnist}", "{/data: {source: /srv/mnist, read_only: false}}", id="another spelling"),
]


@pytest.mark.parametrize(("old", "new"), INDIFFERENT)
def test_the_same_launch(old, new):
    assert old in THREE
    assert digest(THREE.replace(old, new, 1)) == digest()


def test_the_host_of_each_rank():
    """Hosts are filled in order: four ranks on three hosts of two slots leave the third without any."""
    assert rank_hosts(cluster_of(THREE)) == ("alpha", "alpha", "beta", "beta")


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        pytest.param("horovodrun -np 3 -H 10.0.0.2:2,10.0.0.3:1 x", ("beta", "beta", "gamma"), id="other hosts"),
        pytest.param("horovodrun -np 1 -H 10.0.0.2:2 x", ("beta",), id="fewer ranks than slots"),
        pytest.param("horovodrun -np 1 -H 10.0.9.9:1 x", ("10.0.9.9",), id="a host that left the file"),
        pytest.param("horovodrun x", (), id="no hosts named"),
        pytest.param("horovodrun -H", (), id="cut off"),
    ],
)
def test_the_host_of_each_rank_of_a_launch_that_stands(words, hosts):
    """What the launcher's container was started with counts, whatever cluster.yaml says since."""
    assert rank_hosts_in(words.split(), cluster_of(THREE)) == hosts


def test_horovodrun_s_own_words_are_read_back():
    cluster = cluster_of(THREE)
    assert rank_hosts_in(horovodrun(cluster), cluster) == rank_hosts(cluster)
