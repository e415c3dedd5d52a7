"""Records of runs: read whatever a launcher wrote, told in few words, found by name."""

from __future__ import annotations

import json
from datetime import UTC

import pytest
from records import FAILED, RECORD, record_of

from hvdcompose.errors import HvdError, UsageError
from hvdcompose.report.records import (
    Prepared,
    duration,
    find_run,
    log_host,
    metric,
    new_history,
    parse_record,
    result,
    shortened,
    told_end,
    took,
)
from hvdcompose.report.runs import details, row


def test_a_record_is_read_whole():
    record = record_of()
    assert (record.run, record.np, record.hosts, record.code, record.real) == (
        "20261201-100838-32c",
        3,
        ("alpha", "alpha", "beta"),
        0,
        94.4,
    )
    assert record.used_hosts == ("alpha", "beta")
    assert record.shown_command == "python -m trainer.mnist --note 'two words'"
    assert (record.ranks[2].host, record.ranks[2].code, record.ranks[2].user) == ("beta", 0, 80.5)
    assert record.prepare == {"alpha": Prepared(0, 3.5), "beta": Prepared(None, None, skipped=True)}
    assert record.raw == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"run": 3}', '{"run": "a", "ranks": [{}]}', '{"run": "a"'])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(ValueError):
        parse_record(text)


def test_a_record_without_anything_else_is_a_record():
    record = parse_record('{"run": "a"}')
    assert (record.np, record.ranks, record.cause, record.state(None)) == (0, (), None, "interrupted")
    assert row(record, None, 0.0, UTC)[0] == "a"
    assert details(record, None, 0.0, UTC)[0] == "run         a"


@pytest.mark.parametrize(
    ("change", "live", "state", "told"),
    [
        ({}, None, "done", "done"),
        ({"end": None, "code": None, "real": None}, "20261201-100838-32c", "live", "live"),
        ({"end": None, "code": None, "real": None}, "another", "interrupted", "interrupted"),
        ({"end": None, "code": None, "real": None}, None, "interrupted", "interrupted"),
        ({"code": 143}, None, "stopped", "stopped"),
        ({"code": 1}, None, "failed", "failed: exit 1"),
        (FAILED, None, "failed", "failed: rank 2 on beta: exit 3"),
        (FAILED, "20261201-100838-32c", "failed", "failed: rank 2 on beta: exit 3"),
    ],
)
def test_how_a_run_stands(change, live, state, told):
    record = record_of(**change)
    assert (record.state(live), result(record, live)) == (state, told)


def test_how_long_a_run_took():
    assert took(record_of(), None, 0) == 94.4
    unfinished = record_of(end=None, code=None, real=None)
    assert took(unfinished, unfinished.run, unfinished.begin + 7) == 7
    assert took(unfinished, None, unfinished.begin + 7) is None


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, ""), (0, "0.0s"), (34.44, "34.4s"), (59.94, "59.9s"), (59.96, "1m00s"), (94.4, "1m34s"),
        (3599.4, "59m59s"), (3599.6, "1h00m"), (7530, "2h06m"),
    ],
)  # fmt: skip
def test_durations(seconds, told):
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        (None, ""),
        ({}, ""),
        ({"np": 4, "accuracy": 0.8691, "loss": 0.35}, "accuracy 0.8691"),
        ({"loss": 0.356506}, "loss 0.356506"),
        ({"perplexity": 12}, "perplexity 12"),
        ({"accuracy": "high", "ok": True}, ""),
    ],
)
def test_the_figure_of_a_run(metrics, told):
    assert metric(record_of(metrics=metrics)) == told


def test_a_rank_that_did_not_end_by_itself():
    ranks = [
        {"rank": 0, "host": "a", "code": -9, "ended": "launcher gone"},
        {"rank": 1, "host": "a", "code": 137, "oom": True},
        {"rank": 2, "host": "a"},
    ]
    told = [told_end(entry) for entry in record_of(ranks=ranks).ranks]
    assert told == ["killed by signal 9 (launcher gone)", "exit 137, out of memory", "no record of its end"]


