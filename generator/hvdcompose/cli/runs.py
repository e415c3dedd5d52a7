"""Commands that bring hosts and runs to life: plan, apply, run, stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hvdcompose.cli.logs import GOES_ON, print_coming
from hvdcompose.cli.options import AFTER_DASHES, HERE, CommandAfterDashes, File, Json, Replace, TakeOver, target_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hvdcompose.deploy.look import Seen
    from hvdcompose.deploy.target import Target

PANEL = "Cluster"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=PANEL)(plan)
    app.command(rich_help_panel=PANEL)(apply)
    app.command(rich_help_panel=PANEL, cls=CommandAfterDashes, options_metavar="[OPTIONS] [-- COMMAND]")(run)
    app.command(rich_help_panel=PANEL)(stop)


def plan(file: File = HERE, as_json: Json = False) -> None:
    """Show what apply would do, and why. Changes nothing."""
    from hvdcompose import console
    from hvdcompose.deploy.look import look

    target = target_of(file)
    seen = look(target)
    console.answer({"steps": steps_json(seen), "live_run": seen.plan.live})
    show_plan(target, seen)


def steps_json(seen: Seen) -> list[dict[str, str]]:
    """Return the plan's steps as JSON."""
    return [{"host": step.host, "action": str(step.action), "cause": step.cause} for step in seen.plan.steps]


def _answer(seen: Seen, run: str | None, *, launched: bool, exit_code: int | None = None) -> None:
    """Keep what apply and run tell a program; `exit_code` is None while the run goes on, and where nobody followed."""
    from hvdcompose import console

    console.answer({"steps": steps_json(seen), "run": run, "launched": launched, "exit_code": exit_code})


def show_plan(target: Target, seen: Seen) -> None:
    """Print the plan, each step with its cause."""
    from hvdcompose import console

    for name, error in seen.unreachable_gone.items():
        console.say(f"{name} left cluster.yaml and cannot be cleared: {error.message}", "yellow")
        console.say(f"  -> if that machine is gone for good: rm -r compose/{name}", "cyan")
    if seen.plan.live:
        console.say(f"run {seen.plan.live} is live")
    if seen.plan.empty:
        console.say(f"nothing to do: {len(target.plans)} hosts are as cluster.yaml wants them", "green")
        return
    width = max(len(step.host) for step in seen.plan.steps)
    for step in seen.plan.steps:
        console.say(f"{step.host:<{width}}  {step.action:<11}  {step.cause}")
    idle = target.cluster.slots - target.cluster.train.np
    if idle:
        console.say(f"np {target.cluster.train.np} leaves {idle} of {target.cluster.slots} slots idle")


def _converged(
    target: Target, command: str, *, replace: bool, take_over: bool, forced: bool = False
) -> tuple[Seen, str | None]:
    """Look, show the plan and carry it out, alone; return what was seen and the run that was launched, or None.

    forced: launch whether or not it ever ran.
    """
    from hvdcompose import console
    from hvdcompose.deploy.look import look
    from hvdcompose.deploy.operations import converge
    from hvdcompose.deploy.turn import turn
    from hvdcompose.hosts.lock import working_on

    ask = partial(look, target, forced=forced, replace=replace)
    with working_on(target.cluster), turn(target, ask(), command, ask, take_over=take_over) as seen:
        _answer(seen, seen.plan.live, launched=False)
        show_plan(target, seen)
        return seen, converge(target, seen, console.HostLines(target.plans))


def apply(
    file: File = HERE,
    follow: Annotated[bool, typer.Option("--follow", help="Stay and show the run until it ends.")] = False,
    replace: Replace = False,
    as_json: Json = False,
    take_over: TakeOver = False,
) -> None:
    """Make the hosts as cluster.yaml wants them (docker compose up), and launch its run if it never ran."""
    from hvdcompose import console

    target = target_of(file)
    seen, run_id = _converged(target, "apply", replace=replace, take_over=take_over)
    live = run_id or seen.plan.live
    _answer(seen, live, launched=run_id is not None)
    if follow and live:
        code = _follow(target, live)
        _answer(seen, live, launched=run_id is not None, exit_code=code)
        raise typer.Exit(code)
    if run_id:
        console.say("the run goes on by itself; watch it: hvdcompose logs -f", "cyan")
    elif not live:
        console.say(f"this launch ran before{_how_it_ended(target, seen)}; once more: hvdcompose run", "cyan")


