"""Look at all hosts for a person: what stands and what apply would do, and the logs of all containers in one stream."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hvdcompose.deploy.look import look, snapshots
from hvdcompose.deploy.reconcile import Plan
from hvdcompose.deploy.target import Target
from hvdcompose.deploy.watch import TICK_SECONDS, Entry, Stamped, follow_stamped, split_stamp
from hvdcompose.errors import HostsFailed, Refused
from hvdcompose.hosts.fanout import Outcome, arriving, on_all
from hvdcompose.hosts.observed import Observed


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


def past_logs(target: Target, hosts: list[str], *, tail: str) -> Iterator[Entry]:
    """Yield the lines of all hosts' containers so far, in the order of Docker's timestamps, then the errors."""

    def read(name: str) -> list[Stamped]:
        target.engines[name].reach()
        told = target.engines[name].all_logs(target.plans[name].container, tail=tail)
        return sorted((split_stamp(line) for line in told), key=lambda line: line[0])

    outcomes = on_all(hosts, read)
    yield from merged({name: outcome.value or [] for name, outcome in outcomes.items()})
    for name, outcome in outcomes.items():
        if outcome.error is not None:
            yield name, outcome.error


def merged(streams: Mapping[str, list[Stamped]]) -> Iterator[tuple[str, Stamped]]:
    """Yield (host, line) of several logs, each in the order of its timestamps, as one. Pure."""
    numbered = ([(stamp, at, name, text) for at, (stamp, text) in enumerate(lines)] for name, lines in streams.items())
    for stamp, _, name, text in heapq.merge(*numbered):
        yield name, (stamp, text)


def coming_logs(target: Target, after: Mapping[str, str]) -> Iterator[Entry | None]:
    """Yield the lines of hosts' containers as they come, None while nothing does.

    after: {host: the timestamp of the last line that was read there already, "" for none}.
    """

    def stream(name: str) -> Iterator[Stamped]:
        return follow_stamped(target.engines[name], target.plans[name].container, after=after[name])

    return arriving(after, stream, tick=TICK_SECONDS)
