"""Faults of hosts: what a person is told, that the other hosts are well, and that the next apply mends it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from made import IMAGE, Made, errors_of, new_made

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
  <h4>}
train:
  command: [sh, -c, "echo rank $HOROVOD_RANK says hi"]
"""


@pytest.fixture(scope="module")
def module_cluster(lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    made = new_made(lab4, tmp_path_factory.mktemp("stand"))
    made.write(CLUSTER)
    yield made
    lab4.lab("up")
    made.clear()


@pytest.fixture
def stand(module_cluster: Made) -> Iterator[Made]:
    """One cluster for this file, standing; whatever a test breaks must be mended by `lab up` and `apply`."""
    module_cluster.write(CLUSTER)
    module_cluster.hvd("apply", "--follow")
    yield module_cluster
    module_cluster.desk.lab("up")


def no_launcher(made: Made) -> bool:
    """Tell whether nothing was launched: no launcher's container, in whatever state."""
    return made.docker(1, "ps", "--all", "--quiet", "--filter", f"name=^{made.container(1)}$") == ""


def socket_of(desk: Desk, number: int) -> str:
    return f"{desk.folder}/state/hvdcompose/lab/{desk.name}/{desk.host(number)}/docker.sock"


def rows_of(made: Made, code: int) -> dict[str, dict]:
    """Return what `status --json` says, by host."""
    told = json.loads(made.hvd("status", "--json", code=code).stdout)["data"]
    return {row["host"]: row for row in told}


def test_hosts_that_are_off_or_frozen_keep_nothing_from_the_others(stand: Made) -> None:
    h1, h2, frozen, off = (stand.desk.host(n) for n in range(1, 5))
    before = stand.ids(1, 2)
    stand.desk.engine("pause", f"hvdcompose-{frozen}")
    stand.desk.engine("stop", "--time", "1", f"hvdcompose-{off}")
    told = [
        f"error: {frozen}: its Docker engine does not answer within 5 s: frozen, or overloaded",
        f"error: {off}: its Docker engine does not answer at {socket_of(stand.desk, 4)}: No such file or directory",
    ]
    for command in ("plan", "apply", "run"):
        began = time.monotonic()
        failed = stand.hvd(command, code=1)
        assert time.monotonic() - began < 20
        summary = f"error: asking the hosts: 2 of 4 hosts failed (not {h1}, {h2}); nothing was launched"
        assert errors_of(failed) == [*told, summary]
        assert f"  -> docker --context {frozen} version" in failed.stderr
    assert stand.ids(1, 2) == before

    rows = rows_of(stand, 1)
    assert [row["state"].split(" (")[0] for row in rows.values()][:1] == ["Exited"]
    assert rows[h2]["state"].startswith("Up ")
    for host, line in ((frozen, told[0]), (off, told[1])):
        assert rows[host]["state"] == line.removeprefix(f"error: {host}: ")
        assert rows[host]["failed"]
    assert {row["needs"] for row in rows.values() if not row["failed"]} == {"fail: not every host answers"}

    logs = stand.hvd("logs", code=1)
    assert f"{h1}       | hvdcompose: all 4 ranks ended with exit 0".replace("       ", "     ") in logs.stdout
    assert errors_of(logs) == told

    down = stand.hvd("down", code=1)
    assert sorted(line.split() for line in down.stderr.splitlines() if line.endswith("removed")) == [
        [h1, "removed"],
        [h2, "removed"],
    ]
    summary = "error: 2 of 4 hosts could not be cleared, the others are; once they answer, again: hvdcompose down"
    assert errors_of(down) == [*told, summary]
    label = f"label=com.docker.compose.project={stand.name}"
    assert [stand.docker(n, "ps", "--all", "--quiet", "--filter", label) for n in (1, 2)] == ["", ""]

    stand.desk.lab("up")
    assert stand.docker(3, "ps", "--quiet", "--filter", label)
    stand.hvd("down")
    assert [stand.docker(n, "ps", "--all", "--quiet", "--filter", label) for n in range(1, 5)] == [""] * 4
    again = stand.hvd("apply")
    assert again.stderr.count("no worker there") == 3
    assert "launched" not in again.stderr  # that launch ran before
