"""Whose turn it is: a plan is carried out while no other client changes the cluster, and from what stands then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from hvdcompose.deploy.look import Seen, Snapshots, must, snapshots
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError
from hvdcompose.hosts.claim import claimed, drop_stale
from hvdcompose.hosts.fanout import values
from hvdcompose.hosts.observed import Observed


class Ask(Protocol):
    """`look` with all but the answers of the hosts."""

    def __call__(self, *, taken: Snapshots) -> Seen:
        """Look once more, from these answers."""


@contextlib.contextmanager
def turn(target: Target, seen: Seen, command: str, again: Ask, *, take_over: bool = False) -> Iterator[Seen]:
    """Hold the claim to the cluster while a plan is carried out; yield what is to be done, as it stands by then.

    With nothing to do, or a live run in the way, there is no claim, and no question but after a client that was
    killed. again: look once more, used where another client did something since. Raises Refused while another client
    holds the claim, HostsFailed.
    """
    engine = target.engines[target.primary.host]
    if seen.plan.empty or seen.plan.disturbs:
        drop_stale(target.cluster, engine)
        yield seen
        return
    with claimed(target.cluster, engine, command, take_over=take_over):
        taken = snapshots(target)
        must(taken.hosts, "asking the hosts")
        changed = _what(values(taken.hosts)) != _what(seen.observed) or _what(values(taken.gone)) != _what(seen.gone)
        yield again(taken=taken) if changed else seen


@contextlib.contextmanager
def turn_to_clear(target: Target, command: str, *, take_over: bool = False) -> Iterator[None]:
    """Hold the claim while the cluster is taken down; where the primary does not answer, nobody else can hold it."""
    engine = target.engines[target.primary.host]
    with contextlib.ExitStack() as held:
        with contextlib.suppress(HostError):
            engine.reach()
            held.enter_context(claimed(target.cluster, engine, command, take_over=take_over))
        yield


def _what(observed: Mapping[str, Observed]) -> dict[str, set[tuple[str, str]]]:
    """Return which containers there are and in which state: what a client changes. A new one has a new id."""
    return {host: {(c.id, c.state) for c in seen.containers} for host, seen in observed.items()}
