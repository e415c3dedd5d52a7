"""All rules, in the order to fix what they find, and the rows of the screen that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from hvdcompose.doctor import (
    rules_data,
    rules_drift,
    rules_engine,
    rules_gpu,
    rules_image,
    rules_network,
    rules_ssh,
)
from hvdcompose.doctor.facts import Facts, HostFacts
from hvdcompose.doctor.rule import CLIENT, Finding, Needs, Rule

State = Literal["ok", "note", "FAIL", "-"]
THEMES: dict[str, tuple[Rule, ...]] = {
    module.TITLE: module.RULES
    for module in (rules_engine, rules_image, rules_data, rules_gpu, rules_network, rules_ssh, rules_drift)
}
RULES: tuple[Rule, ...] = tuple(rule for rules in THEMES.values() for rule in rules)
CHECKS: tuple[str, ...] = tuple(dict.fromkeys(rule.check for rule in RULES))


def findings(facts: Facts) -> list[Finding]:
    """Return everything the rules find, errors first, in the order to fix it."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: finding.level != "error")


def errors(found: Sequence[Finding]) -> list[Finding]:
    """Return what would stop the run."""
    return [finding for finding in found if finding.level == "error"]


def _called(facts: Facts, name: str) -> bool:
    """Tell whether a call to or from a host said anything."""
    pairs = [pair for pair in facts.reaches if name in pair]
    return any(all(rules_network.can_be_called(facts, end) for end in pair) for pair in pairs)


# what a rule needs -> whether it is there, for one host; `gpus` is nothing to look at where none are reserved
KNOWN: dict[Needs, Callable[[Facts, HostFacts], bool]] = {
    "client": lambda facts, host: facts.compose is not None,
    "host": lambda facts, host: True,
    "engine": lambda facts, host: host.engine is not None,
    "image": lambda facts, host: host.image is not None,
    "container": lambda facts, host: host.probe is not None,
    "probe": lambda facts, host: host.probe is not None,
    "gpus": lambda facts, host: host.probe is not None and host.reserves_gpus,
    "worker gpus": lambda facts, host: host.worker_gpus is not None,
    "ports": lambda facts, host: _called(facts, host.host.name),
    "login": lambda facts, host: host.host.name in facts.logins,
}  # fmt: skip


def state(facts: Facts, found: Sequence[Finding], check: str, name: str) -> State:
    """Return the cell of one check and one host; "-" where nothing could be looked at, or nothing is to be."""
    levels = {finding.level for finding in found if finding.check == check and finding.host in (name, CLIENT)}
    if levels:
        return "FAIL" if "error" in levels else "note"
    host = facts.hosts[name]
    return "ok" if any(rule.check == check and KNOWN[rule.needs](facts, host) for rule in RULES) else "-"
