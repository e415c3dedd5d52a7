"""Floods in the logs of many ranks, folded to a line with a count; what failed first is never folded. Pure.

Lines are held for `HOLD` seconds, so that what several ranks say at once can be told once.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

from hvdcompose.report.logs import Line

HOLD = 0.5  # seconds a line waits for its like
QUIET, TELL = 2.0, 10.0  # a flood is summed up when it pauses so long, and every so often while it lasts
MANY = 3  # identical lines from so many ranks, or so many in a row, are folded
TRACEBACK = "Traceback (most recent call last):"
CHAIN = re.compile(r"(During handling of the above exception|The above exception was the direct cause)")


@dataclass(frozen=True)
class Kind:
    """A flood that is known. `follows`: it follows another rank's end, so that it is never what failed first."""

    name: str
    pattern: re.Pattern[str]
    follows: bool = False
    of_host: bool = False  # no rank writes it


LOST = Kind(
    "lost connections after another rank had ended",
    re.compile(
        r"(?:gloo|nccl|horovod|pair\.cc|socket\.cc|\[[\da-f.:]+\]:\d+|^\[\d+\]:).*"
        r"(?:connection (?:was )?(?:closed|reset)|closed by (?:remote )?peer|broken pipe|socket closed"
        r"|remote process exited)"
        r"|HorovodInternalError|Horovod has been shut ?down|ncclRemoteError|ncclSystemError",
        re.IGNORECASE,
    ),
    follows=True,
)
LOGINS = re.compile(
    r"^(?:Accepted publickey for|Received disconnect from|Disconnected from|Starting session:|Close session:"
    r"|Connection (?:closed|reset) by \S+ port \d+ \[preauth\])"
)
# horovodrun tells in its own traceback that a rank ended; the ranks tell why
HOROVODRUN = Kind("horovodrun's own traceback", re.compile(r'^  File "\S+/horovod/runner/'))
RANK_ENDED = re.compile(r"one or more processes exited with non-zero status|mpirun failed with exit code")
AFTER = re.compile(r"(?:Process name|Exit code): ")  # what it tells below its error
KINDS = (
    Kind(
        "copies that Open MPI may not make in a container, harmless",
        re.compile(r"Read -1, expected \d+, errno = 1\b"),
    ),
    Kind(
        "notes of Open MPI on messages that it showed once",
        re.compile(r"\d+ more process(?:es)? ha(?:s|ve) sent help message|Set MCA parameter .*base_help_aggregate"),
    ),
    Kind("logins between the hosts, as sshd notes them", LOGINS, of_host=True),
    LOST,
)


@dataclass(eq=False)
class _Entry:
    """A line, or a traceback as a whole, of one rank."""

    at: float
    lines: list[Line]
    growing: bool = False  # more of this traceback may come
    gone: bool = False  # folded into one before it

    @property
    def first(self) -> Line:
        return self.lines[0]

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines)


@dataclass
class _Flood:
    shown: bool = False
    count: int = 0
    sources: set[int] = field(default_factory=set)
    last: float = 0.0
    told: float = 0.0


