"""The session that docs/ shows, typed on the hosts of a lab: every line that is shown is seen."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs  # noqa: E402

pytestmark = pytest.mark.engine


@pytest.fixture
def folder(lab4: Desk, tmp_path: Path) -> Iterator[Path]:
    """The folder of the session; whatever it left on the hosts is removed afterwards."""
    path = tmp_path / "demo"
    path.mkdir()
    yield path
    if (path / "cluster.yaml").exists():
        words = lab4.hvd_words("down", "--volumes", "--yes")
        subprocess.run(words, cwd=path, env=lab4.env, capture_output=True, timeout=120)


def in_this_lab(text: str, lab: Desk) -> str:
    return re.sub(r"\blab([1-4])\b", lambda found: lab.host(int(found[1])), text)


def lines_of(text: str, lab: Desk) -> set[str]:
    """Return what is told, without what differs from one time to the next: names of hosts, numbers, ids, widths."""
    for number in range(1, 5):
        text = text.replace(lab.host(number), f"lab{number}").replace(lab.address(number), f"10.213.77.{10 + number}")
    text = re.sub(r"\b[0-9a-f]{12,}\b|\b\d{8}-\d{6}-\w+\b", "ID", text)
    text = re.sub(r"\b(?:About|Less) (?:a|an|than a) \w+|\b\d+ (?:seconds?|minutes?)\b", "SOME TIME", text)
    return {re.sub(r"\d+", "N", " ".join(line.split())) for line in text.splitlines() if line.strip()}


def test_the_session(lab4: Desk, folder: Path) -> None:
    env = {**lab4.env, "PATH": f"{Path(sys.executable).parent}:{lab4.env['PATH']}", "COLUMNS": "110"}
    told: list[tuple[str, str]] = []

    def run(command: str) -> str:
        words = ["sh", "-c", in_this_lab(command, lab4)]
        done = subprocess.run(
            words, cwd=folder, env=env, text=True, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        told.append((command, done.stdout))
        assert done.returncode == 0, done.stdout
        return done.stdout

    missing = {}
    for page in docs.SESSION:
        text = (ROOT / "docs" / page).read_text()
        shown = [
            part for kind, body in docs.FENCE.findall(text) if kind == "console" for part in body.split("$ ") if part
        ]
        docs.played(text, run, folder)
        for part in shown:
            command, _, output = part.partition("\n")
            seen = next(out for typed, out in told if typed == command)
            left = lines_of(output, lab4) - lines_of(seen, lab4) - {"..."}
            if left:
                missing[command] = (sorted(left), seen)
    assert missing == {}
