"""One function on many hosts: all at once, every result kept, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts import process
from hvdcompose.hosts.fanout import AT_ONCE, Outcome, arriving, errors, on_all, values

pytestmark = pytest.mark.usefixtures("fresh_process")


def test_every_outcome_is_kept_in_the_order_given():
    def work(host: str) -> str:
        if host in ("b", "d"):
            raise HostError(host, f"{host} failed")
        return host.upper()

    outcomes = on_all(["d", "c", "b", "a"], work)
    assert list(outcomes) == ["d", "c", "b", "a"]
    assert [outcome.ok for outcome in outcomes.values()] == [False, True, False, True]
    assert values(outcomes) == {"c": "C", "a": "A"}
    assert [error.message for error in errors(outcomes)] == ["d failed", "b failed"]


def test_all_run_at_once():
    """Each waits for all the others: one after the other, they would wait for ever."""
    barrier = threading.Barrier(AT_ONCE, timeout=60)
    outcomes = on_all([f"h{number}" for number in range(AT_ONCE)], lambda _: barrier.wait() >= 0)
    assert all(outcome.value for outcome in outcomes.values())


def test_more_hosts_than_threads():
    names = [f"h{number}" for number in range(3 * AT_ONCE)]
    assert values(on_all(names, str)) == {name: name for name in names}


def test_a_slow_host_does_not_hide_the_others():
    done = []
    others = threading.Event()

    def work(host: str) -> str:
        if host == "slow":
            assert others.wait(60)
        else:
            done.append(host)
            if len(done) == 3:
                others.set()
        return host

    assert list(values(on_all(["slow", "a", "b", "c"], work))) == ["slow", "a", "b", "c"]


def test_what_is_not_a_host_s_error_is_raised():
    def work(host: str) -> str:
        if host == "b":
            raise ZeroDivisionError("a fault of ours")
        return host

    with pytest.raises(ZeroDivisionError, match="a fault of ours"):
        on_all(["a", "b", "c"], work)
    with pytest.raises(process.Interrupted):
        process.refuse_when_stopping()


def test_no_hosts():
    assert on_all([], str) == {}


def test_nothing_is_a_value_too():
    outcomes = on_all(["a"], lambda _: None)
    assert outcomes == {"a": Outcome()}
    assert outcomes["a"].ok and errors(outcomes) == []


def test_streams_that_a_ctrl_c_ends_say_nothing(monkeypatch):
    """Their threads may be about to start a command when all are ended."""
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def stream(host: str) -> Iterator[str]:
        yield f"{host} 1"
        process.end_children()
        process.refuse_when_stopping()

    assert list(arriving(["a"], stream, tick=5)) == [("a", "a 1")]
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "pass_on" in thread.name:
            thread.join(5)
    assert raised == []
