"""Floods are folded and counted; what a person looks for is not."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdcompose.report.fold import HOLD, HOROVODRUN, KINDS, Fold
from hvdcompose.report.logs import Line

HOSTS = ("alpha", "alpha", "beta", "gamma")
PEER = "[/tmp/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.5]:51722"
LOST = [
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "    hvd.allreduce(x)",
    f"RuntimeError: {PEER}",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    f"horovod.common.exceptions.HorovodInternalError: {PEER}",
]
REAL = [
    "Traceback (most recent call last):",
    '  File "train.py", line 4, in <module>',
    "    raise ValueError(x)",
    "ValueError: no such data",
]


def said(rank: int | None, *texts: str) -> list[Line]:
    return [Line("alpha" if rank is None else HOSTS[rank], rank, text) for text in texts]


def folded(lines: list[Line], *, cause: int | None = None, step: float = 0.001) -> list[str]:
    """Return the texts that are shown of lines that come one after the other, `step` seconds apart."""
    fold, shown = Fold(cause), []
    for number, line in enumerate(lines):
        shown += fold.push(number * step, line)
    shown += fold.end()
    return [f"r{line.rank} {line.text}" if line.rank is not None else line.text for line in shown]


def test_what_many_ranks_say_at_once_is_told_once():
    lines = [line for rank in range(4) for line in said(rank, "epoch 1", f"loss of {rank}")]
    assert folded(lines) == [
        "r0 epoch 1   (the same from 3 other ranks)",
        "r0 loss of 0",
        "r1 loss of 1",
        "r2 loss of 2",
        "r3 loss of 3",
    ]


def test_two_ranks_are_not_many():
    assert folded(said(0, "epoch 1") + said(1, "epoch 1")) == ["r0 epoch 1", "r1 epoch 1"]


def test_what_is_said_later_is_not_the_same():
    lines = [line for rank in range(4) for line in said(rank, "epoch 1")]
    assert len(folded(lines, step=HOLD * 1.5)) == 4


def test_a_line_in_a_row_is_counted_and_one_between_others_is_not():
    assert folded(said(0, "x", "x", "x", "x", "y", "x")) == ["r0 x   (3 more times)", "r0 y", "r0 x"]
    assert folded(said(0, "x", "y", "x", "y", "x")) == ["r0 x", "r0 y", "r0 x", "r0 y", "r0 x"]


def test_lines_that_are_no_rank_s_are_left_alone():
    assert folded(said(None, "real\t1s", "real\t1s", "real\t1s")) == ["real\t1s"] * 3


def test_the_first_failure_is_whole_and_the_others_connection_errors_are_a_line():
    lines = [line for texts in zip(said(2, *REAL), said(0, *LOST), strict=False) for line in texts]
    lines += said(0, *LOST[len(REAL) :]) + said(1, PEER, *LOST)
    shown = folded(lines)
    assert shown == [
        *(f"r2 {text}" for text in REAL),
        "... 21 more lines of ranks 0, 1: lost connections after another rank had ended (--raw shows them)",
    ]


def test_without_a_failure_before_it_the_first_connection_error_is_shown():
    """Rank 2 was killed and said nothing: the traceback of the others is all there is."""
    shown = folded(said(0, *LOST) + said(1, *LOST) + said(3, *LOST))
    assert shown[: len(LOST)] == [f"r0 {text}" for text in LOST]
    assert shown[len(LOST) :] == [
        "... 20 more lines of ranks 1, 3: lost connections after another rank had ended (--raw shows them)"
    ]


def test_the_rank_that_is_known_to_be_first_is_shown_though_others_come_before_it():
    shown = folded(said(0, *LOST) + said(2, *LOST, "bye"), cause=2)
    assert shown[:-1] == [f"r2 {text}" for text in [*LOST, "bye"]]
    assert shown[-1].startswith("... 10 more lines of rank 0: ")


def test_a_second_error_of_another_kind_is_shown():
    other = [*REAL[:-1], "KeyError: 'x'"]
    assert folded(said(2, *REAL) + said(1, *other)) == [
        *(f"r2 {text}" for text in REAL),
        *(f"r1 {text}" for text in other),
    ]


def test_the_same_traceback_of_all_ranks_is_shown_once_and_whole():
    shown = folded([line for rank in range(4) for line in said(rank, *REAL)])
    assert shown == [
        *(f"r0 {text}" for text in REAL[:-1]),
        "r0 ValueError: no such data   (the same from 3 other ranks)",
    ]


RUNNER = [
    "Traceback (most recent call last):",
    '  File "/opt/venv/bin/horovodrun", line 8, in <module>',
    "    sys.exit(run_commandline())",
    '  File "/opt/venv/lib/python3.12/site-packages/horovod/runner/launch.py", line 837, in run_commandline',
    "    _run(args)",
    "RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
    "terminated. The first process to do so was:",
    "Process name: [2]",
    "Exit code: 1",
]


def test_what_sshd_notes_of_logins_is_counted_and_what_a_rank_says_like_it_is_not():
    noted = [f"Accepted publickey for root from 10.0.0.5 port {port} ssh2: ED25519 SHA256:abc" for port in range(9)]
    shown = folded([*said(None, *noted), *said(1, "Starting session: 1", "Starting session: 2")])
    assert shown[0] == noted[0]
    assert shown[1:3] == ["r1 Starting session: 1", "r1 Starting session: 2"]
    assert shown[3].startswith("... 8 more lines: logins between the hosts")
    lost = "Connection closed by 10.0.0.2 port 2222"
    assert lost in folded(said(None, *noted, lost)), "the ssh client's own error"


def test_each_host_has_its_own_logins():
    lines = [Line(host, None, f"Accepted publickey for root from 10.0.0.{n}") for n in range(3) for host in HOSTS[1:]]
    fold = Fold()
    shown = [told for at, line in enumerate(lines) for told in fold.push(at * 0.001, line)] + fold.end()
    assert [line.host for line in shown] == [*HOSTS[1:], *HOSTS[1:]]
    assert all(line.text.startswith("... 2 more lines: logins") for line in shown[3:])


def test_horovodrun_s_own_failure_is_shown():
    failed = [*RUNNER[:-3], "ValueError: Horovod has not been built with Gloo support."]
    assert folded(said(None, *failed)) == failed


def test_horovodrun_s_own_traceback_is_counted():
    end = "hvdcompose: first failure: rank 2 on beta: exit 1"
    shown = folded([*said(0, "epoch 1"), *said(None, *RUNNER, end)])
    assert shown[:2] == ["r0 epoch 1", end]
    assert shown[2].startswith(f"... {len(RUNNER)} more lines: horovodrun's own traceback")
    assert len(shown) == 3


def test_another_program_s_traceback_is_shown():
    mine = ["Traceback (most recent call last):", '  File "/hvd/launcher", line 8, in <module>', "OSError: disk"]
    assert folded(said(None, *mine)) == mine


def test_source_lines_of_a_traceback_do_not_make_it_a_lost_connection():
    mine = [REAL[0], '  File "x.py", line 1', "    except HorovodInternalError: raise KeyError", "KeyError: 1"]
    assert folded(said(0, *REAL) + said(1, *mine)) == [*(f"r0 {text}" for text in REAL), *(f"r1 {t}" for t in mine)]


@pytest.mark.parametrize(
    "text",
    [
        "[alpha:00042] Read -1, expected 131072, errno = 1",
        "[alpha:00042] 3 more processes have sent help message help-btl-vader.txt / cma-permission-denied",
        PEER,
        "[alpha:00042] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer beta<40000>",
        "[2]: Horovod background loop uncaught exception: Connection reset by peer",
    ],
)
def test_known_floods_are_shown_once_and_counted(text):
    shown = folded(said(1, *[f"{text} #{number}" for number in range(500)]))
    assert shown[0] == f"r1 {text} #0"
    assert shown[1].startswith("... 499 more lines of rank 1: ")
    assert len(shown) == 2


@pytest.mark.parametrize(
    "text", ["retrying: Connection reset by peer", "Broken pipe in my own server", "epoch 1", "read 100 of 200"]
)
def test_words_of_the_user_s_own_are_no_flood(text):
    assert not any(kind.pattern.search(text) for kind in (HOROVODRUN, *KINDS))


def test_a_flood_that_goes_on_is_summed_up_now_and_then():
    fold, shown = Fold(), []
    for number in range(200):
        shown += fold.push(number * 0.2, said(0, "Read -1, expected 4, errno = 1")[0])
    assert len(shown) == 1 + 3  # in 40 s: itself, then a sum every 10 s
    assert sum(int(line.text.split()[1]) for line in [*shown[1:], *fold.end()]) == 199


def test_nothing_is_held_longer_than_said():
    fold = Fold()
    assert fold.push(10.0, said(0, "x")[0]) == []
    assert fold.tick(10.0 + HOLD * 0.9) == []
    assert [line.text for line in fold.tick(10.0 + HOLD)] == ["x"]


@given(st.lists(st.tuples(st.integers(-1, 3), st.sampled_from(["a", "b", "", *REAL, *LOST])), max_size=60))
def test_every_line_is_shown_or_counted(said_by):
    lines = [line for rank, text in said_by for line in said(None if rank < 0 else rank, text)]
    single = not any(line.text.startswith("Traceback") for line in lines)
    shown = folded(lines)
    count = sum(int(text.split()[1]) for text in shown if text.startswith("..."))
    for text in shown:
        if not text.startswith("..."):
            counts = re.findall(r"the same from (\d+) other|(\d+) more times", text)
            count += 1 + sum(int(number) for pair in counts for number in pair if number)
    assert count == len(lines) if single else count <= len(lines)


def test_a_dense_log_takes_no_time():
    lines = [line for number in range(20_000) for line in said(number % 4, "same", f"other {number}")]
    began = time.process_time()
    folded(lines, step=0.0)
    assert time.process_time() - began < 5
