"""Each fault of `lab break`: doctor names that host and cause, nothing else turns red; green again after `mend`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from desk import Desk
from made import Made, new_made

from hvdcompose.lab.faults import FAULTS

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1}
hosts:
  <h1>}
  <h2>}
  <h3>, gpus: 2, slots: 1}
train:
  command: [sh, -c, "echo rank $HOROVOD_RANK says hi"]
  volumes: {/data: /srv/<name>}
"""
BROKEN = 3
# the check that fails, and what its finding says; None: no check fails
TOLD: dict[str, tuple[str, str] | None] = {
    "rootless": ("rootful", "is rootless, and its host network is not the machine's"),
    "old-engine": None,
    "engine-stopped": ("reached", "its Docker engine does not answer"),
    "frozen": ("reached", "its Docker engine does not answer within 5 s: frozen, or overloaded"),
    "cut-off": ("address", "which has the address <address>, is down"),
    "ssh-dropped": ("ssh port", "the ssh port <port>: no answer, a firewall drops what comes"),
    "ssh-rejected": ("ssh port", "the ssh port <port>: refused, though something listens there"),
    "ports-blocked": ("ports", "no answer, a firewall drops what comes"),
    "nic-name": None,
    "no-gpu-runtime": ("gpus", "its Docker engine has no NVIDIA GPU runtime"),
    "fewer-gpus": ("gpus", "it has no such GPU: 1"),
    "data-missing": ("folders", "it has no folder /srv/<name>, which cluster.yaml mounts"),
    "ssh-modes": ("ssh folder", "sshd refuses what others may write"),
    "wrong-image": ("image", "its image <image> is "),
    "small-shm": ("shm", "its /dev/shm is 1 MiB: NCCL and data loaders fail in it"),
    "disk-full": ("disk", "its disk is full: there is no room for the image"),
}
NOTED = {"old-engine": {"engine", "image"}}


@pytest.fixture(scope="module")
def stand(lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """One cluster with its workers up, on three hosts."""
    made = new_made(lab4, tmp_path_factory.mktemp("faults"))
    made.write(CLUSTER)
    for number in (1, 2, 3):
        lab4.engine("exec", f"hvdcompose-{lab4.host(number)}", "mkdir", "-p", f"/srv/{made.name}")
    made.hvd("apply", "--follow")
    yield made
    made.clear()


def told(made: Made) -> dict:
    return json.loads(made.hvd("doctor", "--json", code=None).stdout)["data"]


def cells(data: dict, state: str) -> set[tuple[str, str]]:
    return {(check, host) for check, row in data["checks"].items() for host, cell in row.items() if cell == state}


def until_green(made: Made) -> None:
    """Wait until nothing is found; a worker may still be starting."""
    limit = time.monotonic() + 60
    while (data := told(made))["findings"]:
        assert time.monotonic() < limit, data["findings"]
        time.sleep(1)


def words_of(made: Made, name: str) -> list[str]:
    """Return the options that the fault needs to be told."""
    value = next(fault.value for fault in FAULTS if fault.name == name)
    given = {"port": str(made.port), "path": f"/srv/{made.name}", "ssh": f"{made.name}-ssh", "image": "hvd-trainer:cpu"}
    return [f"--{value}", given[value]] if value in given else []


def test_every_fault_has_a_cause_that_is_told() -> None:
    assert set(TOLD) == {fault.name for fault in FAULTS}


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_the_host_and_the_cause_are_named(stand: Made, name: str) -> None:
    host = stand.desk.host(BROKEN)
    until_green(stand)
    stand.desk.lab("break", host, name, *words_of(stand, name))
    try:
        data = told(stand)
    finally:
        stand.desk.lab("mend", host)
    expected = TOLD[name]
    assert cells(data, "FAIL") == ({(expected[0], host)} if expected else set()), data["findings"]
    assert cells(data, "note") == {(check, host) for check in NOTED.get(name, ())}, data["findings"]
    if expected:
        said = expected[1].replace("<name>", stand.name).replace("<port>", str(stand.port))
        said = said.replace("<address>", stand.desk.address(BROKEN)).replace("<image>", "hvd-trainer:cpu")
        assert any(said in finding["message"] for finding in data["findings"]), data["findings"]
        assert {finding["host"] for finding in data["findings"]} == {host}
    if name == "nic-name":
        assert data["hosts"]["interface"][host] == "enp5s0"
    until_green(stand)
