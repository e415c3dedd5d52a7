"""The page about a run: everything is on it, nothing is fetched, and no text becomes markup."""

from __future__ import annotations

import itertools
import re
from datetime import UTC
from html.parser import HTMLParser

import pytest
from records import BEGIN, FAILED, RECORD, rank, record_of

from hvdcompose.report.page import TAIL, page
from hvdcompose.report.timeline import drawing, phases, rank_bars

EVIL = "</pre><script>alert('x')</script>&\"{}"
VOID = {"meta", "rect"}


class Reader(HTMLParser):
    """Checks that elements nest, and keeps their names, their attributes and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_what_ran_where_and_how_it_ended():
    logs = {"launcher.log": ["first", "last of the launcher"], "worker-beta.log": ["Server listening"]}
    read = Reader(page(record_of(), None, logs, UTC))
    for told in (
        "Run 20261201-100838-32c", "done, exit 0", "accuracy 0.8691", "python -m trainer.mnist --note 'two words'",
        "3 on alpha, beta", "2026-12-01 10:08:38", "1m34s, 1m20s, 4.5s", "sha256:abc", "c0de", "skipped: done before",
        "rank 2 on beta", "training", "The end of worker-beta.log", "last of the launcher",
    ):  # fmt: skip
        assert told in read.text, told


def test_a_failure_comes_first():
    text = page(record_of(**FAILED), None, {}, UTC)
    assert text.index("rank 2 on beta: exit 3") < text.index("<table>")
    assert "SystemExit: 3" in text
    assert "failed: exit 1" in page(record_of(code=1), None, {}, UTC)
    assert "interrupted" in page(record_of(code=None, end=None), None, {}, UTC)


def test_nothing_is_fetched():
    read = Reader(page(record_of(**FAILED), None, {"launcher.log": ["x"]}, UTC))
    assert not read.names & {"script", "link", "img", "iframe", "object", "a"}
    assert not read.attributes & {"href", "src", "onload", "onclick", "style"}


def test_no_text_of_a_run_becomes_markup():
    evil = {
        "run": EVIL,
        "train_command": [EVIL],
        "command": [EVIL],
        "image": EVIL,
        "hosts": [EVIL],
        "ranks": [rank(0, EVIL, 1, EVIL)],
        "metrics": {EVIL: EVIL},
        "cause": {**FAILED["cause"], "told": EVIL, "lines": [EVIL]},
        "prepare": {EVIL: {"code": 1}},
        "code": 1,
    }
    read = Reader(page(record_of(**evil), None, {EVIL: [EVIL]}, UTC))
    assert "script" not in read.names
    assert read.text.count(EVIL) >= 9


def test_of_a_long_log_the_end_is_shown():
    text = page(record_of(), None, {"launcher.log": [f"line {number}." for number in range(500)]}, UTC)
    assert re.findall(r"line (\d+)\.", text) == [str(number) for number in range(500 - TAIL, 500)]


def test_a_record_of_almost_nothing_is_a_page():
    Reader(page(record_of(**dict.fromkeys(RECORD.keys() - {"run"})), None, {}, UTC))


def test_phases_follow_each_other():
    assert [(bar.name, bar.begin, round(bar.end, 1)) for bar in phases(record_of())] == [
        ("prepare", 0.0, 3.5),
        ("launch", 3.5, 4.0),
        ("training", 4.0, 94.0),
        ("end", 94.0, 94.4),
    ]


@pytest.mark.parametrize("begin", [BEGIN - 20, BEGIN + 200])
def test_a_host_whose_clock_is_off_bends_no_phase(begin):
    off = {**rank(0, "alpha"), "begin": begin, "end": begin + 1}
    bars = phases(record_of(ranks=[off]))
    assert all(bar.end > bar.begin >= 0 for bar in bars)
    assert all(before.end == after.begin for before, after in itertools.pairwise(bars))


def test_a_run_without_times_has_no_drawing():
    assert drawing(record_of(ranks=[], prepare={}, end=None)) == ""


def test_a_rank_that_failed_is_another_colour():
    bars = rank_bars(record_of(**FAILED))
    assert [bar.name for bar in bars] == ["rank 0 on alpha", "rank 1 on alpha", "rank 2 on beta"]
    assert bars[0].colour == bars[2].colour != bars[1].colour
