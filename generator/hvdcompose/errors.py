"""The errors a user can meet, each with its exit code; printed once, by the boundary in `cli/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DONE, FAILED, USAGE, BAD_CONFIG, REFUSED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class HvdError(Exception):
    """One clear message for the user: what is wrong and, in `hint`, what to type next."""

    exit_code = FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HvdError):
    """The command line asks for something that cannot be done."""

    exit_code = USAGE


class Refused(HvdError):
    """Nothing was started: a preflight check failed, or a live run would be disturbed."""

    exit_code = REFUSED


class ViewEnded(HvdError):
    """Ctrl-C ended a view of something that goes on by itself; the message says how to come back."""

    exit_code = INTERRUPTED


class HostError(HvdError):
    """A host, or a command sent to it, failed; `output` is what it printed last."""

    def __init__(self, host: str, message: str, *, hint: str | None = None, output: str = "") -> None:
        super().__init__(message, hint=hint)
        self.host = host
        self.output = output


class HostsFailed(HvdError):
    """Some hosts could not do what was asked; `errors` has one entry for each, in the order of cluster.yaml."""

    def __init__(self, summary: str, errors: Sequence[HostError], *, hint: str | None = None) -> None:
        super().__init__(summary, hint=hint)
        self.errors = tuple(errors)


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a configuration file: 1-based line and column, dotted path, sentence."""

    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: "
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


class ConfigError(HvdError):
    """A cluster.yaml that cannot be used; holds every mistake found, in the order of the lines."""

    exit_code = BAD_CONFIG

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(f"{source}:{problem}" for problem in self.problems))