NAMES = ["20261202-1", "20261201-9", "20261201-1"]


@pytest.mark.parametrize(
    ("wanted", "found"), [("last", "20261202-1"), ("20261201-1", "20261201-1"), ("20261202", "20261202-1")]
)
def test_a_run_by_its_name(wanted, found):
    assert find_run(NAMES, wanted) == found
    assert find_run(["a-1", "a-12"], "a-1") == "a-1"


def test_a_run_that_is_not_there():
    with pytest.raises(HvdError, match="there is no run yet"):
        find_run([], "last")
    with pytest.raises(UsageError, match="there is no run 2025") as caught:
        find_run(NAMES, "2025")
    assert caught.value.hint == "there are: 20261202-1, 20261201-9, 20261201-1"
    with pytest.raises(UsageError, match="20261201 begins several: 20261201-9, 20261201-1"):
        find_run(NAMES, "20261201")


def test_the_history_is_newest_first_and_names_what_cannot_be_read():
    texts = {name: json.dumps({"run": name, "begin": begin}) for name, begin in (("a", 1), ("c", 3), ("b", 2))}
    told = new_history({**texts, "x": "{"}, None)
    assert [record.run for record in told.records] == ["c", "b", "a"]
    assert told.broken == ("x",)
    assert (told.find("last").run, told.find("b").run) == ("c", "b")
    assert not told.starting
    assert told.to_json(told.records[0]) == {"run": "c", "begin": 3, "state": "interrupted"}


def test_a_launcher_that_has_not_recorded_its_run_yet_is_starting():
    assert new_history({}, "d").starting
    assert not new_history({"d": '{"run": "d"}'}, "d").starting


def test_a_launcher_started_by_hand_has_the_newest_run_without_an_end():
    texts = {"by-hand-2": '{"run": "by-hand-2", "begin": 2}', "a": '{"run": "a", "begin": 1}'}
    told = new_history(texts, "")
    assert [record.state(told.live) for record in told.records] == ["live", "interrupted"]


@pytest.mark.parametrize(
    ("file", "host"),
    [
        ("launcher.log", "alpha"),
        ("worker-beta.log", "beta"),
        ("prepare-beta.log", "beta"),
        ("worker-a.log.log", "a.log"),
    ],
)
def test_whose_log_a_file_is(file, host):
    assert log_host(file, "alpha") == host


def test_a_row():
    assert row(record_of(), None, 0.0, UTC) == (
        "20261201-100838-32c", "2026-12-01 10:08:38", "1m34s", "3 on 2", "done", "accuracy 0.8691",
        "python -m trainer.mnist --note 'two words'",
    )  # fmt: skip
    assert shortened("x" * 80) == "x" * 57 + "..."


def test_details_tell_the_cause_first_and_leave_out_nothing():
    lines = details(record_of(**FAILED), None, 0.0, UTC)
    assert lines[:5] == [
        "run         20261201-100838-32c",
        "result      failed: rank 2 on beta: exit 3",
        "cause       rank 2 on beta, its last lines:",
        "            | Traceback (most recent call last):",
        "            | SystemExit: 3",
    ]
    text = "\n".join(lines)
    for told in (
        "alpha, beta",
        "10:08:38",
        "10:10:12",
        "1m34s",
        "1m20s",
        "4.5s",
        "sha256:abc",
        "c0de",
        "1a0c",
        "exit 1",
    ):
        assert told in text or told == "exit 1"
    assert lines[lines.index("PREPARE  RESULT                TOOK") + 1 :][:2] == [
        "alpha    exit 0                3.5s",
        "beta     skipped: done before",
    ]
    assert lines[-3:] == [
        "0     alpha  killed by signal 15 (signal)  1m30s  1m20s  2.0s",
        "1     alpha  exit 0                        1m30s  1m20s  2.0s",
        "2     beta   exit 3                        1m30s  1m20s  2.0s",
    ]
