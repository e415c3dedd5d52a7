"""The command `logs`: containers as they stand, a past run, or what comes; one view over all hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdcompose.cli.complete import complete_hosts
from hvdcompose.cli.options import HERE, File, target_of

if TYPE_CHECKING:
    from hvdcompose.deploy.target import Target
    from hvdcompose.deploy.watch import Entry
    from hvdcompose.report.view import View, Wanted

GOES_ON = "come back: hvdcompose logs -f; end it: hvdcompose stop"


def logs(
    file: File = HERE,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="This host and its ranks only; may be repeated.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    rank: Annotated[
        list[int] | None, typer.Option("--rank", metavar="N", min=0, help="This rank only; may be repeated.")
    ] = None,
    tail: Annotated[str, typer.Option("--tail", help="The last N lines of each host, or all.")] = "all",
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Of a past run: its id, a beginning of it, or last.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Every line: fold no floods and no repetitions.")] = False,
) -> None:
    """Show the logs of all hosts and ranks, merged by time; floods are folded and counted."""
    from hvdcompose.errors import UsageError
    from hvdcompose.report.view import Wanted

    target = target_of(file)
    if not (tail == "all" or tail.isdigit()):
        raise UsageError(f"--tail takes a number or all, not {tail!r}")
    wanted = Wanted(frozenset(host or ()), frozenset(rank or ()), raw)
    if run is None:
        _of_containers(target, file, wanted, tail=tail, follow=follow)
    elif follow:
        raise UsageError(
            "--run shows what is recorded, --follow what comes", hint="of the live run: hvdcompose logs -f"
        )
    else:
        _of_run(target, run, wanted, tail=tail)


def _of_containers(target: Target, file: Path, wanted: Wanted, *, tail: str, follow: bool) -> None:
    """Show the logs of the containers that stand, as `docker compose logs` does on each host."""
    from hvdcompose.deploy.history import rank_hosts_of
    from hvdcompose.deploy.survey import coming_logs, past_logs
    from hvdcompose.errors import ViewEnded
    from hvdcompose.report.view import View

    ranks = rank_hosts_of(target)
    _refuse_unknown(wanted, list(target.plans), len(ranks), str(file))
    view = View(list(target.plans), ranks, wanted)
    # what ranks print, the launcher's container holds
    named = wanted.hosts | {target.primary.host}
    asked = {target.primary.host} if wanted.ranks else named if wanted.hosts else set(target.plans)
    hosts = [name for name in target.plans if name in asked]
    try:
        last, failed = print_past(view, past_logs(target, hosts, tail=tail))
        after = {name: last.get(name, "") for name in hosts if name not in failed}
        well = print_coming(view, coming_logs(target, after)) if follow and after else True
    except KeyboardInterrupt:
        if not follow:
            raise
        raise ViewEnded(f"the view is ended, a run goes on; {GOES_ON}") from None
    if failed or not well:
        raise typer.Exit(1)


def _of_run(target: Target, run: str, wanted: Wanted, *, tail: str) -> None:
    """Show what was kept of a run: the launcher's log, the workers', and what `prepare` printed."""
    from hvdcompose.cli.history import history_of
    from hvdcompose.deploy.history import logs_of
    from hvdcompose.deploy.survey import merged
    from hvdcompose.errors import HvdError
    from hvdcompose.report.records import log_host
    from hvdcompose.report.view import View

    told = history_of(target)
    record = told.find(run)
    names = list(dict.fromkeys([*record.hosts, *target.plans]))
    _refuse_unknown(wanted, names, record.np, f"run {record.run}")
    kept = logs_of(target, record.run)
    if not kept:
        raise HvdError(f"run {record.run} left no logs", hint=f"hvdcompose runs show {record.run}")
    primary = record.hosts[0] if record.hosts else target.primary.host
    most = None if tail == "all" else int(tail)
    streams = {name: deque(lines, most) if most is not None else lines for name, lines in kept.items()}
    view = View(names, record.hosts, wanted, record.cause.rank if record.cause else None)
    print_past(view, ((log_host(name, primary), line) for name, line in merged(streams)))


def _refuse_unknown(wanted: Wanted, hosts: list[str], np: int, where: str) -> None:
    """Raise UsageError for hosts and ranks that there are not."""
    from hvdcompose.errors import UsageError

    unknown = sorted(wanted.hosts - set(hosts))
    if unknown:
        raise UsageError(f"there is no host {', '.join(unknown)} in {where}", hint=f"hosts: {', '.join(hosts)}")
    beyond = sorted(rank for rank in wanted.ranks if rank >= np)
    if beyond:
        raise UsageError(f"there is no rank {beyond[0]} in {where}", hint=f"ranks: 0 to {np - 1}")


def print_past(view: View, entries: Iterable[Entry]) -> tuple[dict[str, str], set[str]]:
    """Print logs so far; return {host: timestamp of its last line}, and the hosts that gave an error instead."""
    from hvdcompose import console
    from hvdcompose.errors import HostError

    last: dict[str, str] = {}
    errors = {}
    for host, told in entries:
        if isinstance(told, HostError):
            errors[host] = told
            continue
        last[host] = told[0]
        _print(view.past(host, *told))
    _print(view.end())
    for error in errors.values():
        console.show_error(error)
    return last, set(errors)


def print_coming(view: View, entries: Iterator[Entry | None]) -> bool:
    """Print logs as they come, until all streams end; return whether every host could be read."""
    import time

    from hvdcompose import console
    from hvdcompose.errors import HostError

    well = True
    try:
        for entry in entries:
            now = time.monotonic()
            if entry is None:
                _print(view.tick(now))
            elif isinstance(entry[1], HostError):
                console.show_error(entry[1])
                well = False
            else:
                _print(view.live(now, entry[0], *entry[1]))
    finally:
        _print(view.end())  # also on Ctrl-C: what has come is shown
    return well


def _print(lines: Iterable[str]) -> None:
    from hvdcompose import console

    for line in lines:
        console.out(line)
