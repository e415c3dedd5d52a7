"""docs/doctor.md is what the rules say of themselves, and what they tell people to type exists."""

from __future__ import annotations

import os
import re
from pathlib import Path
from string import Formatter

import pytest

from hvdcompose.cli.main import app
from hvdcompose.config.model import Cluster, Horovod, Host, Image, Mount, Ssh, Train
from hvdcompose.doctor.manual import manual
from hvdcompose.doctor.rules import RULES, THEMES

MANUAL = Path(__file__).parents[2] / "docs" / "doctor.md"
CASES = {
    *(f"S{number:02}" for number in (1, 2, 3, 4, 7, 8, 10)),
    *(f"N{number:02}" for number in (1, 2, 3, 4, 5, 9, 10)),
    *(f"G{number:02}" for number in (1, 2, 4, 5, 6, 7, 8)),
    *(f"D{number:02}" for number in (1, 2, 4, 5, 6, 9, 10, 12)),
    *(f"W{number:02}" for number in (2, 4, 5)),
    *(f"H{number:02}" for number in (1, 3, 4, 5, 7, 8, 10, 11)),
}
# what cannot be seen before a run, and what hvdcompose does so that it cannot happen, or what tells of it afterwards
ELSEWHERE = {
    "D05": "apply waits for health, and follows the launcher to its exit code",
    "D12": "logs are followed by reconnecting views; Ctrl-C ends a view only",
    "W04": "the last lines of a command that failed are told",
    "W05": "one engine per host, with its own context and file",
    "H04": "report/diagnose.py tells who is missing, from the logs of the run",
    "H10": "logs parses the ranks' prefixes",
    "H11": "the learning rate is the script's; plan prints np",
}
KEYS = {name for model in (Cluster, Host, Image, Mount, Ssh, Train, Horovod) for name in model.model_fields}
KEYS |= {"version", "defaults", "driver", "ids", "memlock", "nofile", "NCCL_IB_DISABLE"}  # written, not in the model


def test_the_manual_is_current():
    text = manual(THEMES)
    if os.environ.get("HVD_MANUAL") == "write":
        MANUAL.write_text(text)
    assert MANUAL.read_text() == text, "HVD_MANUAL=write .venv/bin/pytest tests/doctor/test_manual.py"


def test_every_case_has_a_rule_or_a_reason_for_none():
    assert len(CASES) == 40
    named = {case for rule in RULES for case in re.findall(r"\b[SNGDWH]\d\d\b", rule.text)}
    assert named <= CASES
    assert CASES - named == set(ELSEWHERE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_tells_to_type_exists(rule):
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    groups = {str(group.name): group.typer_instance for group in app.registered_groups}
    for word, more in re.findall(r"hvdcompose ([a-z-]+)(?: ([a-z]+))?", rule.remedy):
        if word in groups:
            assert more in {command.callback.__name__ for command in groups[word].registered_commands}
        else:
            assert word in commands
    for quoted in re.findall(r"`([^`]+)`", rule.remedy):
        for key in re.findall(r"([A-Za-z_]+): ", quoted) or re.findall(r"^[a-z_]+(?:\.[a-z_]+)*$", quoted):
            assert set(key.split(".")) <= KEYS, quoted
    for key in re.findall(r"hosts\.\{host\}: (\w+):", rule.remedy):
        assert key in Host.model_fields


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_looks_at(rule):
    assert rule.text.endswith(".")
    assert len(rule.text) > 40
    assert all(field != "" for _, field, _, _ in Formatter().parse(rule.remedy) if field is not None)
