"""Which rank failed first, and how that is said: from records and last lines as real runs left them."""

from __future__ import annotations

import hvdcause
import pytest

HOSTS = ["alpha", "beta", "gamma", "delta"]
LOST = [  # what Gloo's other ranks say
    "Traceback (most recent call last):",
    '  File "/opt/venv/lib/python3.11/site-packages/horovod/torch/mpi_ops.py", line 1282, in synchronize',
    "    mpi_lib.horovod_torch_wait_and_clear(handle)",
    "RuntimeError: [/opt/horovod/third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [10.0.0.3]:4312: "
    "Connection reset by peer",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "/hvd/code/code/job.py", line 25, in <module>',
    '    hvd.allreduce(torch.ones(1000), name="step")',
    "horovod.common.exceptions.HorovodInternalError: Connection closed by peer",
]
RAISED = [
    "at work",
    "Traceback (most recent call last):",
    '  File "/hvd/code/code/job.py", line 29, in <module>',
    "    globals()[failing[hvd.rank()]]()",
    "ValueError: no such sample: 17",
]


def entry(rank: int, code: int = 1, end: float = 100.0, ended: str = "itself", oom: bool = False) -> dict:
    return {"rank": rank, "host": HOSTS[rank], "code": code, "end": end, "ended": ended, "oom": oom}


def others(*failed: int, end: float = 100.1) -> list[dict]:
    return [entry(rank, 1, end) for rank in range(4) if rank not in failed]


def tails(**own: list[str]) -> dict:
    told: dict = {rank: ["at work", *LOST] for rank in range(4)}
    return {**told, **{int(name[1:]): lines for name, lines in own.items()}}


def cause(ranks: list[dict], last: dict, code: int = 1, **more: object) -> str:
    found = hvdcause.cause_of(code, HOSTS, ranks, last, **more)
    assert found is not None
    return found["told"]


ENDS = [
    pytest.param({"code": 1}, RAISED, "ValueError: no such sample: 17 (exit 1)", id="exception"),
    pytest.param({"code": 3}, ["at work"], "exit 3", id="exit 3"),
    pytest.param({"code": 1}, ["at work"], "exit 1", id="exit 1 without a word"),
    pytest.param(
        {"code": -9, "oom": True},
        ["at work"],
        "killed for want of memory (the kernel's OOM killer, SIGKILL)",
        id="OOM",
    ),
    pytest.param(
        {"code": 137, "oom": True},
        ["at work"],
        "killed for want of memory (the kernel's OOM killer, SIGKILL)",
        id="OOM below a shell",
    ),
    pytest.param(
        {"code": -9},
        ["at work"],
        "killed by SIGKILL, not by hvdcompose: by hand, or by the kernel for want of memory",
        id="SIGKILL",
    ),
    pytest.param({"code": -11}, ["at work"], "segmentation fault (SIGSEGV)", id="segfault"),
    pytest.param({"code": 139}, ["at work"], "segmentation fault (SIGSEGV), exit 139", id="segfault below a shell"),
    pytest.param(
        {"code": -7}, [], "bus error (SIGBUS), often a full /dev/shm: `shm_size` sets its size", id="bus error"
    ),
    pytest.param({"code": -10}, [], "killed by SIGUSR1", id="another signal"),
    pytest.param({"code": 255}, [], "exit 255", id="255 is no signal"),
]


@pytest.mark.parametrize(("end", "lines", "how"), ENDS)
@pytest.mark.parametrize("rank", [0, 2])
def test_the_first_rank_that_failed_by_itself(rank, end, lines, how):
    # the others noticed, and some of them were recorded as ending before
    ranks = [entry(rank, end=100.0, **end), *others(rank, end=99.9)]
    assert cause(ranks, tails(**{f"r{rank}": lines})) == f"rank {rank} on {HOSTS[rank]}: {how}"


def test_others_that_were_ended_are_no_cause():
    ranks = [entry(2, 3), *(entry(rank, -15, 99.0, "signal") for rank in (0, 1, 3))]
    assert cause(ranks, {2: ["at work"]}) == "rank 2 on gamma: exit 3"


def test_of_two_that_failed_by_themselves_the_earlier_one():
    ranks = [entry(1, 3, 100.2), entry(3, -11, 100.0), *others(1, 3)]
    last = tails(r1=[], r3=[])
    assert cause(ranks, last) == "rank 3 on delta: segmentation fault (SIGSEGV)"
    lines = hvdcause.summary(hvdcause.cause_of(1, HOSTS, ranks, last), HOSTS, ranks, last)
    assert lines == [
        "first failure: rank 3 on delta: segmentation fault (SIGSEGV)",
        "rank 1 on beta: exit 3",
        "2 other ranks ended because of it:",
        "rank 0 on alpha: exit 1",
        "rank 2 on gamma: exit 1",
    ]


def test_a_clock_that_is_ahead_does_not_change_the_order():
    ranks = [entry(1, 3, 100.0), entry(3, 4, 99.0)]
    assert cause(ranks, {}, skew={"delta": -60.0}) == "rank 1 on beta: exit 3"
    assert cause(ranks, {}) == "rank 3 on delta: exit 4"


