"""Rules over the network: the address is the container's own, and every host reaches every other on any port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hvdcompose.doctor.facts import Facts
from hvdcompose.doctor.rule import At, rule
from hvdcompose.hosts.probe import ProbeFacts, Reach

TITLE = "Network"
LET_IN = (
    "on {host}, let the other hosts in on all TCP ports: iptables -I INPUT -p tcp -s {addresses} -j ACCEPT\n"
    "with ufw: {ufw}\n"
    "with firewalld: firewall-cmd --permanent --zone=trusted {sources} && firewall-cmd --reload"
)


def listed(probe: ProbeFacts) -> str:
    """Return all interfaces with their addresses."""
    return ", ".join(f"{name} {' '.join(nic.addresses)}" for name, nic in sorted(probe.interfaces.items()))


@rule("address", needs="probe", remedy="write the IP address in cluster.yaml: hosts.{host}: address: IP")
def addresses_resolve(facts: Facts) -> Iterator[At]:
    """A host's `address` resolves to IPv4 on that host: Horovod's launcher knows no other (case N09)."""
    for name, host, probe in facts.probed():
        if probe.unresolved:
            yield At(name, f"address {host.host.address} does not resolve to IPv4 there: {probe.unresolved}")


def _is_loopback(facts: Facts, name: str, probe: ProbeFacts) -> bool:
    written = facts.hosts[name].host.address
    return probe.resolved.startswith("127.") and written != probe.resolved and len(facts.hosts) > 1


@rule("address", needs="probe", remedy="write the IP address in cluster.yaml: hosts.{host}: address: IP")
def addresses_lead_outside(facts: Facts) -> Iterator[At]:
    """A host's `address` is not the loopback to itself, as Debian's /etc/hosts has it (the neighbours of S01)."""
    for name, host, probe in facts.probed():
        if _is_loopback(facts, name, probe) and not host.host.interface:
            message = (
                f"address {host.host.address} is {probe.resolved} to itself (/etc/hosts?): no other host reaches that"
            )
            yield At(name, message, found=probe.resolved)


@rule(
    "address",
    needs="probe",
    remedy="write the address that {host} has in cluster.yaml: hosts.{host}: address: IP; if it is forwarded to this "
    "host, name its NIC as well: interface: eth0",
)
def addresses_are_the_containers_own(facts: Facts) -> Iterator[At]:
    """A host's `address` is on an interface that the run's own container sees (cases N01, S01, N02).

    It is not where "host" networking is not the machine's (a rootless engine, Docker Desktop, a virtual machine), or
    where the address is another machine's.
    """
    for name, host, probe in facts.probed():
        if probe.resolved and not probe.owner and not host.host.interface and not _is_loopback(facts, name, probe):
            written = host.host.address
            told = written if written == probe.resolved else f"{written}, there {probe.resolved},"
            why = " (its engine is rootless)" if host.engine and host.engine.rootless else ""
            message = f"address {told} is on no interface of its containers{why}; found {listed(probe)}"
            yield At(name, message, found=listed(probe), wanted=probe.resolved)


@rule("address", needs="probe", remedy="on {host}: ip link set {interface} up; is its cable in, its network there?")
def interfaces_are_up(facts: Facts) -> Iterator[At]:
    """The interface that has the host's `address` has a link (the neighbours of N01)."""
    for name, _, probe in facts.probed():
        owner = probe.owner
        if owner and not probe.interfaces[owner].up:
            yield At(name, f"its {owner}, which has the address {probe.resolved}, is down", {"interface": owner})


@rule("address", needs="probe", remedy="hosts.{host}: interface: {owner}; or leave `interface` out: it is found")
def interfaces_exist(facts: Facts) -> Iterator[At]:
    """The `interface` that cluster.yaml names is there, with an IPv4 address (cases N03, N09)."""
    for name, host, probe in facts.probed():
        wanted = host.host.interface
        if wanted and wanted not in probe.interfaces:
            owner = probe.owner or next((nic for nic in probe.interfaces if nic != "lo"), "eth0")
            message = f"no interface {wanted} with an IPv4 address there; found {listed(probe)}"
            yield At(name, message, {"owner": owner}, found=listed(probe), wanted=wanted)


@rule("address", needs="probe", remedy="hosts.{host}: interface: {owner}; or leave `interface` out: it is found")
def interfaces_own_the_address(facts: Facts) -> Iterator[At]:
    """The `interface` that cluster.yaml names owns the host's `address`, where one does (the neighbours of N03)."""
    for name, host, probe in facts.probed():
        wanted = host.host.interface
        if wanted in probe.interfaces and probe.owner not in ("", "lo", wanted):
            message = f"interface {wanted} is not the one that has the address {probe.resolved}: that is {probe.owner}"
            yield At(name, message, {"owner": probe.owner}, found=str(wanted), wanted=probe.owner)


