"""README.md says what is so: its commands exist, and its cluster.yaml can be read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hvdcompose.config.source import parse_cluster

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MAIN = "from hvdcompose.cli.main import main; main()"
FENCES = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", README, re.M | re.S)
TYPED = [line.strip()[2:] for kind, body in FENCES if kind == "console" for line in body.splitlines() if "$ " in line]
NAMED = re.findall(r"`(hvdcompose [^`]+)`", README)


def words_of(command: str) -> list[str]:
    """Return hvdcompose's subcommand words in a command: what stands before its options and arguments."""
    words = command.split()[1:]
    return words[:2] if words[0] in ("lab", "keys", "runs") else words[:1]


def test_there_is_something_to_check() -> None:
    assert "make demo" in TYPED
    assert "make test" in TYPED
    assert len([command for command in TYPED if command.startswith("hvdcompose ")]) >= 5


@pytest.mark.parametrize("command", sorted({c for c in TYPED + NAMED if c.startswith("hvdcompose ")}))
def test_every_command_of_hvdcompose_exists_with_its_options(command: str) -> None:
    words = [sys.executable, "-c", MAIN, *words_of(command), "--help"]
    helped = subprocess.run(words, capture_output=True, text=True, env={"COLUMNS": "200", "PATH": ""}, check=False)
    assert helped.returncode == 0, helped.stderr
    for option in re.findall(r"(?<![\w-])--?[a-z]+", re.sub(r'"[^"]*"', "", command.split(" -- ")[0])):
        assert option in helped.stdout


@pytest.mark.parametrize("target", sorted({c.split()[1] for c in TYPED if c.startswith("make ")}))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_the_first_cluster_yaml_can_be_read() -> None:
    (text,) = (body for kind, body in FENCES if kind == "yaml")
    cluster = parse_cluster(text, source="README.md", is_folder=lambda folder: folder == "./trainer")
    assert [host.name for host in cluster.hosts] == ["ganymede", "europa"]
    assert cluster.primary_name == "ganymede"


def test_the_mistakes_shown_are_told_in_these_words() -> None:
    shown = re.findall(r"^ *cluster\.yaml:\d+:\d+: .*$", README, re.M)
    assert shown
    text = (ROOT / "cluster.yaml").read_text()
    for old, new in (("port: 12345", "port: 22"), ("lab2: {address: 10.213.77.12}", "lab2: {adress: 10.213.77.12}")):
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(Exception) as caught:
        parse_cluster(text, source="cluster.yaml", is_folder=lambda _: True)
    assert str(caught.value).splitlines() == [line.strip() for line in shown]
