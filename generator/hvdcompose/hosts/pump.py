"""One child's output into many children at once, through a bounded queue for each, without a thread."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hvdcompose.hosts import process
from hvdcompose.hosts.fanout import begin
from hvdcompose.hosts.transfer import Stand, given_up

CHUNK = 1 << 20
QUEUE = 64 * CHUNK  # per host; the bytes themselves are kept once for all of them
FIRST_SECONDS = 600.0  # for the source's first byte: an engine writes the whole image down before it sends any
SOURCE_SECONDS = 60.0  # for its next
UNPACK_SECONDS = 600.0  # after the last byte: an engine unpacks without a word
TICK_SECONDS = 0.25


class SourceFailed(Exception):
    """The stream's source ended badly or fell silent; the text is what it wrote last."""


@dataclass(frozen=True)
class Ending:
    """How a host's part ended: its child's exit code and words; `why` where it was given up, else None."""

    code: int
    output: str
    whole: bool  # it took every byte
    why: str | None = None

    @property
    def ok(self) -> bool:
        """True when it took all and said that all is well."""
        return self.why is None and self.whole and self.code == 0


@dataclass
class Sink:
    """One host's child: what waits for it and what it took."""

    child: subprocess.Popen[bytes]
    waiting: deque[memoryview] = field(default_factory=deque)
    queued: int = 0
    sent: int = 0
    at: float = 0.0  # when it last took something, or had nothing to take
    held: float = 0.0
    told: bytearray = field(default_factory=bytearray)
    closed: float | None = None  # when its input was closed
    whole: bool = False
    ending: Ending | None = None

    @property
    def input(self) -> int:
        """The descriptor of what it reads."""
        assert self.child.stdin is not None
        return self.child.stdin.fileno()

    @property
    def output(self) -> int:
        """The descriptor of what it writes."""
        assert self.child.stdout is not None
        return self.child.stdout.fileno()

    @property
    def open(self) -> bool:
        """True while it may be given more."""
        return self.closed is None and self.ending is None

    def give(self, chunk: bytes, now: float) -> None:
        """Put a chunk into its queue."""
        if not self.waiting:
            self.at = now
        self.waiting.append(memoryview(chunk))
        self.queued += len(chunk)

    def write(self, now: float) -> None:
        """Let it take what it takes at once."""
        view = self.waiting[0]
        try:
            taken = os.write(self.input, view)
        except BlockingIOError:
            return
        except BrokenPipeError:  # it ended; its output tells why
            self.close(now, whole=False)
            return
        self.at, self.sent, self.queued = now, self.sent + taken, self.queued - taken
        self.waiting.popleft()
        if taken < len(view):
            self.waiting.appendleft(view[taken:])

    def close(self, now: float, *, whole: bool) -> None:
        """Close its input: `whole` when it took everything there is."""
        assert self.child.stdin is not None
        self.waiting.clear()
        self.queued, self.closed, self.whole = 0, now, whole
        self.child.stdin.close()
        self.child.stdin = None

    def listen(self) -> None:
        """Keep what it says; at the end of that, see how it ended."""
        chunk = os.read(self.output, CHUNK)
        self.told += chunk
        if not chunk:
            try:
                code = self.child.wait(process.KILL_AFTER_SECONDS)
            except subprocess.TimeoutExpired:
                code = -1
            self.end(code)

    def end(self, code: int, why: str | None = None) -> None:
        """Note how it ended, and that nothing waits for it any more."""
        self.waiting.clear()
        self.queued = 0
        self.ending = Ending(code, self.told.decode(errors="replace"), self.whole, why)

    def give_up(self, why: str) -> None:
        """Go on without it."""
        if self.child.stdin is not None:
            self.child.stdin.close()
        begin(lambda: process.end(self.child))  # it takes seconds where ssh is frozen: nobody waits for that
        self.end(-1, why)


