"""Rows and lines that tell of past runs. Pure; `now` is unix seconds, `zone` where the reader's clock stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from hvdcompose.report.records import (
    Record,
    duration,
    metric,
    result,
    shape,
    shortened,
    told_end,
    took,
)

COLUMNS = ["RUN", "WHEN", "REAL", "RANKS", "RESULT", "METRIC", "COMMAND"]


def clock(seconds: float | None, zone: tzinfo | None) -> str:
    """Return a point in time as a person writes it, "" for none."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""


def row(record: Record, live: str | None, now: float, zone: tzinfo | None) -> tuple[str, ...]:
    """Return the cells of a run in the list of all."""
    return (
        record.run,
        clock(record.begin, zone),
        duration(took(record, live, now)),
        shape(record),
        result(record, live),
        metric(record),
        shortened(record.shown_command),
    )


def details(record: Record, live: str | None, now: float, zone: tzinfo | None) -> list[str]:
    """Return everything that is recorded of a run, the cause of a failure first."""
    state = record.state(live)
    told = [("run", record.run), ("result", result(record, live))]
    if state == "interrupted":
        told.append(("", "it never ended: its launcher was killed, or its host went down"))
    if record.cause is not None:
        who = "" if record.cause.rank is None else f"rank {record.cause.rank} on {record.cause.host}, its last lines:"
        told += [("cause", who)] * bool(record.cause.lines)
        told += [("", f"| {line}") for line in record.cause.lines]
    told += [
        ("command", record.shown_command),
        ("ranks", f"{record.np} on {', '.join(record.used_hosts)}"),
        ("begin", clock(record.begin, zone)),
        ("end", clock(record.end, zone)),
        ("real", duration(took(record, live, now))),
        ("user", duration(record.user)),
        ("sys", duration(record.sys)),
        ("exit", "" if record.code is None else str(record.code)),
        ("image", record.image),
        ("code", record.code_digest),
        ("launch", record.launch or "another command than cluster.yaml's"),
        ("metrics", ", ".join(f"{name} {value}" for name, value in record.metrics.items())),
        ("horovodrun", " ".join(record.command)),
    ]
    width = max(len(name) for name, _ in told)
    lines = [f"{name:<{width}}  {text}".rstrip() for name, text in told if text]
    return [*lines, *_prepared(record), *_ranks(record)]


def _prepared(record: Record) -> list[str]:
    rows = prepared_rows(record)
    return ["", *aligned(["PREPARE", "RESULT", "TOOK"], rows)] if rows else []


def _ranks(record: Record) -> list[str]:
    rows = rank_rows(record)
    return ["", *aligned(["RANK", "HOST", "RESULT", "TOOK", "USER", "SYS"], rows)] if rows else []


def prepared_rows(record: Record) -> list[tuple[str, ...]]:
    """Return (host, how `train.prepare` ended there, seconds it took) of every host."""
    return [(host, entry.told, duration(entry.seconds)) for host, entry in record.prepare.items()]


def rank_rows(record: Record) -> list[tuple[str, ...]]:
    """Return (rank, host, how it ended, real, user, sys) of every rank."""
    return [
        (str(entry.rank), entry.host, told_end(entry), duration(spent(entry.begin, entry.end)),
         duration(entry.user), duration(entry.sys))
        for entry in record.ranks
    ]  # fmt: skip


def spent(begin: float | None, end: float | None) -> float | None:
    """Return the seconds between two times, None where one is not known."""
    return None if begin is None or end is None else end - begin


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows under a head, in columns."""
    widths = [max(len(cells[at]) for cells in (head, *rows)) for at in range(len(head))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in (head, *rows)]  # fmt: skip
