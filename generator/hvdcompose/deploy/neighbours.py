"""Other clusters on the same hosts: which of a host's ports and GPUs they have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hvdcompose.hosts.observed import Container, Observed
from hvdcompose.stack.plan import HostPlan

ANY = "any "  # "any 2": two of a host's GPUs, whichever
EVERYTHING = frozenset(("all", "nvidia.com/gpu=all"))


@dataclass(frozen=True)
class Conflict:
    """Something of a host that another cluster's container has, and what to change in cluster.yaml."""

    host: str
    what: str
    container: Container
    remedy: str

    def __str__(self) -> str:
        other = self.container
        return f"{self.host}: {self.what} taken by cluster {other.cluster}, container {other.name}"


def conflicts(plans: Mapping[str, HostPlan], observed: Mapping[str, Observed], hosts: Iterable[str]) -> list[Conflict]:
    """Return what other clusters have of what is to be started on `hosts`."""
    return [
        conflict
        for name in hosts
        for other in observed[name].others
        if other.live
        for conflict in (_port(plans[name], other), _gpus(plans[name], other))
        if conflict is not None
    ]


def _port(plan: HostPlan, other: Container) -> Conflict | None:
    """Two sshds cannot listen on one port; launchers listen on none."""
    if plan.role != "worker" or other.service != "worker" or other.port != str(plan.ssh_port):
        return None
    remedy = f"ssh.port: another one; or take {other.cluster} down"
    return Conflict(plan.host, f"port {plan.ssh_port} is", other, remedy)


def _gpus(plan: HostPlan, other: Container) -> Conflict | None:
    """GPUs overlap for sure where one has all of them, or both have the same by name; counts may fit side by side."""
    ours, theirs = _names(plan.gpus_label), _names(other.gpus)
    if not ours or not theirs:
        return None
    shared = {name for name in ours & theirs if not name.startswith(ANY)}
    if not shared and not (ours | theirs) & EVERYTHING:
        return None
    named = ", ".join(sorted(shared - EVERYTHING))
    what = f"GPU {named} is" if named else "the GPUs are"
    remedy = f"hosts.{plan.host}.gpus: ids that {other.cluster} does not use; or take {other.cluster} down"
    return Conflict(plan.host, what, other, remedy)


def _names(label: str) -> frozenset[str]:
    return frozenset(filter(None, label.split(",")))
