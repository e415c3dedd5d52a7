"""One run as one HTML page that needs nothing else: no script, no style sheet, no picture from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from html import escape

from hvdcompose.report.records import Record, duration, metric, result
from hvdcompose.report.runs import clock, prepared_rows, rank_rows
from hvdcompose.report.timeline import drawing

TAIL = 60  # lines of each log

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }}
th {{ color: #666; font-weight: normal; }}
pre {{ background: #f4f4f4; padding: .7rem; overflow-x: auto; font-size: 13px; }}
svg {{ width: 100%; }} svg text {{ font: 13px system-ui, sans-serif; fill: #444; }}
.failed {{ color: #a61c00; }} .cause {{ border-left: 5px solid #cc4125; padding-left: 1rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def page(record: Record, live: str | None, logs: Mapping[str, Sequence[str]], zone: tzinfo | None) -> str:
    """Return the page; `logs` are the lines of each of the run's logs, of which the last are shown."""
    parts = [
        _cause(record, live),
        _facts(record, live, zone),
        _section("Phases", drawing(record)),
        _section("Ranks", _ranks(record)),
        _section("Prepare", _prepared(record)),
        _section("Metrics", _table([(name, str(value)) for name, value in record.metrics.items()])),
        *(_section(f"The end of {name}", _pre(lines[-TAIL:])) for name, lines in logs.items()),
    ]
    return PAGE.format(title=f"Run {escape(record.run)}", body="\n".join(part for part in parts if part))


def _cause(record: Record, live: str | None) -> str:
    if record.state(live) == "done":
        return ""
    if record.cause is None:
        return f'<p class="failed">{escape(result(record, live))}</p>'
    lines = _pre(record.cause.lines) if record.cause.lines else ""
    return f'<div class="cause"><p class="failed">{escape(record.cause.told)}</p>{lines}</div>'


def _facts(record: Record, live: str | None, zone: tzinfo | None) -> str:
    return _table(
        [
            ("result", record.state(live) if record.code is None else f"{record.state(live)}, exit {record.code}"),
            ("metric", metric(record)),
            ("command", record.shown_command),
            ("ranks", f"{record.np} on {', '.join(record.used_hosts)}"),
            ("begin", clock(record.begin, zone)),
            ("end", clock(record.end, zone)),
            ("real, user, sys", ", ".join(duration(value) or "?" for value in (record.real, record.user, record.sys))),
            ("image", record.image),
            ("code", record.code_digest),
            ("launch", record.launch),
            ("horovodrun", " ".join(record.command)),
        ]
    )


def _ranks(record: Record) -> str:
    return _rows(("rank", "host", "result", "took", "user", "sys"), rank_rows(record))


def _prepared(record: Record) -> str:
    return _rows(("host", "result", "took"), prepared_rows(record))


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}" if body else ""


def _table(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and what they are, without those of which nothing is known."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(told)}</td></tr>\n" for name, told in pairs if told)
    return f"<table>\n{rows}</table>" if rows else ""


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table>\n<tr>{cells}</tr>\n{body}</table>"


def _pre(lines: Sequence[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
