"""doctor: nothing is found on hosts that are well; what would stop a run is named, with its host, before it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from desk import Desk
from made import Made, errors_of, new_made

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1, gpus: 1, shm_size: 256m}
hosts:
  <h1>}
  <h2>}
  <h3>}
  <h4>}
train:
  command: [sh, -c, "echo rank $HOROVOD_RANK says hi"]
  volumes: {/data: <name>-data}
"""


@pytest.fixture(scope="module", autouse=True)
def image_everywhere(lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The hosts have the image: without it there is little that could be looked at."""
    made = new_made(lab4, tmp_path_factory.mktemp("images"))
    made.write(CLUSTER)
    notes = {(finding["level"], finding["check"]) for finding in told(made, 0)["findings"]}
    assert notes <= {("note", "image")}
    made.hvd("apply", "--follow")
    made.clear()


def on_host(made: Made, number: int, *words: str) -> str:
    """Run a command on a virtual host itself."""
    return made.desk.engine("exec", f"hvdcompose-{made.desk.host(number)}", *words)


def told(made: Made, code: int) -> dict:
    """Return what `doctor --json` tells."""
    return json.loads(made.hvd("doctor", "--json", code=code).stdout)["data"]


def cells(data: dict, state: str) -> set[tuple[str, str]]:
    """Return the (check, host) that are in a state."""
    return {(check, host) for check, row in data["checks"].items() for host, cell in row.items() if cell == state}


def test_hosts_that_are_well(cluster: Made) -> None:
    hosts = [cluster.desk.host(number) for number in range(1, 5)]
    cluster.write(CLUSTER)
    volumes = [cluster.docker(number, "volume", "ls", "--quiet") for number in (1, 2)]
    before = told(cluster, 0)
    assert before["findings"] == []
    assert {pair["state"] for pair in before["pairs"]} == {"ok"}
    assert len(before["pairs"]) == 12
    assert before["logins"] == {}
    assert [cluster.docker(number, "volume", "ls", "--quiet") for number in (1, 2)] == volumes
    assert [cluster.containers(number) for number in range(1, 5)] == [[]] * 4

    applied = cluster.hvd("apply", "--follow")
    assert "note" not in applied.stderr
    after = told(cluster, 0)
    assert after["findings"] == []
    assert after["logins"] == {host: {"ok": True, "reason": ""} for host in hosts[1:]}
    assert {pair["state"] for pair in after["pairs"]} == {"ok"}
    assert set(after["hosts"]["interface"].values()) == {"eth0"}
    assert cells(after, "FAIL") == cells(after, "note") == set()
    screen = cluster.hvd("doctor").stdout
    assert all(len(line) <= 80 for line in screen.splitlines())
    assert "horovod       0.28.1\n" in screen
    assert [cluster.containers(number) for number in (1, 2)] == [[cluster.container(1)], [cluster.container(2)]]


@pytest.mark.parametrize("rule", ["DROP", "REJECT --reject-with tcp-reset"])
def test_the_ssh_port_of_one_host_is_blocked(cluster: Made, rule: str) -> None:
    h1, h2, h3, h4 = (cluster.desk.host(number) for number in range(1, 5))
    cluster.write(CLUSTER)
    words = ("INPUT", "-p", "tcp", "--dport", str(cluster.port), "-j", *rule.split())
    on_host(cluster, 3, "iptables", "-I", *words)
    try:
        data = told(cluster, 4)
        refused = cluster.hvd("apply", code=4)
    finally:
        on_host(cluster, 3, "iptables", "-D", *words)
    assert cells(data, "FAIL") == {("ssh port", h3)}
    assert cells(data, "note") == set()
    (finding,) = data["findings"]
    assert (finding["host"], finding["peers"]) == (h3, [h1, h2, h4])
    addresses = ",".join(cluster.desk.address(number) for number in (1, 2, 4))
    assert f"iptables -I INPUT -p tcp -s {addresses} -j ACCEPT" in finding["remedy"]
    why = "no answer, a firewall drops" if rule == "DROP" else "refused, though something listens there"
    assert f"from {h1}, {h2}, {h4} to it, the ssh port {cluster.port}: {why}" in errors_of(refused)[0]
    assert [cluster.containers(number) for number in range(1, 5)] == [[]] * 4
    assert "all 4 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


def test_only_the_ssh_port_of_one_host_is_open(cluster: Made) -> None:
    h2 = cluster.desk.host(2)
    cluster.write(CLUSTER)
    cluster.hvd("apply", "--follow")
    first = ("INPUT", "-p", "tcp", "--syn", "!", "--dport", str(cluster.port), "-j", "DROP")
    on_host(cluster, 2, "iptables", "-I", *first)
    try:
        data = told(cluster, 4)
    finally:
        on_host(cluster, 2, "iptables", "-D", *first)
    assert cells(data, "FAIL") == {("ports", h2)}
    assert cells(data, "note") == set()
    assert data["logins"][h2] == {"ok": True, "reason": ""}
    assert told(cluster, 0)["findings"] == []


def test_other_names_for_the_nic_are_no_fault(cluster: Made) -> None:
    """And docker0 has one address on every host: nothing is misled by it."""
    h2 = cluster.desk.host(2)
    cluster.write(CLUSTER.replace("<h2>}", "<h2>, interface: eth0}"))
    renames = "ip link set eth0 down; ip link set eth0 name {}; ip link set {} up; {}"
    address = f"ip route add default via {cluster.desk.subnet.rpartition('.')[0]}.1 || true"
    on_host(cluster, 2, "sh", "-c", renames.format("enp9s0", "enp9s0", address))
    try:
        data = told(cluster, 4)
        assert cells(data, "FAIL") == {("address", h2)}
        (finding,) = data["findings"]
        assert "no interface eth0 with an IPv4 address there; found" in finding["message"]
        assert finding["remedy"].startswith(f"hosts.{h2}: interface: enp9s0;")
        cluster.write(CLUSTER)
        data = told(cluster, 0)
        assert data["findings"] == []
        assert data["hosts"]["interface"][h2] == "enp9s0"
        assert "all 4 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout
    finally:
        back = renames.format("eth0", "eth0", address).replace("set eth0 down", "set enp9s0 down")
        on_host(cluster, 2, "sh", "-c", back.replace("set eth0 name", "set enp9s0 name"))


def test_a_host_that_is_frozen_hides_nobody_and_costs_little(cluster: Made) -> None:
    h1, h2, h3, h4 = (cluster.desk.host(number) for number in range(1, 5))
    cluster.write(CLUSTER)
    began = time.monotonic()
    told(cluster, 0)
    usual = time.monotonic() - began
    cluster.desk.engine("pause", f"hvdcompose-{h3}")
    try:
        began = time.monotonic()
        data = told(cluster, 4)
        took = time.monotonic() - began
    finally:
        cluster.desk.engine("unpause", f"hvdcompose-{h3}")
    assert cells(data, "FAIL") == {("reached", h3)}
    assert {(pair["from"], pair["to"]) for pair in data["pairs"]} == {
        (one, other) for one in (h1, h2, h4) for other in (h1, h2, h4) if one != other
    }
    assert took - usual < 6


@pytest.fixture
def beside(cluster: Made, odd: Desk) -> Iterator[str]:
    """The host with a rootless engine, in the second place of cluster.yaml."""
    yield f"{odd.host(2)}: {{address: {odd.address(2)}"
    cluster.write(CLUSTER)


def test_a_rootless_host_is_refused_in_words_that_a_newcomer_understands(cluster: Made, odd: Desk, beside: str) -> None:
    h1 = cluster.desk.host(1)
    cluster.write(CLUSTER.replace("<h2>", beside).replace("gpus: 1, ", ""))
    for command in ("doctor", "apply"):
        began = time.monotonic()
        refused = cluster.hvd(command, code=4)
        assert time.monotonic() - began < 10
        shown = " ".join((refused.stdout + refused.stderr).split())
        assert f"{odd.host(2)}: its Docker " in shown
        assert "is rootless, and its host network is not the machine's: sshd would listen where no other" in shown
        assert f"point its context ({odd.host(2)}) to a rootful engine" in shown
    data = told(cluster, 4)
    assert cells(data, "FAIL") == {("rootful", odd.host(2))}
    assert cluster.containers(1) == []
    assert data["checks"]["rootful"][h1] == "ok"


def test_what_was_well_is_not_looked_at_again(
    cluster: Made, recording_docker: tuple[dict[str, str], Callable[[], list[str]]]
) -> None:
    """One call more for the host where a container is made; all of it where something changed."""
    h1, h2 = cluster.desk.host(1), cluster.desk.host(2)
    text = CLUSTER.replace("  <h3>}\n  <h4>}\n", "").replace("<name>-data", "/srv")
    cluster.write(text)
    env, calls = recording_docker
    looks: list[list[str]] = []
    for words in (("apply", "--follow"), ("apply",), ("run",), ("apply",)):
        before = len(calls())
        if len(looks) == 3:
            cluster.edit("256m", "257m")
        cluster.hvd(*words, **env)
        looks.append([call.split()[1] for call in calls()[before:] if " run --rm " in call])
    assert [sorted(look) for look in looks] == [[h1, h2], [], [h1], [h1, h2]]