@rule("address", needs="probe", remedy="hosts.{host}: interface: the NIC that leads to the other hosts")
def interfaces_are_no_bridges(facts: Facts) -> Iterator[At]:
    """The `interface` has an address of its own: docker0 and virbr0 have the same on every machine (case N02)."""
    counted = Counter(
        address for _, _, probe in facts.probed() for nic in probe.interfaces.values() for address in nic.addresses
    )
    for name, host, probe in facts.probed():
        nic = probe.interfaces.get(host.host.interface or "")
        shared = [address for address in nic.addresses if counted[address] > 1] if nic else []
        if shared:
            message = f"interface {host.host.interface} has the address {shared[0]}, and another host has it too"
            yield At(name, message, found=shared[0])


@rule(
    "mtu", level="note", needs="probe", remedy="give the NICs of all hosts one MTU: ip link set {interface} mtu {mtu}"
)
def mtus_are_the_same(facts: Facts) -> Iterator[At]:
    """The NICs between the hosts have one MTU: else large packets may be lost on the way (the neighbours of N05)."""
    mtus = {name: probe.interfaces[probe.owner].mtu for name, _, probe in facts.probed() if probe.owner}
    usual = Counter(mtus.values()).most_common(1)[0][0] if mtus else 0
    for name, mtu in mtus.items():
        probe = facts.hosts[name].probe
        if mtu != usual and probe is not None:
            message = f"its {probe.owner} has MTU {mtu}, the others' {usual}"
            yield At(name, message, {"interface": probe.owner, "mtu": usual}, found=str(mtu), wanted=str(usual))


# --- between hosts


def can_be_called(facts: Facts, name: str) -> bool:
    """Tell whether calls to and from a host say anything: its address is on an interface of its own, which is up."""
    host = facts.hosts[name]
    if host.probe is None:
        return False
    nic = host.probe.interfaces.get(host.probe.owner) or host.probe.interfaces.get(host.host.interface or "")
    return nic is not None and nic.up


def bad(facts: Facts, target: str, reach: Reach) -> bool:
    """Tell whether a call did not reach what should have answered."""
    probe, port = facts.hosts[target].probe, facts.cluster.ssh.port
    if probe is not None and reach.port == port and not probe.ssh_free:
        return reach.result not in ("ssh", "ok", "other", "silent")  # something holds it, which `ssh port` tells
    return reach.result != "ok"


@dataclass(frozen=True)
class Broken:
    """Calls that failed in one way: to one host from several, or from one host to several."""

    host: str  # the one that they have in common
    peers: tuple[str, ...]
    ports: tuple[int, ...]
    outgoing: bool
    detail: str = ""


def broken(facts: Facts, results: Collection[str], *, ssh: bool) -> list[Broken]:
    """Return the calls that came to one of these ends, on the ssh port or on the others, by the host they share."""
    port = facts.cluster.ssh.port
    failed: dict[tuple[str, str], list[Reach]] = {}
    for (source, target), reaches in facts.reaches.items():
        if not (can_be_called(facts, source) and can_be_called(facts, target)):
            continue
        found = [
            reach for reach in reaches
            if (reach.port == port) == ssh and reach.result in results and bad(facts, target, reach)
        ]  # fmt: skip
        if found:
            failed[source, target] = found
    sources = {source for source, _ in failed}
    targets = {target for _, target in failed}
    outgoing = len(sources) == 1 and len(targets) > 1
    grouped: dict[str, list[tuple[str, list[Reach]]]] = {}
    for (source, target), found in failed.items():
        one, other = (source, target) if outgoing else (target, source)
        grouped.setdefault(one, []).append((other, found))
    return [
        Broken(
            host,
            tuple(peer for peer, _ in entries),
            tuple(sorted({reach.port for _, found in entries for reach in found})),
            outgoing,
            next((reach.detail for _, found in entries for reach in found if reach.detail), ""),
        )
        for host, entries in grouped.items()
    ]


def rule_words(facts: Facts, one: Broken) -> Mapping[str, str]:
    """Return the words of the firewall rules that let the callers in."""
    addresses = [facts.hosts[name].host.address for name in one.peers]
    ufw = "; ".join(f"ufw allow proto tcp from {address}" for address in addresses)
    sources = " ".join(f"--add-source={address}" for address in addresses)
    return {"addresses": ",".join(addresses), "ufw": ufw, "sources": sources}


def _used(facts: Facts, one: Broken) -> bool:
    """Tell whether a run needs these calls on the ssh port: only the launcher logs in, to the workers."""
    primary = facts.cluster.primary_name
    return one.host == primary if one.outgoing else primary in one.peers


def _between(facts: Facts, results: Collection[str], *, ssh: bool, what: str, used: bool = True) -> Iterator[At]:
    for one in broken(facts, results, ssh=ssh):
        if ssh and _used(facts, one) != used:
            continue
        peers = ", ".join(one.peers)
        ports = f"port {one.ports[0]}" if len(one.ports) == 1 else f"ports {', '.join(str(port) for port in one.ports)}"
        name = f"the ssh {ports}" if ssh else f"TCP {ports}"
        way = f"from it to {peers}" if one.outgoing else f"from {peers} to it"
        detail = f" ({one.detail})" if one.detail else ""
        yield At(one.host, f"{way}, {name}: {what}{detail}", rule_words(facts, one), found=what, peers=one.peers)


