"""What is known of a cluster before a run: of this machine, of every host, and between them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hvdcompose.config.model import Cluster, Host
from hvdcompose.errors import HostError, HvdError
from hvdcompose.hosts.images import ImageFacts
from hvdcompose.hosts.observed import Container, EngineFacts
from hvdcompose.hosts.probe import Login, ProbeFacts, Reach, Refusal
from hvdcompose.stack.launch import hosts_of_run

ROOTLESS_HOST_NETWORK = (29, 5)  # the first whose rootless host network is the machine's (moby pull request 47103)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (29, 5, 1) for "29.5.1-rc.2"; () where there are none."""
    numbers: list[int] = []
    for part in text.strip().removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def host_network_is_private(engine: EngineFacts) -> bool:
    """Tell whether an engine's host network is known not to be the machine's."""
    return engine.rootless and version_of(engine.version) < ROOTLESS_HOST_NETWORK


@dataclass(frozen=True)
class HostFacts:
    """One host: how cluster.yaml wants it, and what it answered; None for what was not asked, or not answered."""

    host: Host
    error: HostError | None = None  # why it could not be asked
    engine: EngineFacts | None = None
    image: ImageFacts | None = None
    image_asked: bool = False
    worker: Container | None = None  # of this cluster
    refusals: tuple[Refusal, ...] = ()
    probe: ProbeFacts | None = None
    skew: float | None = None  # seconds its clock is ahead of this machine's
    taken: tuple[tuple[str, str], ...] = ()  # what another cluster has of it, in words, and what to do about it
    worker_gpus: int | None = None  # GPUs that a worker which stands still sees

    @property
    def worker_runs(self) -> bool:
        """True where the cluster's worker runs, and should answer."""
        return self.worker is not None and self.worker.state == "running"

    @property
    def reserves_gpus(self) -> bool:
        """True where cluster.yaml gives the containers GPUs."""
        return self.host.gpus.kind != "none"


@dataclass(frozen=True)
class Facts:
    """Everything the rules look at. `hosts` keeps the order of cluster.yaml."""

    cluster: Cluster
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)
    compose: str | None = None  # version of this machine's `docker compose`, "" without one, None: not asked
    client_image: ImageFacts | None = None
    image_comes: frozenset[str] = frozenset()  # hosts without the image, to which apply brings it
    image_differs: frozenset[str] = frozenset()  # hosts with another one, which apply replaces
    image_refused: HvdError | None = None  # why the hosts cannot get one and the same image
    reaches: Mapping[tuple[str, str], tuple[Reach, ...]] = field(default_factory=dict)  # (from, to): ssh port first
    logins: Mapping[str, Login] = field(default_factory=dict)  # of the primary, to each running worker

    @property
    def engines(self) -> dict[str, EngineFacts]:
        """What the engines that answer say of themselves."""
        return {name: host.engine for name, host in self.hosts.items() if host.engine is not None}

    @property
    def contexts(self) -> dict[str, str]:
        """The Docker context of every host."""
        return {name: host.host.context for name, host in self.hosts.items()}

    def probed(self) -> Iterator[tuple[str, HostFacts, ProbeFacts]]:
        """Yield (name, host, what its helper container found) of every host that has one."""
        for name, host in self.hosts.items():
            if host.probe is not None:
                yield name, host, host.probe

    def ranks(self, name: str) -> int:
        """Return how many ranks a host gets."""
        return {host.name: count for host, count in hosts_of_run(self.cluster)}.get(name, 0)
