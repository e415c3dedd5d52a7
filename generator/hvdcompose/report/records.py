"""Records of runs, as the launcher writes them on the primary: read, told in a line, found by name. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hvdcompose.errors import HvdError, UsageError

State = Literal["done", "failed", "stopped", "live", "interrupted"]
STOPPED = 143  # 128 + SIGTERM: `hvdcompose stop`
LAST = "last"
METRICS = ("accuracy", "val_accuracy", "test_accuracy", "acc", "loss", "val_loss")  # the first of these is shown
SHORT = 60  # characters of a command in a row


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended: its exit code (negative: a signal), and what ended it. Times in seconds."""

    rank: int
    host: str
    code: int | None = None
    ended: str = "itself"
    begin: float | None = None
    end: float | None = None
    user: float | None = None
    sys: float | None = None
    oom: bool = False
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """What ended a run that failed: the first failing rank, in one sentence, and its last lines."""

    told: str
    rank: int | None = None
    host: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """How `train.prepare` ended on one host, and the seconds it took; skipped where it had been done before."""

    code: int | None = None
    seconds: float | None = None
    skipped: bool = False

    @property
    def told(self) -> str:
        """How it ended, in words."""
        return "skipped: done before" if self.skipped else told_code(self.code)


@dataclass(frozen=True)
class Record:
    """One run. `begin` and `end` are unix seconds; `end` and `code` are None while it runs, or if it never ended."""

    run: str
    np: int = 0
    hosts: tuple[str, ...] = ()  # of each rank
    command: tuple[str, ...] = ()  # horovodrun's words
    train_command: tuple[str, ...] = ()
    launch: str = ""
    image: str = ""
    code_digest: str = ""
    begin: float = 0.0
    end: float | None = None
    code: int | None = None
    real: float | None = None
    user: float | None = None
    sys: float | None = None
    ranks: tuple[RankEnd, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    cause: Cause | None = None
    prepare: Mapping[str, Prepared] = field(default_factory=dict)  # of each host
    raw: Mapping[str, Any] = field(default_factory=dict)  # as written

    def state(self, live: str | None) -> State:
        """Return how the run stands; `live` names the run whose launcher lives."""
        if self.code is None or self.end is None:
            return "live" if live == self.run else "interrupted"
        if self.code == 0:
            return "done"
        return "stopped" if self.code == STOPPED else "failed"

    @property
    def used_hosts(self) -> tuple[str, ...]:
        """The hosts that had ranks, each once, in the order of the ranks."""
        return tuple(dict.fromkeys(self.hosts))

    @property
    def shown_command(self) -> str:
        """The user's command as one would type it in a shell."""
        return shlex.join(self.train_command)


def parse_record(text: str) -> Record:
    """Return the record in a file's text; what an older launcher did not write is left out. Raises ValueError."""
    told = json.loads(text)
    if not isinstance(told, dict) or not isinstance(told.get("run"), str):
        raise ValueError("no record of a run")
    try:
        return _record(told)
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"no record of a run: {error}") from None


def _record(told: dict[str, Any]) -> Record:
    cause = told.get("cause")
    return Record(
        run=told["run"],
        np=int(told.get("np") or 0),
        hosts=_strings(told.get("hosts")),
        command=_strings(told.get("command")),
        train_command=_strings(told.get("train_command")),
        launch=str(told.get("launch") or ""),
        image=str(told.get("image") or ""),
        code_digest=str(told.get("code_digest") or ""),
        begin=float(told.get("begin") or 0.0),
        end=_number(told.get("end")),
        code=told.get("code") if isinstance(told.get("code"), int) else None,
        real=_number(told.get("real")),
        user=_number(told.get("user")),
        sys=_number(told.get("sys")),
        ranks=tuple(sorted((_rank(entry) for entry in told.get("ranks") or []), key=lambda entry: entry.rank)),
        metrics=dict(told.get("metrics") or {}),
        cause=_cause(cause) if cause else None,
        prepare={str(host): _prepared(entry) for host, entry in (told.get("prepare") or {}).items()},
        raw=told,
    )


def _rank(told: Mapping[str, Any]) -> RankEnd:
    return RankEnd(
        rank=int(told["rank"]),
        host=str(told.get("host") or ""),
        code=told.get("code") if isinstance(told.get("code"), int) else None,
        ended=str(told.get("ended") or "itself"),
        begin=_number(told.get("begin")),
        end=_number(told.get("end")),
        user=_number(told.get("user")),
        sys=_number(told.get("sys")),
        oom=bool(told.get("oom")),
        command=_strings(told.get("command")),
    )


def _cause(told: Mapping[str, Any]) -> Cause:
    rank = told.get("rank")
    return Cause(
        told=str(told.get("told") or ""),
        rank=rank if isinstance(rank, int) else None,
        host=str(told.get("host") or ""),
        lines=_strings(told.get("lines")),
    )


