"""Log lines of ranks: whose they are, in every form in which Gloo and Open MPI mark them."""

from __future__ import annotations

import pytest

from hvdcompose.report.logs import Line, label, parse_line

RANKS = ("alpha", "alpha", "beta")
LINES = [
    pytest.param("[0]<stdout>:epoch 1", Line("alpha", 0, "epoch 1"), id="Gloo"),
    pytest.param("[2]<stderr>:Traceback", Line("beta", 2, "Traceback"), id="Gloo, stderr"),
    pytest.param("[2]<stdout>:    indented", Line("beta", 2, "    indented"), id="Gloo adds no blank of its own"),
    pytest.param("[1]<stdout>:", Line("alpha", 1, ""), id="an empty line"),
    pytest.param("[1,2]<stdout>:epoch 1", Line("beta", 2, "epoch 1"), id="Open MPI 4"),
    pytest.param("[1,2]<stderr>:epoch 1", Line("beta", 2, "epoch 1"), id="Open MPI 4, stderr"),
    pytest.param("[1,2]<stdout>: epoch 1", Line("beta", 2, "epoch 1"), id="Open MPI 5"),
    pytest.param(
        "Tue Dec  1 08:31:57 2026[2]<stdout>:epoch 1",
        Line("beta", 2, "Tue Dec  1 08:31:57 2026 epoch 1"),
        id="Gloo with -prefix-timestamp",
    ),
    pytest.param(
        "Tue Dec 11 08:31:57 2026[1,2]<stdout>:epoch 1",
        Line("beta", 2, "Tue Dec 11 08:31:57 2026 epoch 1"),
        id="Open MPI with a timestamp",
    ),
    pytest.param("[0]<stdout>:[1]<stdout>:x", Line("alpha", 0, "[1]<stdout>:x"), id="only the first mark"),
    pytest.param("[7]<stdout>:x", Line("alpha", 7, "x"), id="a rank that nobody knows stays where it was read"),
    pytest.param(
        "hvdcompose: all 1 workers", Line("alpha", None, "hvdcompose: all 1 workers"), id="the launcher's own"
    ),
    pytest.param("", Line("alpha", None, ""), id="empty"),
    pytest.param("[0]: not a mark", Line("alpha", None, "[0]: not a mark"), id="brackets"),
    pytest.param("x [0]<stdout>:y", Line("alpha", None, "x [0]<stdout>:y"), id="not at the beginning"),
    pytest.param("[-1]<stdout>:y", Line("alpha", None, "[-1]<stdout>:y"), id="no rank"),
    pytest.param("[2]<stderr>:10%|#  \r20%|## \r", Line("beta", 2, "20%|## "), id="a progress bar"),
    pytest.param("[2]<stderr>:10%\r[2]<stderr>:20%", Line("beta", 2, "20%"), id="a bar whose steps are marked"),
    pytest.param("10%\r20%\r", Line("alpha", None, "20%"), id="a bar of no rank"),
    pytest.param("[0]<stdout>:one\r", Line("alpha", 0, "one"), id="an end of line as on Windows"),
    pytest.param("[2]<stderr>:100%\r     \r", Line("beta", 2, "100%"), id="a bar that clears itself"),
    pytest.param("\r\r", Line("alpha", None, ""), id="only returns"),
    pytest.param("real\t1m34.400s", Line("alpha", None, "real\t1m34.400s"), id="times"),
]


@pytest.mark.parametrize(("text", "line"), LINES)
def test_lines(text, line):
    assert parse_line("alpha", RANKS, text) == line


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (Line("alpha", 0, "x"), "alpha r0  |"),
        (Line("beta", 12, "x"), "beta  r12 |"),
        (Line("beta", None, "x"), "beta      |"),
    ],
)
def test_labels_line_up(line, text):
    assert label(line, 5) == text
