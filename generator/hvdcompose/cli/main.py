"""The command `hvdcompose`: its commands, and the one boundary where errors become messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from hvdcompose import __version__
from hvdcompose.cli import hosts, lab, render, runs
from hvdcompose.errors import INTERRUPTED, HvdError, ViewEnded

# looking for pydantic plugins reads the metadata of every installed package: 60 ms of each command, for nothing
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    help="One cluster.yaml to a Horovod run on a few Docker hosts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (render, runs, hosts):
    module.register(app)
app.add_typer(lab.app, name="lab", rich_help_panel="Try it")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hvdcompose {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Describe the hosts in cluster.yaml, then: hvdcompose apply --follow."""


def main() -> None:
    """Run the command line and exit with its code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _as_ctrl_c)  # a closed terminal must not leave docker and ssh behind
    sys.exit(run(sys.argv[1:]))


def _as_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt


def run(words: list[str]) -> int:
    """Run one command line; return the exit code. Every error that a user can cause is printed here, once."""
    try:
        app(words, prog_name="hvdcompose")
    except ViewEnded as end_of_view:
        from hvdcompose.console import say

        say(f"\n{end_of_view.message}", "cyan")
        return end_of_view.exit_code
    except HvdError as error:
        from hvdcompose.console import show_error

        show_error(error)
        return error.exit_code
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        return _interrupted() if code == INTERRUPTED else code
    return 0


def _interrupted() -> int:
    from hvdcompose.hosts import process

    process.end_children()
    sys.stderr.write("\ninterrupted: what was done stays; the same command goes on from there\n")
    return INTERRUPTED
