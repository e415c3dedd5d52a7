"""`hvdcompose exec`: a person's command in the containers of the cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hvdcompose.cli.complete import complete_hosts
from hvdcompose.cli.options import AFTER_DASHES, HERE, CommandAfterDashes, File, target_of

if TYPE_CHECKING:
    from hvdcompose.deploy.target import Target


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("exec", rich_help_panel="Hosts", cls=CommandAfterDashes)(execute)


def execute(
    ctx: typer.Context,
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST -- COMMAND", help="A host of cluster.yaml, or all.", autocompletion=complete_hosts
        ),
    ] = None,
    file: File = HERE,
    everywhere: Annotated[bool, typer.Option("--all", help="On all hosts at once; each line names its host.")] = False,
) -> None:
    """Run a command in a host's container (docker exec), like a rank as to its NIC; the exit code is the command's."""
    from hvdcompose.deploy.inside import exec_on
    from hvdcompose.errors import UsageError

    command: list[str] = ctx.meta.get(AFTER_DASHES, [])
    if not command:
        raise UsageError("there is no command to run", hint="hvdcompose exec HOST -- nvidia-smi")
    target = target_of(file)
    everywhere = everywhere or (host == "all" and "all" not in target.plans)
    if everywhere and host not in (None, "all"):
        raise UsageError(f"--all means all hosts; leave out {host}")
    if everywhere:
        raise typer.Exit(_on_all(target, command))
    if host is None or host not in target.plans:
        told = f"there is no host {host} in {file}" if host else "no host is named"
        raise UsageError(told, hint=f"hosts: {', '.join(target.plans)}, or --all")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    raise typer.Exit(exec_on(target, host, command, terminal=terminal))


def _on_all(target: Target, command: list[str]) -> int:
    """Run the command on all hosts; return the worst exit code. Raises HostsFailed with every host's error."""
    from hvdcompose import console
    from hvdcompose.deploy.inside import exec_on_all, no_launcher
    from hvdcompose.errors import HostsFailed
    from hvdcompose.hosts.fanout import errors

    width = max(len(name) for name in target.plans)
    outcomes = exec_on_all(target, target.plans, command, lambda name, line: console.out(f"{name:<{width}} | {line}"))
    failed = errors(outcomes)
    if failed:
        raise HostsFailed(f"{len(failed)} of {len(outcomes)} hosts did not run it", failed)
    codes = {name: outcome.value for name, outcome in outcomes.items() if outcome.value is not None}
    if not codes:
        raise no_launcher(target, target.primary.host)
    if len(codes) < len(outcomes):
        left_out = target.primary.host
        console.say(f"{left_out}: left out: {no_launcher(target, left_out).message}", "yellow")
    for name, code in codes.items():
        if code:
            console.say(f"{name}: exit {code}", "bold red")
    return max(codes.values())