DROPPED = "no answer, a firewall drops what comes"
REJECTED = "refused, though something listens there: a firewall rejects it, or it is another machine's address"
NO_ROUTE = "no route, or a firewall that says so"
CLOSED = "accepted, then closed before a word: what takes the connection is not the worker (a published port, a proxy)"
STALLED = "it begins, then stalls: large packets are lost on the way (an MTU that differs, a tunnel)"
OTHER = "something else answers"


@rule("ssh port", needs="ports", remedy=LET_IN)
def ssh_port_is_let_through(facts: Facts) -> Iterator[At]:
    """No firewall drops what the other hosts send to the ssh port of cluster.yaml (case N04)."""
    yield from _between(facts, ("timeout",), ssh=True, what=DROPPED)


@rule("ssh port", needs="ports", remedy=LET_IN)
def ssh_port_is_not_rejected(facts: Facts) -> Iterator[At]:
    """Nothing refuses the other hosts on the ssh port where a helper or the worker listens (cases N04, N01)."""
    yield from _between(facts, ("refused",), ssh=True, what=REJECTED)
    yield from _between(facts, ("no route",), ssh=True, what=NO_ROUTE)


@rule("ssh port", needs="ports", remedy="hosts.{host}: address: the machine's own; or another `port` under `ssh`")
def ssh_port_is_answered_by_the_host(facts: Facts) -> Iterator[At]:
    """Who calls a host's ssh port reaches that host: no proxy that closes again, no other machine (cases S02, N01)."""
    yield from _between(facts, ("closed",), ssh=True, what=CLOSED)
    yield from _between(facts, ("other", "ssh", "silent"), ssh=True, what=OTHER)


@rule("ssh port", level="note", needs="ports", remedy=LET_IN)
def ssh_port_is_open_everywhere(facts: Facts) -> Iterator[At]:
    """The ssh port is open between all hosts. Only the launcher's logins to the workers need it (the rules above)."""
    for results, what in ((("timeout",), DROPPED), (("refused",), REJECTED), (("no route",), NO_ROUTE)):
        yield from _between(facts, results, ssh=True, what=what, used=False)


@rule("ports", needs="ports", remedy=LET_IN)
def random_ports_are_let_through(facts: Facts) -> Iterator[At]:
    """All TCP ports are open between the hosts: Horovod, Gloo, NCCL and MPI draw theirs at random (case N05).

    Three are tried, spread over the range, in both directions of every pair.
    """
    yield from _between(facts, ("timeout",), ssh=False, what=DROPPED)


@rule("ports", needs="ports", remedy=LET_IN)
def random_ports_are_not_rejected(facts: Facts) -> Iterator[At]:
    """Nothing refuses connections between the hosts where a helper listens (case N05)."""
    yield from _between(facts, ("refused",), ssh=False, what=REJECTED)
    yield from _between(facts, ("no route",), ssh=False, what=NO_ROUTE)


@rule("ports", needs="ports", remedy="hosts.{host}: address: the machine's own, on the network of the other hosts")
def random_ports_are_answered_by_the_host(facts: Facts) -> Iterator[At]:
    """Who calls a host's random ports reaches that host, not another machine or a proxy (the neighbours of N05)."""
    yield from _between(facts, ("closed",), ssh=False, what=CLOSED)
    yield from _between(facts, ("other", "ssh", "silent"), ssh=False, what=OTHER)


@rule(
    "mtu",
    needs="ports",
    remedy="give all NICs and tunnels between the hosts one MTU: ip link set NIC mtu 1400 tries it",
)
def large_packets_arrive(facts: Facts) -> Iterator[At]:
    """64 KiB sent at once arrive: a path that loses large packets lets ssh begin and training hang (near N05)."""
    yield from _between(facts, ("stalled",), ssh=False, what=STALLED)


@rule(
    "rdma", level="note", needs="probe", remedy='`env: {{NCCL_IB_DISABLE: "1"}}` tells NCCL so; the run works without'
)
def rdma_is_not_used(facts: Facts) -> Iterator[At]:
    """An RDMA card (InfiniBand, RoCE) that the containers are not given stays idle: training goes over TCP (N10)."""
    for name, host, probe in facts.probed():
        told = {**facts.cluster.train.env, **host.host.env}
        if probe.rdma_cards and not probe.rdma_device and told.get("NCCL_IB_DISABLE") != "1":
            yield At(name, f"its RDMA card {probe.rdma_cards[0]} is not used: training goes over TCP")


RULES = (
    addresses_resolve,
    addresses_lead_outside,
    addresses_are_the_containers_own,
    interfaces_are_up,
    interfaces_exist,
    interfaces_own_the_address,
    interfaces_are_no_bridges,
    ssh_port_is_let_through,
    ssh_port_is_not_rejected,
    ssh_port_is_answered_by_the_host,
    ssh_port_is_open_everywhere,
    random_ports_are_let_through,
    random_ports_are_not_rejected,
    random_ports_are_answered_by_the_host,
    large_packets_arrive,
    mtus_are_the_same,
    rdma_is_not_used,
)
