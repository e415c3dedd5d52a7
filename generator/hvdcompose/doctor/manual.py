"""The manual of `doctor`, made from the rules themselves: what each looks at, and what to type. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hvdcompose.doctor.rule import Rule

HEAD = """\
# What `hvdcompose doctor` looks at

Made from the rules in `generator/hvdcompose/doctor/`: `HVD_MANUAL=write .venv/bin/pytest tests/doctor/test_manual.py`.

`hvdcompose doctor` asks every host, and each of all others, what could stop a run; it starts nothing that stays. On
each host one helper container is made as the run's own would be (image, network, GPUs, volumes, limits) and removed
again. The hosts call each other on the ssh port and on three random ones, and the primary logs in to every worker
that runs.

The screen has a row for each check, a column for each host: `ok`, `note` (worth knowing), `FAIL` (would stop the run),
`-` (nothing to look at, or not possible yet). Then who reaches whom, how the hosts compare, and what to do, first
things first.

The exit code is 0 without a `FAIL`, 4 with one. `hvdcompose apply` and `hvdcompose run` look first and refuse
with the same words: at all of it when something changed since the last look that found nothing, else only where a
container is made.
"""


def _typed(remedy: str) -> str:
    """Return a remedy with its fields as capitals: {host} -> HOST; and with doubled braces as they are printed."""
    capitals = re.sub(r"(?<!{){(\w+)}(?!})", lambda found: found.group(1).upper(), remedy)
    return capitals.replace("{{", "{").replace("}}", "}")


def manual(themes: Mapping[str, tuple[Rule, ...]]) -> str:
    """Return the whole text: one entry for each rule, under its theme."""
    parts = [HEAD]
    for title, rules in themes.items():
        parts.append(f"\n## {title}\n")
        for rule in rules:
            level = "" if rule.level == "error" else " (a note)"
            parts.append(f"\n**{rule.check}**{level}: {rule.text}\n")
            parts += [f"\n    {line}\n" if first else f"    {line}\n" for first, line in _lines(_typed(rule.remedy))]
    return "".join(parts)


def _lines(text: str) -> list[tuple[bool, str]]:
    return [(number == 0, line) for number, line in enumerate(text.splitlines())]
