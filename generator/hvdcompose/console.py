"""Where text for people goes: stderr, by rich; what a program reads goes to stdout."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterable, Sequence

from hvdcompose.errors import HostError, HostsFailed, HvdError

ENVELOPE = 1
WIDE = 400
_PERCENT = re.compile(r"(\d+) %$")
_lock = threading.Lock()


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
    """Print a line of a command's product on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_json(command: str, data: object) -> None:
    """Print the versioned envelope that every `--json` gives."""
    out(json.dumps({"hvdcompose": ENVELOPE, "command": command, "data": data}, indent=2))


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
    """Print a table on stdout; the last column takes what is left of the line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold", no_wrap=column == columns[0])
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    # a pipe has no width: one line per row
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDE).print(drawn)


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
