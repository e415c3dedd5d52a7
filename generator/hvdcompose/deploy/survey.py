"""Look at all hosts for a person: the rows of `status`, and the logs of all containers in one stream."""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Iterator

from hvdcompose.deploy.look import HostsFailed, look, snapshots
from hvdcompose.deploy.reconcile import Plan
from hvdcompose.deploy.target import Target
from hvdcompose.deploy.watch import follow_stamped, split_stamp
from hvdcompose.errors import HostError, Refused
from hvdcompose.hosts.fanout import on_all
from hvdcompose.report.status import Row, row

Entry = tuple[str, str | HostError]


def survey(target: Target) -> tuple[list[Row], Refused | None]:
    """Return one row per host, those included that do not answer; and why apply would refuse, if it would."""
    taken = snapshots(target)
    plan: Plan | None = None
    refusal: Refused | None = None
    # without every host's answer there is no plan, and the rows say what stands all the same
    try:
        plan = look(target, taken=taken).plan
    except HostsFailed:
        pass
    except Refused as refused:
        refusal = refused
    unplanned = "refuse" if refusal else "fail: not every host answers"
    return [row(host, taken.hosts[host.host], plan, unplanned) for host in target.plans.values()], refusal


def merged_logs(target: Target, hosts: list[str], *, follow: bool, tail: str) -> Iterator[Entry]:
    """Yield (host, line) of all hosts' containers; an error in a line's place where a host does not answer.

    Without `follow` the lines are merged by Docker's timestamps; with it they come as they arrive.
    """
    if follow:
        yield from _arriving(target, hosts, tail)
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


def _arriving(target: Target, hosts: list[str], tail: str) -> Iterator[Entry]:
    arrived: queue.Queue[Entry | None] = queue.Queue()

    def pass_on(name: str) -> None:
        try:
            target.engines[name].reach()
            target.engines[name].all_logs(target.plans[name].container, tail="0")  # tells where there is no container
            for _, text in follow_stamped(target.engines[name], target.plans[name].container, tail=tail):
                arrived.put((name, text))
        except HostError as error:
            arrived.put((name, error))
        finally:
            arrived.put(None)

    for name in hosts:
        threading.Thread(target=pass_on, args=(name,), daemon=True).start()
    open_streams = len(hosts)
    while open_streams:
        entry = arrived.get()
        if entry is None:
            open_streams -= 1
        else:
            yield entry