def _strings(told: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in told or ())


def _number(told: Any) -> float | None:
    return float(told) if isinstance(told, (int, float)) and not isinstance(told, bool) else None


def _prepared(told: Mapping[str, Any]) -> Prepared:
    code = told.get("code")
    return Prepared(code if isinstance(code, int) else None, _number(told.get("seconds")), bool(told.get("skipped")))


@dataclass(frozen=True)
class History:
    """All runs that the primary keeps, the newest first, and the one whose launcher lives."""

    records: tuple[Record, ...]
    live: str | None = None
    broken: tuple[str, ...] = ()  # runs whose record cannot be read

    @property
    def starting(self) -> bool:
        """True while a launcher lives that has not recorded its run yet: it waits for the workers."""
        return self.live is not None and self.live not in {record.run for record in self.records}

    def find(self, wanted: str) -> Record:
        """Return the run that is meant; see `find_run`."""
        name = find_run([record.run for record in self.records], wanted)
        return next(record for record in self.records if record.run == name)

    def to_json(self, record: Record) -> dict[str, Any]:
        """Return a record as it is written, with how it stands: done, failed, stopped, live, interrupted."""
        return {**record.raw, "state": record.state(self.live)}


def new_history(texts: Mapping[str, str], live: str | None) -> History:
    """Return what the texts of records tell; `live` is "" for a launcher that was started by hand."""
    records, broken = [], []
    for name, text in texts.items():
        try:
            records.append(parse_record(text))
        except ValueError:
            broken.append(name)
    records = newest_first(records)
    if live == "":
        live = next((record.run for record in records if record.end is None), None)
    return History(tuple(records), live, tuple(sorted(broken)))


def newest_first(records: Iterable[Record]) -> list[Record]:
    """Return the records in the order in which they are listed."""
    return sorted(records, key=lambda record: (record.begin, record.run), reverse=True)


def find_run(names: Sequence[str], wanted: str, what: str = "run") -> str:
    """Return the one of `names` (newest first) that is meant: its name, a beginning of it, or `last`.

    Raises HvdError where there is none at all, UsageError where none or several are meant.
    """
    if not names:
        raise HvdError(f"there is no {what} yet", hint="hvdcompose run")
    if wanted == LAST:
        return names[0]
    found = [name for name in names if name.startswith(wanted)] if wanted not in names else [wanted]
    if len(found) == 1:
        return found[0]
    if not found:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise UsageError(f"there is no {what} {wanted}", hint=f"there are: {shown}")
    raise UsageError(f"{wanted} begins several: {', '.join(found)}", hint="say more of it")


def duration(seconds: float | None) -> str:
    """Return seconds in a few words: 0.4s, 34.4s, 5m19s, 2h05m; "" for None."""
    if seconds is None:
        return ""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}s"
    if round(seconds) < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}m{rest:02d}s"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours}h{rest:02d}m"


def told_code(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "no record of its end"
    return f"exit {code}" if code >= 0 else f"killed by signal {-code}"


def told_end(entry: RankEnd) -> str:
    """Return how a rank ended, in words, with what ended it where that was not itself."""
    how = told_code(entry.code)
    if entry.oom:
        how += ", out of memory"
    return how if entry.ended == "itself" else f"{how} ({entry.ended})"


def result(record: Record, live: str | None) -> str:
    """Return how a run ended in a few words, the cause of a failure among them."""
    state = record.state(live)
    if state != "failed":
        return state
    return f"failed: {record.cause.told}" if record.cause else f"failed: exit {record.code}"


def metric(record: Record) -> str:
    """Return the figure by which one knows a run: "accuracy 0.8691", or "" where no rank printed one."""
    numbers = {
        name: value
        for name, value in record.metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    name = next((name for name in METRICS if name in numbers), None) or next(iter(numbers), None)
    return f"{name} {numbers[name]:.6g}" if name else ""


def shape(record: Record) -> str:
    """Return ranks and hosts: "4 on 2"."""
    return f"{record.np} on {len(record.used_hosts)}"


def shortened(text: str, length: int = SHORT) -> str:
    """Return a text cut to a length, with dots where something is missing."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def took(record: Record, live: str | None, now: float) -> float | None:
    """Return the seconds a run took, or has taken so far; None where nobody knows."""
    if record.real is not None:
        return record.real
    return now - record.begin if record.state(live) == "live" else None


def log_host(name: str, primary: str) -> str:
    """Return the host whose log a file of a run holds: launcher.log, worker-HOST.log, prepare-HOST.log."""
    stem = name.removesuffix(".log")
    for kind in ("worker-", "prepare-"):
        if stem.startswith(kind):
            return stem.removeprefix(kind)
    return primary
