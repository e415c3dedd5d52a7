"""The shipped cluster.yaml, as `make demo` applies it: real training on Fashion-MNIST, the second time too."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from desk import Desk
from made import Made, times_of

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shipped(lab4: Desk, tmp_path: Path):
    """The shipped cluster.yaml and trainer, on the hosts of this session's lab."""
    text = (ROOT / "cluster.yaml").read_text()
    for number in range(1, 5):
        text = text.replace(f"lab{number}", lab4.host(number)).replace(f"10.213.77.{10 + number}", lab4.address(number))
    shutil.copytree(ROOT / "trainer", tmp_path / "trainer")
    made = Made(lab4, tmp_path, "mnist", 12345)
    made.file.write_text(text)
    yield made
    made.hvd("down", "--volumes", "--yes")


def accuracy_of(text: str) -> float:
    """Return the accuracy of the last epoch, in percent, from the line in the public example's form."""
    return float(re.findall(r"Test set: Average loss: \d+\.\d{4}, Accuracy: (\d+\.\d\d)%", text)[-1])


def result_of(text: str) -> dict:
    """Return the JSON line with which training ends."""
    (line,) = (line.partition("| ")[2] for line in text.splitlines() if '"accuracy"' in line)
    return json.loads(line)


def test_it_trains_on_four_hosts_and_an_edited_line_counts_in_the_next_run(shipped: Made) -> None:
    first = shipped.hvd("apply", "--follow")
    assert accuracy_of(first.stdout) >= 85.0
    told = result_of(first.stdout)
    assert (told["dataset"], told["np"]) == ("fashion-mnist", 4)
    assert round(told["accuracy"] * 100, 2) == accuracy_of(first.stdout)
    assert times_of(first.stdout)["real"] > told["train_seconds"]

    script = shipped.folder / "trainer" / "mnist.py"
    script.write_text(script.read_text().replace("Test set: Average loss", "Test set: Edited loss", 1))
    again = shipped.hvd("run")
    assert "the code changed" in again.stderr
    assert "Test set: Edited loss" in again.stdout
    assert result_of(again.stdout)["accuracy"] >= 0.85
    assert "no run is live" in shipped.hvd("stop").stderr
