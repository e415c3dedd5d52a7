"""The command `hvdcompose`: its commands, and the one boundary where errors become messages and exit codes."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Annotated

import typer

from hvdcompose import __version__
from hvdcompose.cli import doctor, history, hosts, init, inside, lab, render, runs, schema
from hvdcompose.cli.panels import PanelGroup
from hvdcompose.errors import INTERRUPTED, HvdError, UsageError, ViewEnded

# looking for pydantic plugins reads the metadata of every installed package: 60 ms of each command, for nothing
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

LAUNCHES = ("apply", "run")

app = typer.Typer(
    cls=PanelGroup,
    rich_markup_mode=None,
    help="One cluster.yaml to a Horovod run on a few Docker hosts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (init, render, doctor, runs, history, hosts, inside, schema):
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
    """Run one command line; return the exit code. Every error that a user can cause is printed here, once.

    With `--json` the envelope is printed here too, when the command has ended, however it did.
    """
    before_dashes = words[: words.index("--")] if "--" in words else words
    if "--json" not in before_dashes:
        return _run(words)[0]
    from hvdcompose import console

    console.want_json(_name(before_dashes))
    code, error = _run(words)
    console.end_json(code, error)
    return code


def _run(words: list[str]) -> tuple[int, HvdError | None]:
    """Return the exit code and, where there is one, the error, which has been shown."""
    try:
        app(words, prog_name="hvdcompose")
    except ViewEnded as end_of_view:
        from hvdcompose.console import say
        from hvdcompose.hosts import process

        process.end_children()
        say(f"\n{end_of_view.message}", "cyan")
        return end_of_view.exit_code, end_of_view
    except HvdError as error:
        from hvdcompose.console import show_error

        show_error(error)
        return error.exit_code, error
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        if code == INTERRUPTED:
            return code, _interrupted(_name(words))
        mistake = getattr(end.__context__, "format_message", None)  # typer has shown it before it exits
        return code, UsageError(str(mistake())) if code and mistake else None
    return 0, None


def _name(words: list[str]) -> str:
    """Return the name of the command in a command line: one word, or two where the first is a group."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    groups = {group.name for group in app.registered_groups}
    return " ".join(names[: 2 if names[:1] and names[0] in groups else 1])


def _interrupted(command: str) -> HvdError:
    from hvdcompose.hosts import process

    process.end_children()
    run = " (a run that was launched goes on: hvdcompose status)" if command in LAUNCHES else ""
    told = HvdError(f"interrupted: what was done stays{run}; the same command goes on from there")
    sys.stderr.write(f"\n{told.message}\n")
    return told
