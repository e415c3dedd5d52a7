"""Lines of several hosts in the order of their timestamps, none held for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hvdcompose.report.reorder import HOLD, Reorder


def test_a_line_that_comes_late_takes_its_place():
    order: Reorder[str] = Reorder()
    assert order.push(0.0, "2", "b") == []
    assert order.push(0.1, "1", "a") == []
    assert order.push(0.2, "3", "c") == []
    assert order.due(HOLD) == ["a", "b"]
    assert order.due(HOLD + 0.2) == ["c"]


def test_a_clock_that_is_ahead_holds_nothing_back():
    order: Reorder[str] = Reorder()
    order.push(0.0, "9", "ahead")
    order.push(0.1, "1", "behind")
    assert order.due(HOLD) == ["behind", "ahead"]


def test_lines_of_one_instant_keep_the_order_in_which_they_came():
    order: Reorder[str] = Reorder()
    for text in "cab":
        order.push(0.0, "1", text)
    assert order.end() == ["c", "a", "b"]


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("123456789")), max_size=40))
def test_everything_comes_out_once_and_in_time(arrivals):
    order: Reorder[int] = Reorder()
    out: list[int] = []
    now, times = 0.0, []
    for number, (gap, stamp) in enumerate(arrivals):
        now += gap
        times.append(now)
        out += order.push(now, stamp, number)
        held = set(range(number + 1)) - set(out)
        assert all(times[other] > now - HOLD for other in held)
    out += order.end()
    assert sorted(out) == list(range(len(arrivals)))
