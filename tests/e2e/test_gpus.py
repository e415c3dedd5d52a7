"""GPUs from cluster.yaml to the ranks, on the lab's stub GPUs; and every host asked for GPUs that it cannot give."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from desk import Desk
from made import Made, errors_of

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
hosts:
  <h1>, gpus: all, slots: 2}
  <h2>, gpus: 1}
  <h3>, gpus: ["1"]}
  <h4>, gpus: {driver: cdi, ids: [nvidia.com/gpu=1]}}
train:
  command: [sh, -c, "echo $NVIDIA_VISIBLE_DEVICES sees $(nvidia-smi -L)"]
"""
GPU = "GPU {}: FAKE-GPU (UUID: GPU-fake-{})"


def test_each_rank_sees_the_gpus_of_its_host(cluster: Made) -> None:
    h1, h2, h3, h4 = (cluster.desk.host(n) for n in range(1, 5))
    cluster.write(CLUSTER)
    ran = cluster.hvd("apply", "--follow").stdout
    both = f"all sees {GPU.format(0, 0)} {GPU.format(1, 1)}"
    assert sorted(re.findall(r"^\S+ r\d +\| .*$", ran, re.M)) == [
        f"{h1} r0  | {both}",
        f"{h1} r1  | {both}",
        f"{h2} r2  | 0 sees {GPU.format(0, 0)}",
        f"{h3} r3  | 1 sees {GPU.format(0, 1)}",
        f"{h4} r4  | sees {GPU.format(0, 1)}",
    ]
    assert "all 5 ranks ended with exit 0" in ran
    cluster.settled()


def test_all_gpus_of_a_host_with_two_ask_for_slots(cluster: Made) -> None:
    h1, h3 = cluster.desk.host(1), cluster.desk.host(3)
    cluster.write(CLUSTER.replace(", slots: 2", "").replace('gpus: ["1"]', "gpus: all"))
    refused = cluster.hvd("apply", code=4)
    said = "{}: `gpus: all` gives 2 GPUs, and `slots` does not say how many ranks use them"
    assert errors_of(refused) == [f"error: {said.format(h1)}"]
    assert f"\n{said.format(h3)}\n" in refused.stderr
    assert f"  -> hosts.{h1}: slots: 2\n  -> hosts.{h3}: slots: 2\n" in refused.stderr
    assert [cluster.containers(n) for n in (1, 2, 3, 4)] == [[]] * 4
    cluster.write(CLUSTER.replace('gpus: ["1"]', "gpus: all, slots: 1"))
    assert "all 5 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


@pytest.mark.parametrize(
    ("gpus", "told", "hint"),
    [
        ("3", "it has no such GPU: 2", "on that host: nvidia-smi -L lists its GPUs"),
        ('["0", "7"]', "it has no such GPU: 7", "on that host: nvidia-smi -L lists its GPUs"),
        (
            "{driver: cdi, ids: [nvidia.com/gpu=7]}",
            "its Docker engine knows no CDI device nvidia.com/gpu=7",
            "on that host: nvidia-ctk cdi list; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        ),
    ],
    ids=["count", "ids", "CDI"],
)
def test_gpus_that_a_host_does_not_have(cluster: Made, gpus: str, told: str, hint: str) -> None:
    h2 = cluster.desk.host(2)
    cluster.write(CLUSTER.replace("gpus: 1}", f"gpus: {gpus}, slots: 1}}"))
    failed = cluster.hvd("apply", code=4)
    assert failed.stderr.endswith(f"error: {h2}: {told}\n  -> {hint}\n")
    assert [cluster.containers(n) for n in (1, 2, 3, 4)] == [[]] * 4


@pytest.fixture
def plain(cluster: Made, odd: Desk) -> Iterator[str]:
    """A host without a GPU runtime, in the second place of cluster.yaml; at the end it is cleared as one that left."""
    yield f"{odd.host(1)}: {{address: {odd.address(1)}"
    cluster.write(CLUSTER)


@pytest.mark.parametrize(
    ("gpus", "told", "hint"),
    [
        (
            "all",
            "its Docker engine has no NVIDIA GPU runtime",
            "install the NVIDIA Container Toolkit there and restart docker; `gpus: none` runs without GPUs",
        ),
        (
            "{driver: cdi, ids: [nvidia.com/gpu=0]}",
            "its Docker engine does not know CDI: that takes engine 25 or later with the feature switched on",
            'on that host: {"features": {"cdi": true}} in /etc/docker/daemon.json, then restart docker',
        ),
    ],
    ids=["all", "CDI"],
)
def test_a_host_without_a_gpu_runtime(
    cluster: Made, odd: Desk, plain: str, tiny: str, gpus: str, told: str, hint: str
) -> None:
    text = CLUSTER.replace("<image>", tiny).replace("<h2>, gpus: 1", f"{plain}, gpus: {gpus}")
    cluster.write(text)
    failed = cluster.hvd("apply", code=4)
    hosts = [cluster.desk.host(1), odd.host(1), cluster.desk.host(3), cluster.desk.host(4)]
    lines = [f"{host}: the image has no python3" for host in hosts]  # all that is amiss is told, not the first of it
    lines.append(f"{odd.host(1)}: {told}")
    assert f"error: {chr(10).join(lines)}\n  -> " in failed.stderr
    assert f"  -> {hint}\n" in failed.stderr
    assert [cluster.containers(n) for n in (1, 3, 4)] == [[]] * 3

    cluster.write(text.replace(f"{plain}, gpus: {gpus}", f"{plain}, gpus: none"))
    assert f"{odd.host(1)}: {told}" not in cluster.hvd("apply", code=4).stderr
