"""Where text for people goes: stderr, by rich; what a program reads goes to stdout."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvdcompose.errors import ConfigError, HostError, HostsFailed, HvdError

ENVELOPE = 1  # version of what --json prints; a key that is only added does not raise it
WIDE = 400
PLAIN_SECONDS = 5.0  # between two lines of one host's progress, where nobody sees a line change
_lock = threading.Lock()
_below: dict[str, str] = {}  # host -> its line of progress, as it stands below everything else on a terminal
_drawn = 0  # how many lines that are


@dataclass
class _Answer:
    """What `--json` prints when the command has ended: its name, and what it told."""

    command: str
    data: object = None


_answer: _Answer | None = None  # None: nobody wants JSON


def say(text: str, style: str = "", ends: str = "") -> None:
    """Print a line for a person; plain where nobody sees colours, and then without the time that rich takes to load.

    ends: the host whose progress, if it has any below, is over with this.
    """
    with _lock:
        if not sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
            return
        from rich.console import Console
        from rich.text import Text

        _erase_below()
        _below.pop(ends, None)
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style=style))
        _draw_below()


def out(text: str) -> None:
    """Print a line of a command's product on stdout; on stderr where stdout is JSON."""
    stream = sys.stdout if _answer is None else sys.stderr
    stream.write(f"{text}\n")
    stream.flush()


MARKS = {"FAIL": "bold red", "note": "yellow", "ok": "green"}


def out_marked(text: str) -> None:
    """Print a line of a command's product, on a terminal with these words in their colours."""
    stream = sys.stdout if _answer is None else sys.stderr
    if not stream.isatty():
        out(text)
        return
    from rich.console import Console
    from rich.text import Text

    line = Text(text)
    for word, style in MARKS.items():
        line.highlight_regex(rf"\b{word}\b(?=  |$|:)", style)
    Console(file=stream, highlight=False, soft_wrap=True).print(line)


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
    end_progress()
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
    """Progress of many hosts at once.

    What happens is a line; how far something is stands, on a terminal, in one line per host below, and elsewhere is a
    line now and then.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._width = max((len(host) for host in hosts), default=0)
        self._told: dict[str, tuple[int, float]] = {}  # where nobody sees a line change: (percent, when)

    def host(self, host: str, text: str) -> None:
        """Tell what happens on a host; this ends its progress."""
        self._told.pop(host, None)
        say(self._line(host, text), ends=host)

    def progress(self, host: str, text: str, percent: int) -> None:
        """Tell how far something on a host is."""
        if _redraws():
            _draw(host, self._line(host, text))
            return
        now = time.monotonic()
        told = self._told.setdefault(host, (percent, now))
        if worth_a_line(told, percent, now):
            self._told[host] = (percent, now)
            say(self._line(host, text))

    def _line(self, host: str, text: str) -> str:
        return f"{host:<{self._width}}  {text}"


def worth_a_line(told: tuple[int, float], percent: int, now: float) -> bool:
    """Tell whether progress is worth another line: (percent, when) of the last one, now in seconds. Pure."""
    return percent - told[0] >= 10 and now - told[1] >= PLAIN_SECONDS


def fitting(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """Return lines that stay where they are drawn: no wider than the terminal, and no more than fit. Pure."""
    most = max(1, rows - 2)
    shown = lines if len(lines) <= most else [*lines[: most - 1], f"... and {len(lines) - most + 1} more"]
    return [line[: columns - 1] for line in shown]


def _redraws() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _draw(host: str, line: str) -> None:
    """Show a host's line below everything else, in the place of its last one."""
    with _lock:
        _below[host] = line
        _erase_below()
        _draw_below()


def _erase_below() -> None:
    global _drawn
    if _drawn:
        sys.stderr.write(f"\x1b[{_drawn}A\x1b[J")
    _drawn = 0


def _draw_below() -> None:
    global _drawn
    if _below:
        size = os.get_terminal_size(sys.stderr.fileno())
        lines = fitting([*_below.values()], size.columns or 80, size.lines or 24)
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
        _drawn = len(lines)


def end_progress() -> None:
    """Take the lines that show progress away: what comes now is about something else."""
    with _lock:
        _erase_below()
        _below.clear()
        sys.stderr.flush()
