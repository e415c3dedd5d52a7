"""The screen of `doctor` in lines of text: checks and hosts, who reaches whom, how hosts compare, what to do. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from hvdcompose.doctor.drift import Row, drift, slowest
from hvdcompose.doctor.facts import Facts
from hvdcompose.doctor.rule import Finding
from hvdcompose.doctor.rules import CHECKS, state
from hvdcompose.doctor.rules_gpu import number
from hvdcompose.doctor.rules_network import bad

WIDTH = 80


def _grid(label: str, rows: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    """Return a table of cells, a column for each host: by its name, or by its number where the names are too long."""
    first = max(len(name) for name in (label, *rows))
    widest = max([len(cell) for cells in rows.values() for cell in cells] or [1])
    wide = [max(len(host), widest) for host in hosts]
    if first + sum(wide) + 2 * len(hosts) <= WIDTH:
        heads, widths, gap = list(hosts), wide, "  "
    else:
        heads = [str(place) for place in range(1, len(hosts) + 1)]
        widths, gap = [max(len(head), widest) for head in heads], " "
        if first + sum(widths) + len(hosts) > WIDTH:  # one letter has to do: o, n, F, -
            short = {"ok": ".", "note": "n", "FAIL": "F"}
            rows = {name: [short.get(cell, cell[:1]) for cell in cells] for name, cells in rows.items()}
            widths = [len(head) for head in heads]
    lines = [gap.join([label.ljust(first), *(head.ljust(width) for head, width in zip(heads, widths, strict=True))])]
    for name, cells in rows.items():
        lines.append(gap.join([name.ljust(first), *(c.ljust(w) for c, w in zip(cells, widths, strict=True))]))
    return [line.rstrip() for line in lines]


def legend(hosts: Sequence[str]) -> list[str]:
    """Return the hosts by number, for tables whose columns are numbered."""
    told = "  ".join(f"{place} {host}" for place, host in enumerate(hosts, 1))
    return textwrap.wrap(told, WIDTH, break_long_words=False, break_on_hyphens=False)


def check_rows(facts: Facts, found: Sequence[Finding]) -> dict[str, list[str]]:
    """Return {check: a cell for each host}, without checks that say nothing of any host."""
    rows = {check: [str(state(facts, found, check, name)) for name in facts.hosts] for check in CHECKS}
    return {check: cells for check, cells in rows.items() if set(cells) != {"-"}}


def pair_cell(facts: Facts, source: str, target: str) -> str:
    """Return how calls from one host to another went: ok, or which ports failed: ssh, tcp (the random ones), all."""
    reaches = facts.reaches.get((source, target))
    if not reaches:
        return "-"
    failed = [reach.port for reach in reaches if bad(facts, target, reach)]
    if not failed:
        return "ok"
    ssh = facts.cluster.ssh.port in failed
    return "all" if ssh and len(failed) > 1 else "ssh" if ssh else "tcp"


def pair_rows(facts: Facts) -> dict[str, list[str]]:
    """Return {from: a cell for each host that is called}; empty where nobody called."""
    if not facts.reaches:
        return {}
    return {source: [pair_cell(facts, source, target) for target in facts.hosts] for source in facts.hosts}


def drift_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each thing: what it is everywhere, or who differs."""
    first = max((len(row.name) for row in rows), default=0)
    lines = []
    for row in rows:
        (usual, hosts), *others = row.groups
        told = usual if not others else f"{usual} ({_hosts(hosts)})"
        told += "".join(f"; {value} ({_hosts(held)})" for value, held in others)
        lines += textwrap.wrap(
            told, WIDTH, initial_indent=f"{row.name:<{first}}  ", subsequent_indent=" " * (first + 2)
        )
    return lines


def _hosts(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 4 else f"{len(hosts)} hosts"


def finding_lines(found: Sequence[Finding]) -> list[str]:
    """Return the findings, numbered in the order to fix them, each with what to do; the notes after them."""
    lines = []
    for place, finding in enumerate(found, 1):
        head = f"{place}. " if finding.level == "error" else "note: "
        lines += textwrap.wrap(
            f"{head}{finding}", WIDTH, subsequent_indent=" " * 3, break_long_words=False, break_on_hyphens=False
        )
        lines += [f"   -> {line}" for line in finding.remedy.splitlines()]
    return lines


def screen(facts: Facts, found: Sequence[Finding]) -> list[str]:
    """Return all lines of the screen."""
    hosts = list(facts.hosts)
    checks = _grid("CHECK", check_rows(facts, found), hosts)
    pairs = _grid("FROM \\ TO", rows, hosts) if (rows := pair_rows(facts)) else []
    numbered = any(lines and hosts[0] not in lines[0].split() for lines in (checks, pairs))
    lines = [*(legend(hosts) if numbered else []), *checks]
    if numbered and any(" F" in line or " ." in line for line in checks[1:]):
        lines.append(". ok   n note   F FAIL   - nothing to look at")
    if pairs:
        lines += ["", *pairs]
        if any(cell in ("ssh", "tcp", "all") for cells in rows.values() for cell in cells):
            lines.append("ssh: its ssh port fails   tcp: random ports fail   all: both")
    table = drift_lines(drift(facts))
    if table:
        lines += ["", *table]
    slow = slowest(facts)
    if slow:
        name, gpu = slow
        capability = f", compute capability {number(gpu.capability)}" if gpu.capability else ""
        lines.append(f"the others wait for the slowest GPU: {gpu.name} of {name}{capability}")
    if found:
        lines += ["", *finding_lines(found)]
    return lines


def to_json(facts: Facts, found: Sequence[Finding]) -> dict[str, object]:
    """Return everything for `--json`."""
    hosts = list(facts.hosts)
    return {
        "checks": {check: dict(zip(hosts, cells, strict=True)) for check, cells in check_rows(facts, found).items()},
        "pairs": [
            {
                "from": source,
                "to": target,
                "state": pair_cell(facts, source, target),
                "ports": {str(reach.port): reach.result for reach in reaches},
            }
            for (source, target), reaches in facts.reaches.items()
        ],
        "logins": {name: {"ok": login.ok, "reason": login.reason} for name, login in facts.logins.items()},
        "hosts": {row.name: dict(row.values) for row in drift(facts)},
        "findings": [finding.to_json() for finding in found],
    }
