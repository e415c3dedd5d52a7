"""Look at all hosts for a person: what stands and what apply would do, and the logs of all containers in one stream."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hvdcompose.deploy.look import look, snapshots
from hvdcompose.deploy.reconcile import Plan
from hvdcompose.deploy.target import Target
from hvdcompose.deploy.watch import follow_stamped, split_stamp
from hvdcompose.errors import HostError, HostsFailed, Refused
from hvdcompose.hosts.fanout import Outcome, arriving, on_all
from hvdcompose.hosts.observed import Observed

Entry = tuple[str, str | HostError]


@dataclass(frozen=True)
class Survey:
    """What every host answered; the plan that follows, or what apply would do instead of one, in words."""

    hosts: Mapping[str, Outcome[Observed]]
    plan: Plan | None
    instead: str = ""
    refusal: Refused | None = None


def survey(target: Target) -> Survey:
    """Ask all hosts; without every host's answer there is no plan, and what stands is told all the same."""
    taken = snapshots(target)
    try:
        return Survey(taken.hosts, look(target, taken=taken).plan)
    except HostsFailed:
        return Survey(taken.hosts, None, "fail: not every host answers")
    except Refused as refusal:
        return Survey(taken.hosts, None, "refuse", refusal)


def merged_logs(target: Target, hosts: list[str], *, follow: bool, tail: str) -> Iterator[Entry]:
    """Yield (host, line) of all hosts' containers; an error in a line's place where a host does not answer.

    Without `follow` the lines are merged by Docker's timestamps; with it they come as they arrive.
    """
    if follow:
        yield from _following(target, hosts, tail)
        return

    def read(name: str) -> list[tuple[str, str]]:
        target.engines[name].reach()
        told = target.engines[name].all_logs(target.plans[name].container, tail=tail)
        return sorted((split_stamp(line) for line in told), key=lambda line: line[0])

    outcomes = on_all(hosts, read)
    streams = [
        [(stamp, at, name, text) for at, (stamp, text) in enumerate(outcome.value or [])]
        for name, outcome in outcomes.items()
    ]
    for _, _, name, text in heapq.merge(*streams):
        yield name, text
    for name, outcome in outcomes.items():
        if outcome.error is not None:
            yield name, outcome.error


def _following(target: Target, hosts: list[str], tail: str) -> Iterator[Entry]:
    def stream(name: str) -> Iterator[str]:
        engine, container = target.engines[name], target.plans[name].container
        engine.reach()
        engine.all_logs(container, tail="0")  # raises where there is no such container
        return (text for _, text in follow_stamped(engine, container, tail=tail))

    return arriving(hosts, stream)
