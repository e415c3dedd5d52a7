"""Where text for people goes: stderr, by rich; what a program reads goes to stdout."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvdcompose.errors import ConfigError, HostError, HostsFailed, HvdError

ENVELOPE = 1  # version of what --json prints; a key that is only added does not raise it
WIDE = 400
_PERCENT = re.compile(r"(\d+) %$")
_lock = threading.Lock()


@dataclass
class _Answer:
    """What `--json` prints when the command has ended: its name, and what it told."""

    command: str
    data: object = None


_answer: _Answer | None = None  # None: nobody wants JSON


def say(text: str, style: str = "") -> None:
    """Print a line for a person; plain where nobody sees colours, and then without the time that rich takes to load."""
    with _lock:
        if not sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
            return
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style=style))


def out(text: str) -> None:
    """Print a line of a command's product on stdout; on stderr where stdout is JSON."""
    stream = sys.stdout if _answer is None else sys.stderr
    stream.write(f"{text}\n")
    stream.flush()


def want_json(command: str) -> None:
    """Have `end_json` print one envelope on stdout for this command, and everything else go to stderr."""
    global _answer
    _answer = _Answer(command)


def answer(data: object) -> None:
    """Keep what the command tells a program, as JSON's own types: `end_json` prints it. The last one counts."""
    if _answer is not None:
        _answer.data = data


def end_json(code: int, error: HvdError | None) -> None:
    """Print the envelope of a command that ended with an exit code, where `want_json` asked for one."""
    global _answer
    if _answer is not None:
        told, _answer = _answer, None
        out(json.dumps(envelope(told.command, told.data, code, error), indent=2))


def envelope(command: str, data: object, code: int, error: HvdError | None) -> dict[str, Any]:
    """Return what every `--json` prints; `ok` is exit code 0. docs/json.md describes it."""
    return {
        "version": ENVELOPE,
        "command": command,
        "ok": code == 0,
        "data": data,
        "error": None if error is None else error_json(error),
    }


def error_json(error: HvdError) -> dict[str, Any]:
    """Return an error as JSON: the message, the hint, what each host said, and the mistakes in a cluster.yaml."""
    hosts = {
        part.host: {"message": part.message, "hint": part.hint, "output": part.output}
        for part in _parts(error)
        if isinstance(part, HostError)
    }
    problems = error.problems if isinstance(error, ConfigError) else ()
    return {
        "message": error.message,
        "hint": error.hint,
        "hosts": hosts,
        "problems": [asdict(problem) for problem in problems],
    }


def show_error(error: HvdError, verbose: bool = False) -> None:
    """Print an error once: what is wrong, per host where there are several, then what to do."""
    for part in _parts(error):
        part_lines = part.message.splitlines() or [""]
        prefix = f"{part.host}: " if isinstance(part, HostError) else ""
        say(f"error: {prefix}{part_lines[0]}", "bold red")
        for line in part_lines[1:]:
            say(line)
        if isinstance(part, HostError) and part.output:
            for line in part.output.splitlines()[-20:]:
                say(f"  {part.host} | {line}", "dim")
        if part.hint:
            say("\n".join(f"  -> {line}" for line in part.hint.splitlines()), "cyan")


def _parts(error: HvdError) -> list[HvdError]:
    """Return the errors of the single hosts in front of the summary of them."""
    return [*error.errors, error] if isinstance(error, HostsFailed) else [error]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on stdout, on stderr where stdout is JSON; the last column takes what is left of the line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold", no_wrap=column == columns[0])
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    # a pipe has no width: one line per row
    stream = sys.stdout if _answer is None else sys.stderr
    Console(file=stream, highlight=False, width=None if stream.isatty() else WIDE).print(drawn)


class HostLines:
    """Progress of many hosts at once: a line for each thing that happens, and a percentage only every tenth part."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._width = max((len(host) for host in hosts), default=0)
        self._tenths: dict[str, int] = {}

    def host(self, host: str, text: str) -> None:
        """Tell what happens on a host."""
        percent = _PERCENT.search(text)
        if percent:
            tenth = int(percent.group(1)) // 10
            if self._tenths.get(host) == tenth:
                return
            self._tenths[host] = tenth
        say(f"{host:<{self._width}}  {text}")
