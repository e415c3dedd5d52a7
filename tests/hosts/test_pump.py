"""One child's output into many at once, with real children."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from hvdcompose.hosts import process, pump, transfer
from hvdcompose.hosts.pump import Ending, Pump, Sink, SourceFailed

pytestmark = pytest.mark.usefixtures("fresh_process")
BYTES = 3_000_000


class Watched:
    """What a pump told."""

    def __init__(self) -> None:
        self.endings: dict[str, Ending] = {}
        self.order: list[str] = []
        self.given: list[str] = []
        self.sent: dict[str, list[int]] = {}

    def progress(self, host: str, sent: int, seconds: float) -> None:
        assert seconds > 0
        self.sent.setdefault(host, []).append(sent)

    def ended(self, host: str, ending: Ending) -> None:
        assert host not in self.endings, "told twice"
        self.endings[host] = ending
        self.order.append(host)


@contextlib.contextmanager
def pumping(source: str, sinks: dict[str, str], size: int = BYTES) -> Iterator[tuple[Pump, Watched]]:
    """Start the shell scripts, a source and sinks by name."""
    pipe, watched = subprocess.PIPE, Watched()
    with contextlib.ExitStack() as stack:
        child = process.child(["sh", "-c", source], stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL)
        saving = stack.enter_context(child)
        loads = {
            name: Sink(
                stack.enter_context(
                    process.child(["sh", "-c", script], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0)
                )
            )
            for name, script in sinks.items()
        }
        yield Pump(saving, loads, size, watched.progress, watched.given.append, watched.ended), watched


def test_everybody_gets_every_byte(tmp_path):
    """Those that take less at a time, too; in the order in which it came."""
    data = bytes(range(256)) * 20_000
    (tmp_path / "data").write_bytes(data)
    names = [f"h{number}" for number in range(8)]
    scripts = {name: f"cat > {tmp_path}/{name}; echo took it" for name in names}
    scripts["h3"] = f"while head -c 300000 >> {tmp_path}/h3 && [ $(wc -c < {tmp_path}/h3) -lt {len(data)} ]; do :; done"
    with pumping(f"cat {tmp_path}/data", scripts, len(data)) as (running, watched):
        running.run()
    assert {name: (tmp_path / name).read_bytes() == data for name in names} == dict.fromkeys(names, True)
    assert watched.endings["h0"] == Ending(0, "took it\n", whole=True)
    assert all(ending.ok for ending in watched.endings.values())
    assert sorted(watched.given) == names


def test_the_queue_is_bounded(monkeypatch, tmp_path):
    """The source is read no faster than the slowest takes; then it goes on."""
    monkeypatch.setattr(pump, "QUEUE", 1 << 20)
    go = tmp_path / "go"
    source = f"head -c {BYTES} /dev/zero; echo $(date +%s.%N) > {tmp_path}/read"
    slow = f"while [ ! -e {go} ]; do sleep 0.05; done; cat > {tmp_path}/slow"
    with pumping(source, {"fast": f"cat > {tmp_path}/fast", "slow": slow}) as (running, watched):

        def progress(host: str, sent: int, seconds: float) -> None:
            if seconds > 1:
                assert not (tmp_path / "read").exists() or go.exists(), "it was read to its end into the queue"
                go.touch()

        running.progress = progress
        running.run()
    assert go.exists() and (tmp_path / "read").exists()
    assert all(ending.ok for ending in watched.endings.values())
    assert (tmp_path / "slow").stat().st_size == (tmp_path / "fast").stat().st_size == BYTES


def test_a_host_that_takes_nothing_is_left_behind(monkeypatch, tmp_path):
    """The others have everything, and it is ended."""
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 1.0)
    monkeypatch.setattr(pump, "QUEUE", 1 << 20)
    stuck = f"echo $$ > {tmp_path}/pid; exec sleep 300"
    with pumping(f"head -c {BYTES} /dev/zero", {"a": f"cat > {tmp_path}/a", "stuck": stuck}) as (running, watched):
        began = time.monotonic()
        running.run()
    assert time.monotonic() - began < 60
    assert watched.endings["a"].ok and (tmp_path / "a").stat().st_size == BYTES
    left = watched.endings["stuck"]
    assert (left.why, left.ok, left.whole) == ("nothing moved for 1 s", False, False)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_host_that_is_slow_is_left_behind_sooner(monkeypatch, tmp_path):
    """It takes all the time, but so little that the others would wait for half a minute and more."""
    monkeypatch.setattr(transfer, "HELD_SECONDS", 1.0)
    monkeypatch.setattr(pump, "QUEUE", 1 << 18)
    slow = "while [ $(head -c 20000 | wc -c) -gt 0 ]; do sleep 0.1; done"
    source = "head -c 9000000 /dev/zero"
    with pumping(source, {"a": "cat > /dev/null", "slow": slow}, 9_000_000) as (running, watched):
        began = time.monotonic()
        running.run()
    assert time.monotonic() - began < 25, "at its pace it takes 45 s"
    assert watched.endings["a"].ok
    assert watched.endings["slow"].why == transfer.SLOWER
    assert watched.order == ["slow", "a"]
    assert watched.sent["slow"][-1] > 0


def test_when_all_take_nothing(monkeypatch):
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 0.5)
    with pumping(f"head -c {BYTES} /dev/zero", dict.fromkeys("ab", "exec sleep 300")) as (running, watched):
        running.run()
    assert {ending.why for ending in watched.endings.values()} == {"nothing moved for 0 s"}


def test_a_load_that_fails_says_why_and_the_others_go_on(tmp_path):
    failing = "head -c 100000 > /dev/null; echo no space left on device >&2; exit 1"
    with pumping(f"head -c {BYTES} /dev/zero", {"a": f"cat > {tmp_path}/a", "full": failing}) as (running, watched):
        running.run()
    assert watched.endings["full"] == Ending(1, "no space left on device\n", whole=False)
    assert watched.endings["a"].ok and (tmp_path / "a").stat().st_size == BYTES


def test_a_load_that_ends_well_too_early_is_not_well():
    with pumping(f"head -c {BYTES} /dev/zero", {"a": "head -c 100000 > /dev/null"}) as (running, watched):
        running.run()
    assert (watched.endings["a"].code, watched.endings["a"].ok) == (0, False)


def test_a_source_that_fails_gives_nobody_anything_whole(tmp_path):
    """No input is closed before it is known that the source ended well: a load would take a part for the whole."""
    source = "head -c 100000 /dev/zero; exec 1>&-; sleep 1; echo no such image >&2; exit 1"
    sinks = {"a": f"cat > /dev/null && touch {tmp_path}/whole"}
    with pumping(source, sinks) as (running, watched), pytest.raises(SourceFailed, match="no such image"):
        running.run()
    assert watched.given == []
    assert not (tmp_path / "whole").exists()


def test_a_source_that_falls_silent(monkeypatch):
    monkeypatch.setattr(pump, "SOURCE_SECONDS", 1.0)
    silent = pumping("echo x; exec sleep 300", {"a": "cat > /dev/null"})
    with silent as (running, _), pytest.raises(SourceFailed, match="nothing came for 1 s"):
        running.run()


def test_a_source_has_more_time_for_its_first_byte(monkeypatch):
    """`docker save` writes the whole image down before it sends any."""
    monkeypatch.setattr(pump, "SOURCE_SECONDS", 1.0)
    with pumping("sleep 2.5; echo x", {"a": "cat > /dev/null"}) as (running, watched):
        running.run()
    assert watched.endings["a"].ok


def test_a_load_that_never_ends_after_the_last_byte(monkeypatch):
    monkeypatch.setattr(pump, "UNPACK_SECONDS", 1.0)
    with pumping("echo x", {"a": "cat > /dev/null; exec sleep 300", "b": "cat"}) as (running, watched):
        running.run()
    assert watched.endings["a"].why == "still unpacking after 1 s"
    assert watched.endings["b"] == Ending(0, "x\n", whole=True)
