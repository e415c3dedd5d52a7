"""Options that several commands share, and the way from `-f FILE` to a target."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hvdcompose.errors import UsageError

if TYPE_CHECKING:
    from hvdcompose.config.model import Cluster
    from hvdcompose.deploy.target import Target

File = Annotated[
    Path,
    typer.Option("--file", "-f", metavar="FILE", envvar="HVDCOMPOSE_FILE", help="The cluster's description."),
]
Replace = Annotated[bool, typer.Option("--replace", help="End a live run where it is in the way.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the cluster over from a client that is gone for good.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
# the boundary in main.py reads it: a command gives `console.answer` its data, and what it prints goes to stderr
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, told in docs/json.md.")]
HERE = Path("cluster.yaml")
AFTER_DASHES = "hvdcompose.command"


class CommandAfterDashes(TyperCommand):
    """Keeps what follows `--` apart, so that a mistyped option is no part of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Cut the command line at the first `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[AFTER_DASHES] = args[at + 1 :]
            args = args[:at]
        given = list(args)
        ctx.allow_extra_args = ctx.ignore_unknown_options = True
        left = super().parse_args(ctx, args)
        words = given[given.index(ctx.args[0]) :] if ctx.args else []
        if not words:
            return left
        if words[0].startswith("-"):  # a mistyped option: said as of every command
            ctx.allow_extra_args = ctx.ignore_unknown_options = False
            return super().parse_args(ctx, given)
        typed = shlex.join([*ctx.command_path.split(), *given[: -len(words)], "--", *words])
        raise UsageError(f"{words[0]}: a command stands after --", hint=typed)


def cluster_of(file: Path) -> Cluster:
    """Return the cluster that a file describes. Raises ConfigError."""
    from hvdcompose.config.source import load_cluster

    return load_cluster(file)


def target_of(file: Path) -> Target:
    """Return the cluster with the way to its hosts. Raises ConfigError, UsageError."""
    from hvdcompose.deploy.target import new_target

    return new_target(cluster_of(file), file.absolute().parent)


def confirmed(question: str, *, yes: bool) -> None:
    """Go on only after a yes. Raises UsageError where nobody can be asked, Abort for a no."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask at", hint="--yes goes on without asking")
    if not typer.confirm(question, err=True):
        raise typer.Abort
