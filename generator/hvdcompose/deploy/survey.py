"""Look at all hosts for a person: what stands and what apply would do, and the logs of all containers in one stream."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hvdcompose.deploy.look import Snapshots, look, snapshots
from hvdcompose.deploy.reconcile import Plan, live_run
from hvdcompose.deploy.target import Target
from hvdcompose.deploy.watch import TICK_SECONDS, Entry, Stamped, follow_stamped, split_stamp
from hvdcompose.errors import HostsFailed, Refused
from hvdcompose.hosts.claim import Claim, standing_claim
from hvdcompose.hosts.delivery import code_versions, code_volume
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import Outcome, arriving, begin, on_all, values
from hvdcompose.hosts.observed import Observed, ranks_in

WHO = ""  # the name under which the primary is asked for the claim, beside the hosts


@dataclass(frozen=True)
class Traces:
    """What may have been left on a host: commands of ranks that run there, volumes of code that are half full."""

    ranks: tuple[str, ...] = ()
    half_full: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """What every host answered; the plan that follows, or what apply would do instead of one, in words.

    traces: of the hosts that answered; claim: who changes the cluster now.
    """

    hosts: Mapping[str, Outcome[Observed]]
    plan: Plan | None
    instead: str = ""
    refusal: Refused | None = None
    gone: Mapping[str, Outcome[Observed]] = field(default_factory=dict)
    traces: Mapping[str, Traces] = field(default_factory=dict)
    claim: Claim | None = None


def survey(target: Target) -> Survey:
    """Ask all hosts; without every host's answer there is no plan, and what stands is told all the same."""
    taken = snapshots(target)
    searching = begin(lambda: _search(target, taken))
    plan, instead, refusal = _plan(target, taken)
    traces, claim = searching.result()
    return Survey(taken.hosts, plan, instead, refusal, taken.gone, traces, claim)


def _plan(target: Target, taken: Snapshots) -> tuple[Plan | None, str, Refused | None]:
    try:
        return look(target, taken=taken).plan, "", None
    except HostsFailed:
        return None, "fail: not every host answers", None
    except Refused as refusal:
        return None, "refuse", refusal


def _search(target: Target, taken: Snapshots) -> tuple[dict[str, Traces], Claim | None]:
    """Ask the hosts that answered for what may have been left there, and the primary for who is at work."""
    answered = values(taken.hosts)
    live = live_run({**values(taken.gone), **answered})

    def search(name: str) -> Traces | Claim | None:
        if name == WHO:
            return standing_claim(target.engines[target.primary.host], target.cluster.name)
        engine, worker = target.engines[name], answered[name].service("worker")
        ranks = ranks_in(engine, worker.id) if worker and worker.live and not live else ()
        return Traces(ranks, _half_full(engine, target.cluster.name))

    told = values(on_all([*answered, *([WHO] if target.primary.host in answered else [])], search))
    claim = told.pop(WHO, None)
    found = {name: traces for name, traces in told.items() if isinstance(traces, Traces)}
    return found, claim if isinstance(claim, Claim) else None


def _half_full(engine: Engine, cluster: str) -> tuple[str, ...]:
    there = code_versions(engine, cluster)
    return tuple(code_volume(cluster, digest) for digest in sorted(there.volumes - there.whole))


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


def merged(streams: Mapping[str, Iterable[Stamped]]) -> Iterator[tuple[str, Stamped]]:
    """Yield (name, line) of several logs, each in the order of its timestamps, as one; none is read ahead. Pure."""

    def numbered(name: str, lines: Iterable[Stamped]) -> Iterator[tuple[str, int, str, str]]:
        for at, (stamp, text) in enumerate(lines):
            yield stamp, at, name, text

    for stamp, _, name, text in heapq.merge(*(numbered(name, lines) for name, lines in streams.items())):
        yield name, (stamp, text)


def coming_logs(target: Target, after: Mapping[str, str]) -> Iterator[Entry | None]:
    """Yield the lines of hosts' containers as they come, None while nothing does.

    after: {host: the timestamp of the last line that was read there already, "" for none}.
    """

    def stream(name: str) -> Iterator[Stamped]:
        return follow_stamped(target.engines[name], target.plans[name].container, after=after[name])

    return arriving(after, stream, tick=TICK_SECONDS)