class Fold:
    """Takes lines as they come and gives those to show. `at` and `now` are seconds of one clock that never goes back.

    cause: the rank that failed first, where that is known.
    """

    def __init__(self, cause: int | None = None) -> None:
        self._cause = cause
        self._held: deque[_Entry] = deque()
        self._of_rank: dict[int, deque[_Entry]] = {}  # what is held of each rank
        self._of_host: dict[str, _Entry] = {}  # the last of each host that is no rank's
        self._like: dict[tuple[str, ...], dict[int, deque[_Entry]]] = {}  # what is held of each text, by rank
        self._floods: dict[tuple[str, str], _Flood] = {}  # by kind, and by host where each host has its own
        self._failed: set[int] = set()  # ranks whose traceback was shown

    def push(self, at: float, line: Line) -> list[Line]:
        """Take a line; return what is to be shown now."""
        shown = self.tick(at)
        if line.rank is None:
            self._push_of_host(at, line)
            return shown
        own = self._of_rank.setdefault(line.rank, deque())
        latest = own[-1] if own else None
        if latest is not None and latest.growing and _belongs(latest, line.text):
            self._unlist(latest)
            latest.lines.append(line)
            self._list(latest)
            return shown
        if latest is not None:
            latest.growing = False
        entry = _Entry(at, [line], growing=line.text.startswith(TRACEBACK))
        self._held.append(entry)
        own.append(entry)
        self._list(entry)
        return shown

    def _push_of_host(self, at: float, line: Line) -> None:
        """Take a line that is no rank's: horovodrun's, our launcher's, sshd's."""
        latest = self._of_host.get(line.host)
        if latest is not None and latest.growing and _belongs(latest, line.text):
            latest.lines.append(line)
            return
        entry = _Entry(at, [line], growing=line.text.startswith(TRACEBACK))
        self._held.append(entry)
        self._of_host[line.host] = entry

    def tick(self, now: float) -> list[Line]:
        """Return what has been held long enough."""
        shown: list[Line] = []
        while self._held and self._held[0].at <= now - HOLD:
            entry = self._held.popleft()
            shown += self._release(entry)
        return shown + self._tell(now, all_of_it=False)

    def end(self) -> list[Line]:
        """Return all that is left."""
        return [*self.tick(float("inf")), *self._tell(float("inf"), all_of_it=True)]

    def _list(self, entry: _Entry) -> None:
        self._like.setdefault(entry.key, {}).setdefault(_rank(entry), deque()).append(entry)

    def _unlist(self, entry: _Entry) -> None:
        """Take an entry, a rank's oldest or newest of its text, off the list of what is alike."""
        by_rank = self._like[entry.key]
        like = by_rank[_rank(entry)]
        if like[0] is entry:
            like.popleft()
        else:
            like.remove(entry)
        if not like:
            del by_rank[_rank(entry)]
        if not by_rank:
            del self._like[entry.key]

    def _drop(self, entry: _Entry) -> None:
        """Forget what is no longer held."""
        self._unlist(entry)
        own = self._of_rank[_rank(entry)]
        if own[0] is entry:
            own.popleft()
        else:
            own.remove(entry)

    def _release(self, entry: _Entry) -> list[Line]:
        """Return what is shown of an entry whose time has come."""
        if entry.gone:
            return []
        entry.growing = False
        if entry.first.rank is not None:
            self._drop(entry)
        kind = self._kind(entry)
        if kind is not None:
            host = entry.first.host if kind.of_host else ""
            flood = self._floods.setdefault((kind.name, host), _Flood(told=entry.at))
            flood.last = entry.at
            if flood.shown or kind is HOROVODRUN or (kind.follows and self._others_failed(entry)):
                flood.shown = True
                flood.count += len(entry.lines)
                flood.sources |= {line.rank for line in entry.lines if line.rank is not None}
                return []
            flood.shown = True
            return entry.lines
        if len(entry.lines) > 1 and entry.first.rank is not None:
            self._failed.add(entry.first.rank)
        return self._with_like(entry)

    def _kind(self, entry: _Entry) -> Kind | None:
        """Return the flood an entry belongs to; the first failing rank's own lines belong to none that follow it."""
        patterns = (HOROVODRUN.pattern, RANK_ENDED)
        if entry.first.rank is None and all(any(p.search(text) for text in entry.key) for p in patterns):
            return HOROVODRUN
        # of a traceback only the errors count: its source lines may hold any word
        told = [text for text in entry.key if len(entry.lines) == 1 or not text.startswith((" ", TRACEBACK))]
        for kind in KINDS:
            if kind.of_host and entry.first.rank is not None:
                continue
            if kind.follows and self._cause is not None and entry.first.rank == self._cause:
                continue
            if any(kind.pattern.search(text) for text in told):
                return kind
        return None

    def _others_failed(self, entry: _Entry) -> bool:
        if self._cause is not None:
            return entry.first.rank != self._cause
        return bool(self._failed - {entry.first.rank})

    def _with_like(self, entry: _Entry) -> list[Line]:
        """Return an entry's lines, with how many others said the same at once."""
        rank = entry.first.rank
        if rank is None:
            return entry.lines
        others = [like[0] for other, like in self._like.get(entry.key, {}).items() if other != rank]
        told = []
        if len(others) >= MANY - 1:
            told.append(f"the same from {len(others)} other ranks")
            self._fold(others)
        again = list(takewhile(lambda later: later.key == entry.key, self._of_rank[rank]))
        if len(again) >= MANY - 1:
            told.append(f"{len(again)} more times")
            self._fold(again)
        if not told:
            return entry.lines
        last = entry.lines[-1]
        return [*entry.lines[:-1], Line(last.host, rank, f"{last.text}   ({', '.join(told)})")]

    def _fold(self, entries: list[_Entry]) -> None:
        for entry in entries:
            entry.gone = True
            self._drop(entry)

    def _tell(self, now: float, *, all_of_it: bool) -> list[Line]:
        """Return the sums of floods that pause, or that have lasted a while."""
        told = []
        for (name, host), flood in self._floods.items():
            if not flood.count:
                continue
            if all_of_it or now - flood.last >= QUIET or now - flood.told >= TELL:
                told.append(Line(host, None, f"... {flood.count} {_lines(flood)}: {name} (--raw shows them)"))
                flood.count, flood.told, flood.sources = 0, now, set()
        return told


def _rank(entry: _Entry) -> int:
    """Return the rank of an entry that has one."""
    assert entry.first.rank is not None
    return entry.first.rank


def _lines(flood: _Flood) -> str:
    ranks = sorted(flood.sources)
    whose = f" of rank{'s' * (len(ranks) > 1)} {', '.join(str(rank) for rank in ranks)}" if ranks else ""
    return f"more line{'s' * (flood.count > 1)}{whose}"


def _belongs(entry: _Entry, text: str) -> bool:
    """Tell whether a rank's next line goes on with its traceback: frames, the error, and a chained one."""
    if entry.first.rank is None and AFTER.match(text):
        return True
    last = next((told.text for told in reversed(entry.lines) if told.text.strip()), "")
    if last.startswith((" ", TRACEBACK)):
        return True  # the first line that is not indented is the error
    if CHAIN.match(last):
        return not text.strip() or text.startswith(TRACEBACK)
    return not text.strip() or CHAIN.match(text) is not None
