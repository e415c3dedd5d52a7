"""The session that docs/ shows, typed on the hosts of a lab: every line that is shown is seen.

HVD_GOLDEN=write keeps what is printed in the pages; then read `git diff docs`.
"""

from __future__ import annotations

import os
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
# what differs from one time to the next
CHANGES = (
    (r"\b[0-9a-f]{12,}\b|\b\d{8}-\d{6}-\w+\b", "ID"),
    (r"\((?:health: )?(?:healthy|starting)\)", "(HEALTH)"),
    (r"\b(?:About|Less) (?:an?|than an?) \w+|\b\d+ (?:seconds?|minutes?)\b", "SOME TIME"),
    (r"\b(?:\d+m)?\d+(?:\.\d+)?s\b", "SOME TIME"),
    (r"/\S*/demo/", "/demo/"),
    (r"\d+", "N"),
)


@pytest.fixture
def folder(lab4: Desk, tmp_path: Path) -> Iterator[Path]:
    """The folder of the session; whatever it left on the hosts is removed afterwards."""
    path = tmp_path / "demo"
    path.mkdir()
    yield path
    if (path / "cluster.yaml").exists():
        words = lab4.hvd_words("down", "--volumes", "--yes")
        subprocess.run(words, cwd=path, env=lab4.env, capture_output=True, timeout=120)


def as_shown(text: str, lab: Desk) -> str:
    """Return what was printed with the names and addresses of the pages' lab, and no line of an image's way."""
    for number in range(1, 5):
        text = text.replace(lab.host(number), f"lab{number}").replace(lab.address(number), f"10.213.77.{10 + number}")
    # init can tell the interface where an earlier test left an image on the hosts
    return re.sub(r"(?m)^lab\d +(?:send )?image .*\n| \(eth0\)| +$", "", text)


def lines_of(text: str) -> set[str]:
    """Return the lines of a text without what differs from one time to the next."""
    for pattern, name in CHANGES:
        text = re.sub(pattern, name, text)
    return {" ".join(line.split()) for line in text.splitlines() if line.strip()}


def outputs(text: str) -> list[tuple[str, str]]:
    """Return (command, what it printed) for all commands of a page."""
    fences = [body for kind, body in docs.FENCE.findall(text) if kind == "console"]
    parts = [part.partition("\n") for body in fences for part in re.split(r"^\$ ", body, flags=re.M) if part]
    return [(command, output) for command, _, output in parts]


def test_the_session(lab4: Desk, folder: Path) -> None:
    env = {**lab4.env, "PATH": f"{Path(sys.executable).parent}:{lab4.env['PATH']}", "COLUMNS": "110"}

    def run(command: str) -> str:
        here = re.sub(r"\blab([1-4])\b", lambda found: lab4.host(int(found[1])), command)
        done = subprocess.run(
            ["sh", "-c", here], cwd=folder, env=env, text=True, timeout=300, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}"
        return as_shown(done.stdout, lab4)

    unseen = {}
    for page in docs.SESSION:
        path = ROOT / "docs" / page
        text = path.read_text()
        played = docs.played(text, run, folder)
        if os.environ.get("HVD_GOLDEN") == "write":
            path.write_text(played)
            continue
        for (command, shown), (_, seen) in zip(outputs(text), outputs(played), strict=True):
            left = lines_of(shown) - lines_of(seen) - {"..."}
            if left:
                unseen[command] = (sorted(left), seen)
    assert unseen == {}
