"""What the launcher and the ranks print: passed on at once, kept in a file, and remembered for the record of the run.

Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import collections
import fcntl
import json
import os
import re
import selectors
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import Any, Dict, List, Optional

import hvdlib

LONGEST_LINE = 64 * 1024  # a longer one is cut in pieces
LONGEST_FILE = 1 << 30
QUIET_SECONDS = 0.3
CLOSE_SECONDS = 3.0
KEPT_LINES = 60
Tails = Dict[Optional[int], List[str]]
# Gloo: "[2]<stdout>:text"; Open MPI: "[1,2]<stdout>:text" (job, rank), from version 5 on with a blank after the colon;
# with -prefix-timestamp a time in front
PREFIX = re.compile(rb"^(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?\[(?:(\d+),)?(\d+)\]<(?:stdout|stderr)>:(?(1) ?)")


def stamp(nanoseconds: int) -> str:
    """Return a time since the epoch as `docker logs --timestamps` writes it: RFC 3339, nanoseconds, UTC."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


class LogFile:
    """A file of stamped lines. A disk that is full ends it, and nothing else."""

    def __init__(self, path: str, limit: int = LONGEST_FILE) -> None:
        self._path, self._left, self.fault = path, limit, ""
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - it stays open

    def write(self, lines: list[bytes]) -> None:
        """Append lines, each with the time as it is now."""
        if self._left <= 0 or not lines:
            return
        now = stamp(time.time_ns()).encode()
        data = b"".join(now + b" " + line + b"\n" for line in lines)
        self._left -= len(data)
        try:
            self._file.write(data)
            if self._left <= 0:
                self._full(now)
        except OSError as error:
            self._left, self.fault = 0, f"{self._path} is not whole: {error.strerror}"

    def _full(self, now: bytes) -> None:
        self._file.write(now + b" hvdcompose: this file is full: what follows is in `docker logs` only\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RollingFile(LogFile):
    """A file of stamped lines that never ends: a full one becomes `<path>.1`, in the place of the one before."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(path, limit - (os.path.getsize(path) if os.path.exists(path) else 0))
        self._limit = limit

    def _full(self, now: bytes) -> None:
        self._file.close()
        os.replace(self._path, f"{self._path}.1")
        self._file, self._left = open(self._path, "ab", buffering=0), self._limit  # noqa: SIM115 - it stays open


class Cutter:
    """Bytes as they come -> whole lines, without their ends; a very long line comes in pieces."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._rest, self._longest = b"", longest

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole now."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        whole = [piece for line in lines for piece in self._pieces(line)]
        if len(self._rest) >= self._longest:
            whole += self._pieces(self._rest)
            self._rest = b""
        return whole

    def rest(self) -> list[bytes]:
        """Return what stands there without the end of its line."""
        left, self._rest = self._rest, b""
        return [left] if left else []

    def _pieces(self, line: bytes) -> list[bytes]:
        return [line[at : at + self._longest] for at in range(0, len(line), self._longest)] or [b""]


class Book:
    """The last lines of each rank, those of nobody's rank, and the last JSON object that a rank printed."""

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._kept = kept
        self._lines: dict[int | None, collections.deque[str]] = {}
        self.metrics: dict[str, Any] | None = None

    def note(self, line: bytes) -> None:
        """Take a line in."""
        found = PREFIX.match(line)
        rank = int(found.group(2)) if found else None
        text = line[found.end() :] if found else line
        if found and found.group(1):  # Open MPI marks what it reads, and that may begin in the middle of a line
            text = re.sub(rb"\[%s,%s\]<std(out|err)>:" % found.group(1, 2), b"", text)
        tail = self._lines.setdefault(rank, collections.deque(maxlen=self._kept))
        tail.append(text.decode("utf-8", "replace").rstrip("\r"))
        if found and text.strip()[:1] == b"{":
            try:
                told = json.loads(text.decode("utf-8"))
            except ValueError:
                return
            self.metrics = told if isinstance(told, dict) else self.metrics

    def tails(self) -> Tails:
        """Return the last lines of each rank; under None, those that carried no rank's mark."""
        return {rank: list(lines) for rank, lines in self._lines.items()}


class Capture:
    """All that this process and what it starts write to stdout and stderr, from its making until `close`.

    It goes where it went before, at once; and line by line to `file` and to `note`.
    """

    def __init__(self, file: LogFile, note: Callable[[bytes], None] | None = None) -> None:
        self._file, self._note = file, note
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._real: dict[int, int] = {}  # the pipe's end that is read -> where it goes
        self._cutters: dict[int, Cutter] = {}
        sys.stdout.flush()
        sys.stderr.flush()
        for number in (1, 2):
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            self._real[reading], self._cutters[reading] = os.dup(number), Cutter()
            os.dup2(writing, number)
            os.close(writing)
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def settle(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until everything written so far was taken in; `seconds` at most, should somebody write on and on."""
        sys.stdout.flush()
        sys.stderr.flush()
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and self._thread.is_alive():
            with self._lock:
                if not any(waiting(pipe) for pipe in self._real):
                    return
            time.sleep(0.005)

    def close(self) -> None:
        """Put stdout and stderr back. Whoever still holds the pipes, a process left behind, is not waited for."""
        self.settle()
        for number, real in enumerate(self._real.values(), start=1):
            os.dup2(real, number)
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)
        if self._file.fault:
            hvdlib.say(self._file.fault)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pump(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in self._real:
                selector.register(pipe, selectors.EVENT_READ)
            limit: float | None = None
            while selector.get_map():
                ready = selector.select(QUIET_SECONDS)
                if self._closing.is_set():
                    limit = limit or time.monotonic() + CLOSE_SECONDS
                    if not ready or time.monotonic() > limit:
                        break
                for key, _ in ready:
                    with self._lock:
                        if not self._take(key.fd):
                            selector.unregister(key.fd)
        self._write([line for cutter in self._cutters.values() for line in cutter.rest()])
        self._file.close()

    def _take(self, pipe: int) -> bool:
        """Pass on what a pipe has; return False at its end."""
        data = os.read(pipe, 1 << 16)
        pass_on(self._real[pipe], data)
        self._write(self._cutters[pipe].feed(data))
        return bool(data)

    def _write(self, lines: list[bytes]) -> None:
        self._file.write(lines)
        if self._note is not None:
            for line in lines:
                self._note(line)


def waiting(pipe: int) -> int:
    """Return the number of bytes that wait in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def pass_on(number: int, data: bytes) -> None:
    """Write everything to a file descriptor; one whose reader is gone takes nothing, and that is all."""
    while data:
        try:
            data = data[os.write(number, data) :]
        except OSError:
            return
