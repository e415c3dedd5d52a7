"""The phases of a run, from the times in its record, and a drawing of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from hvdcompose.report.records import Record, duration, told_end

WIDTH, ROW, LEFT, RIGHT = 1000, 22, 170, 90  # of the drawing, in its own units
COLOURS = {"prepare": "#8e7cc3", "launch": "#f6b26b", "training": "#6aa84f", "end": "#999999"}
WELL, FAILED = "#93c47d", "#cc4125"


@dataclass(frozen=True)
class Bar:
    """A stretch of time, in seconds since the begin of the run."""

    name: str
    begin: float
    end: float
    colour: str
    told: str = ""


def phases(record: Record) -> list[Bar]:
    """Return prepare, launch, training and end, as far as the record tells them; none of no length."""
    begins = [entry.begin for entry in record.ranks if entry.begin is not None]
    ends = [entry.end for entry in record.ranks if entry.end is not None]
    prepared = max((entry.seconds or 0.0 for entry in record.prepare.values()), default=0.0)
    last = record.end if record.end is not None else max(ends, default=record.begin)
    first = min(begins, default=last)
    marks = [0.0, prepared, first - record.begin, max(ends, default=first) - record.begin, last - record.begin]
    for at in range(1, len(marks)):
        marks[at] = max(marks[at - 1], marks[at])  # clocks of hosts differ a little
    return [
        Bar(name, marks[at], marks[at + 1], colour)
        for at, (name, colour) in enumerate(COLOURS.items())
        if marks[at + 1] > marks[at]
    ]


def rank_bars(record: Record) -> list[Bar]:
    """Return a bar for each rank whose times are known."""
    return [
        Bar(
            f"rank {entry.rank} on {entry.host}",
            max(0.0, entry.begin - record.begin),
            max(0.0, entry.end - record.begin),
            WELL if entry.code == 0 else FAILED,
            told_end(entry),
        )
        for entry in record.ranks
        if entry.begin is not None and entry.end is not None
    ]


def drawing(record: Record) -> str:
    """Return the timeline as an SVG element, "" where the record holds no times."""
    parts, bars = phases(record), rank_bars(record)
    whole = max((bar.end for bar in (*parts, *bars)), default=0.0)
    if whole <= 0:
        return ""
    scale = (WIDTH - LEFT - RIGHT) / whole
    rows = [_row(bar, at + 1, scale, f"{bar.told}, {duration(bar.end - bar.begin)}") for at, bar in enumerate(bars)]
    top = "".join(_rectangle(bar, 0, scale, f"{bar.name}: {duration(bar.end - bar.begin)}") for bar in parts)
    legend = "".join(
        f'<rect x="{LEFT + at * 190}" y="{(len(bars) + 1) * ROW + 8}" width="12" height="12" fill="{bar.colour}"/>'
        + _text(LEFT + at * 190 + 18, len(bars) + 1, f"{bar.name} {duration(bar.end - bar.begin)}", down=18)
        for at, bar in enumerate(parts)
    )
    height = (len(bars) + 2) * ROW + 8
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="timeline">'
        f"{_text(0, 0, 'run')}{top}{_text(WIDTH - RIGHT + 6, 0, duration(whole))}{''.join(rows)}{legend}</svg>"
    )


def _row(bar: Bar, row: int, scale: float, title: str) -> str:
    told = duration(bar.end - bar.begin)
    return f"{_text(0, row, bar.name)}{_rectangle(bar, row, scale, title)}{_text(WIDTH - RIGHT + 6, row, told)}"


def _rectangle(bar: Bar, row: int, scale: float, title: str) -> str:
    width = max(1.0, (bar.end - bar.begin) * scale)
    return (
        f'<rect x="{LEFT + bar.begin * scale:.1f}" y="{row * ROW + 4}" width="{width:.1f}" height="{ROW - 8}" '
        f'fill="{bar.colour}"><title>{escape(title)}</title></rect>'
    )


def _text(x: float, row: int, text: str, *, down: int = 15) -> str:
    return f'<text x="{x}" y="{row * ROW + down}">{escape(text)}</text>'
