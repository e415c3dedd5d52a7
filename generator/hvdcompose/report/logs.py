"""Log lines of launcher and workers, ranks and hosts told apart. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Gloo: "[2]<stdout>:text"; Open MPI's --tag-output: "[1,2]<stdout>:text" (job, rank), from version 5 on with a blank
# after the colon; a time in front with -prefix-timestamp
_PREFIX = re.compile(
    r"^(?P<time>\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?"
    r"\[(?:(?P<job>\d+),)?(?P<rank>\d+)\]<(?:stdout|stderr)>:(?(job) ?)(?P<text>.*)$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Line:
    """One line: the host it comes from, the rank that wrote it (None: not a rank), and the text."""

    host: str
    rank: int | None
    text: str


def parse_line(host: str, ranks: Sequence[str], text: str) -> Line:
    """Return a launcher's log line with its rank and that rank's host; `ranks` lists the host of each rank.

    Of a progress bar, which returns to the beginning of its line for each step, the last step: what a terminal shows.
    """
    last = _last_step(text)
    found = _PREFIX.match(last) or _PREFIX.match(text)  # Horovod may mark each step, or only the line
    if found is None:
        return Line(host, None, last)
    rank, told = int(found["rank"]), _last_step(found["text"])
    return Line(ranks[rank] if rank < len(ranks) else host, rank, f"{found['time']} {told}" if found["time"] else told)


def _last_step(text: str) -> str:
    return next((step for step in reversed(text.split("\r")) if step.strip()), "")


def label(line: Line, width: int) -> str:
    """Return what stands before a line: "lab2 r1 |", padded to the longest host name."""
    rank = "" if line.rank is None else f"r{line.rank}"
    return f"{line.host:<{width}} {rank:<3} |"