def _how_it_ended(target: Target, seen: Seen) -> str:
    """Return words on a launch that failed when it ran before, by its container; "" for one that did not."""
    launcher = seen.container(target.primary.host, "launcher")
    if launcher is None or seen.launch is None or launcher.launch != seen.launch.digest or not launcher.exit_code:
        return ""
    return f" and failed with exit {launcher.exit_code} (hvdcompose runs show)"


def run(
    context: typer.Context,
    file: File = HERE,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not stay to show the run.")] = False,
    replace: Replace = False,
    as_json: Json = False,
    take_over: TakeOver = False,
) -> None:
    """Launch once more, after bringing the hosts up to date; `run -- COMMAND` launches another command instead."""
    from hvdcompose import console

    target = target_of(file)
    command = context.meta.get(AFTER_DASHES, [])
    if command:
        target = target.with_command(tuple(command))
    seen, run_id = _converged(target, "run", forced=True, replace=replace, take_over=take_over)
    _answer(seen, run_id, launched=run_id is not None)
    if run_id and not detach:
        code = _follow(target, run_id)
        _answer(seen, run_id, launched=True, exit_code=code)
        raise typer.Exit(code)
    console.say(f"run {run_id} goes on by itself; {GOES_ON}; afterwards: hvdcompose runs", "cyan")


def _follow(target: Target, run_id: str) -> int:
    """Show a run until it ends; return 0 when it ended well, else 1. Ctrl-C ends the view only."""
    from hvdcompose import console
    from hvdcompose.deploy.watch import NEVER_STARTED, container_of, ended, follow
    from hvdcompose.errors import ViewEnded
    from hvdcompose.report.view import View
    from hvdcompose.stack.launch import rank_hosts

    engine = target.engines[target.primary.host]
    ranks = rank_hosts(target.cluster)
    try:
        container = container_of(engine, target.launcher, run_id)
        print_coming(View(list(target.plans), ranks), follow(engine, container))
        end = ended(engine, container, run_id)
    except KeyboardInterrupt:
        raise ViewEnded(f"run {run_id} goes on; {GOES_ON}") from None
    if end.oom_killed:
        console.say(f"{engine.host}: the launcher's container ran out of memory", "bold red")
    if end.code == NEVER_STARTED or (end.result is None and end.code):
        how = "was not launched" if end.code == NEVER_STARTED else "was not launched, or was killed"
        console.say(f"run {run_id} {how}: the launcher ended with exit {end.code}", "bold red")
    if end.code:
        _tell_causes(target, run_id, ranks)
    return 1 if end.code else 0


def _tell_causes(target: Target, run_id: str, ranks: Sequence[str]) -> None:
    """Say what the logs of all hosts tell about the cause of a run that failed, and what to do about it."""
    from hvdcompose import console
    from hvdcompose.deploy.history import logs_of
    from hvdcompose.errors import HostError
    from hvdcompose.report.diagnose import diagnose
    from hvdcompose.report.logs import parse_line
    from hvdcompose.report.records import log_host

    try:
        kept = logs_of(target, run_id)
    except HostError:
        return  # the view has shown what there was
    primary = target.primary.host
    lines = (parse_line(log_host(name, primary), ranks, text) for name, stamped in kept.items() for _, text in stamped)
    for cause in diagnose(lines, ranks):
        console.say(f"cause? {cause}", "yellow")
        console.say(f"  -> {cause.remedy}", "cyan")


def stop(file: File = HERE, as_json: Json = False) -> None:
    """End the live run on all hosts; the workers stay."""
    from hvdcompose import console
    from hvdcompose.deploy.operations import stop_live

    target = target_of(file)
    live = stop_live(target)
    console.answer({"run": live.run if live else None, "host": live.host if live else None})
    console.say(f"run {live.run} is ended" if live else "no run is live")
