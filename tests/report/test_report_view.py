"""What of the logs is shown, in which order, under which label."""

from __future__ import annotations

import pytest

from hvdcompose.report import fold, reorder
from hvdcompose.report.view import View, Wanted, seconds_of

RANKS = ("alpha", "beta")
LINES = [
    ("alpha", "2026-01-01T00:00:01.000000001Z", "[0]<stdout>:a"),
    ("alpha", "2026-01-01T00:00:01.000000002Z", "[1,1]<stderr>:b"),
    ("beta", "2026-01-01T00:00:02.000000000Z", "sshd"),
    ("alpha", "2026-01-01T00:00:03.000000000Z", "all well"),
]


def past(wanted: Wanted) -> list[str]:
    view = View(["alpha", "beta"], RANKS, wanted)
    return [text for line in LINES for text in view.past(*line)] + view.end()


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (Wanted(), ["alpha r0  | a", "beta  r1  | b", "beta      | sshd", "alpha     | all well"]),
        (Wanted(hosts=frozenset({"beta"})), ["beta  r1  | b", "beta      | sshd"]),
        (Wanted(ranks=frozenset({1})), ["beta  r1  | b"]),
        (Wanted(hosts=frozenset({"alpha"}), ranks=frozenset({1})), []),
    ],
)
def test_what_is_asked_for(wanted, shown):
    assert past(wanted) == shown


def test_raw_shows_every_line_at_once():
    view = View(["alpha"], ["alpha"] * 4, Wanted(raw=True))
    stamp = "2026-01-01T00:00:01.0Z"
    assert [view.past("alpha", stamp, f"[{rank}]<stdout>:x") for rank in range(4)] == [
        [f"alpha r{rank}  | x"] for rank in range(4)
    ]


def test_repetitions_are_folded_by_the_time_in_the_log():
    def shown(seconds: float) -> int:
        view = View(["alpha"], ["alpha"] * 4)
        stamps = [f"2026-01-01T00:00:0{rank * seconds:.3f}Z" for rank in range(4)]
        lines = [text for rank in range(4) for text in view.past("alpha", stamps[rank], f"[{rank}]<stdout>:x")]
        return len(lines + view.end())

    assert (shown(0.01), shown(2.0)) == (1, 4)


def test_a_live_line_is_shown_within_a_second():
    assert reorder.HOLD + fold.HOLD < 1
    view = View(["alpha", "beta"], RANKS)
    assert view.live(100.0, "alpha", LINES[0][1], LINES[0][2]) == []
    told = [view.tick(100 + step / 10) for step in range(1, 11)]
    assert [text for texts in told for text in texts] == ["alpha r0  | a"]


def test_live_lines_of_two_hosts_take_the_order_of_their_time():
    view = View(["alpha", "beta"], RANKS)
    shown = view.live(5.0, *LINES[3]) + view.live(5.1, *LINES[2]) + view.end()
    assert shown == ["beta      | sshd", "alpha     | all well"]


def test_a_view_goes_on_by_another_clock():
    view = View(["alpha"], RANKS)
    view.past(*LINES[0])
    assert view.end() == ["alpha r0  | a"]
    assert view.live(1.0, *LINES[3]) == []
    assert view.tick(2.0) + view.tick(3.0) == ["alpha     | all well"]


def test_timestamps():
    assert seconds_of("1970-01-01T00:00:01.500000000Z") == 1.5
    assert seconds_of("") == 0.0
