"""What the primary keeps of past runs: their records and logs, read through its launcher's container or a helper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from hvdcompose.deploy.look import refuse_foreign
from hvdcompose.deploy.target import Target
from hvdcompose.deploy.watch import Stamped, split_stamp
from hvdcompose.errors import HostError
from hvdcompose.hosts.delivery import Unread, run_logs, run_records
from hvdcompose.hosts.observed import Container, observe
from hvdcompose.stack.launch import rank_hosts, rank_hosts_in

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """The records as they are written, {run: text}, and the run whose launcher lives: "" for one started by hand."""

    texts: dict[str, str]
    live: str | None


def records_of(target: Target) -> Kept:
    """Return the records of all runs that the primary keeps. Raises HostError."""
    launcher = _launcher(target)
    texts = _through(target, launcher, run_records)
    return Kept(texts, launcher.run if launcher is not None and launcher.live else None)


def logs_of(target: Target, run: str) -> dict[str, Iterator[Stamped]]:
    """Return {file: lines} of what was logged in a run, to be read once. Raises HostError."""
    found = _through(target, _launcher(target), run_logs, run)
    return {name: map(split_stamp, lines) for name, lines in sorted(found.items())}


def rank_hosts_of(target: Target) -> tuple[str, ...]:
    """Return the host of each rank of the run whose launcher's container stands, else as cluster.yaml places them."""
    from_file = rank_hosts(target.cluster)
    try:
        found = target.engines[target.primary.host].inspect("container", target.launcher)
    except HostError:
        return from_file  # whoever reads its log next is told
    return rank_hosts_in(found["Args"] or (), target.cluster) or from_file if found else from_file


def _launcher(target: Target) -> Container | None:
    primary = target.primary.host
    seen = observe(target.engines[primary], target.cluster.name)
    refuse_foreign(target, {primary: seen})
    return seen.service("launcher")


def _through(target: Target, launcher: Container | None, read: Callable[..., T], *more: str) -> T:
    """Call one of delivery's readers. Raises HostError, also where nothing can be read for want of an image."""
    primary = target.primary
    name = launcher.name if launcher else None
    try:
        return read(target.engines[primary.host], target.cluster.name, primary.image, name, *more)
    except Unread:
        raise HostError(
            primary.host,
            f"its runs cannot be read without an image, and it has no {primary.image}",
            hint="hvdcompose apply brings it",
        ) from None