def test_a_host_that_is_lost():
    assert cause(others(2), tails(r2=["at work"]), silent=["gamma"]) == (
        "rank 2 on gamma: no record of its end: the host does not answer any more"
    )


def test_a_container_that_is_lost():
    assert cause(others(2), tails(r2=["at work"])) == (
        "rank 2 on gamma: no record of its end: its container ended, or was killed with it"
    )


def test_a_failure_of_its_own_weighs_more_than_a_record_that_is_missing():
    assert cause([entry(1, 3), *others(1, 2)], tails(r1=[]), silent=["gamma"]) == "rank 1 on beta: exit 3"


def test_a_rank_that_ended_too_early():
    ranks = [entry(1, 0, 99.0), *others(1)]
    assert cause(ranks, tails(r1=[])) == "rank 1 on beta: it ended with exit 0 while the others went on"


def test_all_lost_each_other():
    ranks = [entry(0, 1, 100.3), entry(1, 1, 100.1), entry(2, 1, 100.2), entry(3, 1, 100.4)]
    assert cause(ranks, tails()) == (
        "rank 1 on beta: horovod.common.exceptions.HorovodInternalError: Connection closed by peer (exit 1)"
    )


def test_horovodrun_s_own_failure():
    own = ["usage: horovodrun [-h]", "horovodrun: error: unrecognized arguments: --no-such"]
    found = hvdcause.cause_of(2, HOSTS, [], {None: own})
    assert found == {
        **{"rank": None, "host": None, "code": 2, "oom": False},
        **{"told": "horovodrun itself ended with exit 2", "lines": own},
    }
    assert hvdcause.summary(found, HOSTS, [], {None: own})[:4] == [
        "first failure: horovodrun itself ended with exit 2",
        "its last lines:",
        *(f"  | {line}" for line in own),
    ]


def test_a_run_that_went_well_has_no_cause():
    ranks = [entry(rank, 0) for rank in range(4)]
    assert hvdcause.cause_of(0, HOSTS, ranks, {}) is None
    assert hvdcause.summary(None, HOSTS, ranks, {}) == ["all 4 ranks ended with exit 0"]


def test_a_run_that_was_stopped_is_told_rank_by_rank():
    ranks = [entry(0, -15, ended="signal"), entry(1, 0), entry(2, -9, ended="launcher gone")]
    assert hvdcause.summary(None, HOSTS, ranks, {}) == [
        "rank 0 on alpha: killed by SIGTERM (signal)",
        "rank 1 on beta: exit 0",
        "rank 2 on gamma: killed by SIGKILL (launcher gone)",
        "rank 3 on delta: no record of its end",
    ]


def test_the_last_lines_are_the_traceback_and_no_more_than_a_screen():
    long = ["noise", "Traceback (most recent call last):", *(f"  frame {n}" for n in range(50)), "KeyError: 5"]
    found = hvdcause.cause_of(1, HOSTS, [entry(2)], {2: long})
    assert found is not None
    assert found["lines"] == [*(f"  frame {n}" for n in range(31, 50)), "KeyError: 5"]
    found = hvdcause.cause_of(1, HOSTS, [entry(2)], {2: ["noise", *RAISED]})
    assert found is not None and found["lines"] == RAISED[1:]


RAISES = [
    (RAISED, "ValueError: no such sample: 17"),
    ([*RAISED, "bye"], "ValueError: no such sample: 17"),
    (["Traceback (most recent call last):", "  x", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried",
      "more"], "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried"),
    (["Traceback (most recent call last):", "  x", "KeyboardInterrupt"], "KeyboardInterrupt"),
    (["ValueError: not in a traceback"], ""),
    ([], ""),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "raised"), RAISES)
def test_the_exception_under_a_traceback(lines, raised):
    assert hvdcause.raised_in(lines) == raised


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit 0"),
        (3, "exit 3"),
        (127, "exit 127"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-15, "killed by SIGTERM"),
        (-63, "killed by signal 63"),
    ],
)
def test_how_a_rank_ended_in_words(code, words):
    assert hvdcause.told_code(code) == words


def test_last_words_that_were_lost_on_the_way_make_no_second_cause():
    ranks = [entry(2, -9), *others(2)]
    last = tails(r2=["at work"], r3=["at work"])
    told = hvdcause.summary(hvdcause.cause_of(1, HOSTS, ranks, last), HOSTS, ranks, last)
    assert told[0].startswith("first failure: rank 2 on gamma: killed by SIGKILL")
    assert told[-4:] == [
        "3 other ranks ended because of it:",
        *("rank 0 on alpha: exit 1", "rank 1 on beta: exit 1", "rank 3 on delta: exit 1"),
    ]


def test_of_many_ranks_a_few_are_listed():
    hosts = [f"h{rank}" for rank in range(30)]
    ranks = [{**entry(0), "rank": rank, "code": 3 if rank == 5 else 1} for rank in range(30)]
    last: dict = {rank: LOST for rank in range(30) if rank != 5}
    lines = hvdcause.summary(hvdcause.cause_of(1, hosts, ranks, last), hosts, ranks, last)
    assert lines[:2] == ["first failure: rank 5 on h5: exit 3", "29 other ranks ended because of it:"]
    assert (lines[2], lines[-1], len(lines)) == ("rank 0 on h0: exit 1", "and 21 more", 11)
