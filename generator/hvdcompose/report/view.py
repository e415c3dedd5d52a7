"""A view of logs: what is asked for, in the order of time, each line with its host and rank in front. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hvdcompose.report.fold import Fold
from hvdcompose.report.logs import Line, label, parse_line
from hvdcompose.report.reorder import Reorder


@dataclass(frozen=True)
class Wanted:
    """What of the logs is shown: these hosts and ranks only (empty: all), floods folded unless `raw`."""

    hosts: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    raw: bool = False

    def holds(self, line: Line) -> bool:
        """Tell whether a line is one of them."""
        return (not self.hosts or line.host in self.hosts) and (not self.ranks or line.rank in self.ranks)


def seconds_of(stamp: str) -> float:
    """Return a timestamp of Docker's as unix seconds; 0 for what is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return 0.0


@dataclass
class View:
    """Turns lines as they are read into lines as they are shown.

    hosts: all names, for the width of the labels; ranks: the host of each rank; cause: the rank that failed first.
    """

    hosts: Sequence[str]
    ranks: Sequence[str]
    wanted: Wanted = Wanted()
    cause: int | None = None
    _order: Reorder[Line] = field(default_factory=Reorder, init=False)
    _fold: Fold = field(init=False)
    _width: int = field(init=False)
    _latest: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        """Begin with nothing held."""
        self._fold = Fold(self.cause)
        self._width = max((len(name) for name in self.hosts), default=0)

    def past(self, host: str, stamp: str, text: str) -> list[str]:
        """Take a line of what is over already, in the order of the timestamps; return what is to be printed."""
        self._latest = max(self._latest, seconds_of(stamp))
        return self._folded(self._latest, parse_line(host, self.ranks, text))

    def live(self, now: float, host: str, stamp: str, text: str) -> list[str]:
        """Take a line that comes now, by a clock that never goes back; return what is to be printed."""
        self._latest = now
        line = parse_line(host, self.ranks, text)
        return [shown for ready in self._order.push(now, stamp, line) for shown in self._folded(now, ready)]

    def tick(self, now: float) -> list[str]:
        """Return what has been held long enough."""
        self._latest = now
        shown = [text for ready in self._order.due(now) for text in self._folded(now, ready)]
        return [*shown, *self._labelled(self._fold.tick(now))]

    def end(self) -> list[str]:
        """Return all that is left; the view may go on by another clock."""
        shown = [text for ready in self._order.end() for text in self._folded(self._latest, ready)]
        shown += self._labelled(self._fold.end())
        self._fold, self._latest = Fold(self.cause), 0.0
        return shown

    def _folded(self, at: float, line: Line) -> list[str]:
        if not self.wanted.holds(line):
            return []
        return self._labelled([line] if self.wanted.raw else self._fold.push(at, line))

    def _labelled(self, lines: Sequence[Line]) -> list[str]:
        return [f"{label(line, self._width)} {line.text}" for line in lines]
