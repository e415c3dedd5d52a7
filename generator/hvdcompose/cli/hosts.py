"""Commands that look at the hosts or clear them: status, logs, down, keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hvdcompose.cli.logs import logs
from hvdcompose.cli.options import HERE, File, Json, TakeOver, Yes, confirmed, target_of
from hvdcompose.cli.panels import PanelGroup

if TYPE_CHECKING:
    from hvdcompose.report.status import Row

PANEL = "Hosts"
keys = typer.Typer(cls=PanelGroup, help="The cluster's ssh keys.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=PANEL)(status)
    app.command(rich_help_panel=PANEL)(logs)
    app.command(rich_help_panel=PANEL)(down)
    app.add_typer(keys, name="keys", rich_help_panel=PANEL)


def status(file: File = HERE, as_json: Json = False) -> None:
    """Show every host: what it runs, how that is, and what apply would change there."""
    from hvdcompose import console
    from hvdcompose.deploy.survey import survey
    from hvdcompose.report.status import row, strays

    target = target_of(file)
    seen = survey(target)
    lying = strays(target.plans, seen)
    rows = [row(plan, seen.hosts[plan.host], seen.plan, seen.instead) for plan in target.plans.values()]
    refusal = console.error_json(seen.refusal) if seen.refusal else None
    told = {"hosts": [row.to_json() for row in rows], "strays": [stray.to_json() for stray in lying]}
    console.answer({**told, "refusal": refusal})
    _show_rows(rows)
    for stray in lying:
        console.say(f"{stray.host}: {stray.what}", "yellow")
        console.say(f"  -> {stray.remedy}", "cyan")
    if seen.refusal is not None:
        console.say("apply would refuse:")
        console.show_error(seen.refusal)
    if any(row.failed for row in rows):
        raise typer.Exit(1)


def _show_rows(rows: list[Row]) -> None:
    from hvdcompose import console

    shown = [(row.host, row.context, row.role, row.state, row.run, row.needs) for row in rows]
    console.table(["HOST", "CONTEXT", "ROLE", "STATE", "RUN", "APPLY WOULD"], shown)


def down(
    file: File = HERE,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Also keys, code, run records and named data volumes.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
    take_over: TakeOver = False,
) -> None:
    """Take everything off every host (docker compose down), those that left cluster.yaml included."""
    from hvdcompose import console
    from hvdcompose.deploy.operations import find_live
    from hvdcompose.deploy.teardown import take_down
    from hvdcompose.deploy.turn import turn_to_clear
    from hvdcompose.errors import HostsFailed
    from hvdcompose.hosts.fanout import errors
    from hvdcompose.hosts.keys import forget_key
    from hvdcompose.hosts.lock import working_on

    target = target_of(file)
    live = find_live(target)
    if live is not None:
        confirmed(f"Run {live.run} of cluster {target.cluster.name} is live: end it?", yes=yes)
    if volumes:
        named = sorted({volume for plan in target.plans.values() for volume in plan.named_volumes})
        what = ["its keys", "run records", *([f"the data in {', '.join(named)}"] if named else [])]
        told = f"{', '.join(what[:-1])} and {what[-1]}"
        confirmed(f"Remove cluster {target.cluster.name} from {len(target.plans)} hosts, with {told}?", yes=yes)
    with working_on(target.cluster):
        with turn_to_clear(target, "down", take_over=take_over):
            outcomes = take_down(target, console.HostLines([*target.plans, *target.gone]), volumes=volumes)
        failed = errors(outcomes)
        console.answer({"hosts": {name: {"cleared": outcome.ok} for name, outcome in outcomes.items()}})
        if volumes and not failed:
            forget_key(target.cluster)
    if failed:
        gone = [error.host for error in failed if error.host in target.gone]
        raise HostsFailed(
            f"{len(failed)} of {len(outcomes)} hosts could not be cleared; once they answer, again: hvdcompose down",
            failed,
            hint="\n".join(f"if {name} is gone for good: rm -r compose/{name}" for name in gone) or None,
        )


@keys.command()
def rotate(file: File = HERE, as_json: Json = False, take_over: TakeOver = False) -> None:
    """Make new keys and put them on every host; the workers are made anew, nothing is launched."""
    from hvdcompose import console
    from hvdcompose.cli.runs import show_plan, steps_json
    from hvdcompose.deploy.containers import bring_keys_to_primary
    from hvdcompose.deploy.look import look
    from hvdcompose.deploy.operations import converge, refuse_live
    from hvdcompose.deploy.turn import turn
    from hvdcompose.hosts.keys import ClusterKey
    from hvdcompose.hosts.lock import working_on

    target = target_of(file)
    if not target.cluster.ssh.managed:
        console.say(f"new host keys; those to log in with stay as they are in {target.cluster.ssh.volume}, your own")
    with working_on(target.cluster):
        ask = partial(look, target, launches=False, new_key=ClusterKey.generate())
        with turn(target, ask(), "keys rotate", ask, take_over=take_over) as seen:
            console.answer({"steps": steps_json(seen)})
            refuse_live(seen, "new keys would end it")
            show_plan(target, seen)
            converge(target, seen, console.HostLines(target.plans))
            bring_keys_to_primary(target, seen)