@dataclass
class Pump:
    """The stream of one source into many sinks.

    size: bytes that are expected; progress: told (host, bytes it took, seconds since the first byte) every tick;
    given: told a host that took everything; ended: told (host, ending) as soon as a host ends.
    """

    source: subprocess.Popen[bytes]
    sinks: Mapping[str, Sink]
    size: int
    progress: Callable[[str, int, float], None]
    given: Callable[[str], None]
    ended: Callable[[str, Ending], None]
    flowing: float | None = None  # when the first byte came
    heard: float = 0.0  # when the source last gave something, or was not asked
    over: bool = False
    ticked: float = 0.0

    def run(self) -> None:
        """Move everything, until every sink has ended. Raises SourceFailed, after which no sink has it whole."""
        self.heard = self.ticked = time.monotonic()
        for sink in self.sinks.values():
            os.set_blocking(sink.input, False)
        while living := {host: sink for host, sink in self.sinks.items() if sink.ending is None}:
            self._move([*living.values()])
            now = time.monotonic()
            self._close_empty(living, now)
            if now - self.ticked > TICK_SECONDS:
                self.ticked = now
                self._judge(living, now)
            for host, sink in living.items():
                if sink.ending is not None:
                    self.ended(host, sink.ending)

    def _move(self, living: list[Sink]) -> None:
        """Wait until something can be moved, for a tick at most, and move it."""
        taking = [sink for sink in living if sink.open]
        full = [sink for sink in taking if sink.queued >= QUEUE]
        outputs = {sink.output: sink for sink in living}
        inputs = {sink.input: sink for sink in taking if sink.waiting}
        source = [self._output] if taking and not full and not self.over else []
        began = time.monotonic()
        readable, writable, _ = select.select([*source, *outputs], [*inputs], [], TICK_SECONDS)
        now = time.monotonic()
        if any(not sink.queued for sink in taking):  # they have nothing to take, for the sake of those that are full
            for sink in full:
                sink.held += now - began
        for stream in writable:
            inputs[stream].write(now)
        for stream in readable:
            if stream in outputs:
                outputs[stream].listen()
        if source and source[0] not in readable:
            self._refuse_silence(now)
            return
        self.heard = now
        if source:
            self._read(taking, now)

    @property
    def _output(self) -> int:
        assert self.source.stdout is not None
        return self.source.stdout.fileno()

    def _read(self, taking: list[Sink], now: float) -> None:
        chunk = os.read(self._output, CHUNK)
        if chunk:
            self.flowing = self.flowing or now
            for sink in taking:
                if sink.open:
                    sink.give(chunk, now)
            return
        try:
            code = self.source.wait(SOURCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise SourceFailed(f"no end within {SOURCE_SECONDS:.0f} s") from None
        if code:  # what came is no image: no sink may take it for one
            raise SourceFailed(self.source.stderr.read().decode(errors="replace") if self.source.stderr else "")
        self.over = True

    def _refuse_silence(self, now: float) -> None:
        limit = FIRST_SECONDS if self.flowing is None else SOURCE_SECONDS
        if now - self.heard > limit:
            raise SourceFailed(f"nothing came for {limit:.0f} s")

    def _close_empty(self, living: Mapping[str, Sink], now: float) -> None:
        for host, sink in living.items():
            if self.over and sink.open and not sink.waiting:
                sink.close(now, whole=True)
                self.given(host)

    def _judge(self, living: Mapping[str, Sink], now: float) -> None:
        """Tell how far every host is, and go on without those that are stuck."""
        seconds = now - self.flowing if self.flowing else 0.0
        for host, sink in living.items():
            if sink.open and self.flowing:
                stand = Stand(sink.sent, now - sink.at if sink.waiting else 0.0, sink.held)
                why = given_up(stand, shared=len(self.sinks) > 1, size=self.size, seconds=seconds)
                if why:
                    sink.give_up(why)
                else:
                    self.progress(host, sink.sent, seconds)
            elif sink.closed is not None and sink.ending is None and now - sink.closed > UNPACK_SECONDS:
                sink.give_up(f"still unpacking after {UNPACK_SECONDS:.0f} s")
