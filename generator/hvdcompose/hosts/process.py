"""Child processes with deadlines: lists of words in, output or one clear error out. Nothing outlives its deadline."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# a user's shell may hold any of these; each would send a command elsewhere than its context says
FOREIGN = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_DEFAULT_PLATFORM",
    "DOCKER_API_VERSION",
    "COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES", "COMPOSE_ENV_FILES", "COMPOSE_PATH_SEPARATOR",
    "COMPOSE_DISABLE_ENV_FILE", "COMPOSE_PARALLEL_LIMIT", "COMPOSE_REMOVE_ORPHANS", "COMPOSE_IGNORE_ORPHANS",
    "COMPOSE_COMPATIBILITY",  # names containers demo_worker_1
    "HVD_KEYS", "HVD_IMAGE", "HVD_CODE", "HVD_LAUNCH", "HVD_RUN",
)  # fmt: skip
KILL_AFTER_SECONDS = 2.0
_stopping = threading.Event()
at_stop: list[Callable[[], None]] = []  # what else ends when all children do: waits that no child holds
_first_on_path: list[str] = []


@dataclass(frozen=True)
class Completed:
    """How a command ended; `timed_out` when its deadline killed it."""

    code: int
    out: str
    err: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True when the command ended well in time."""
        return self.code == 0 and not self.timed_out

    @property
    def tail(self) -> str:
        """The last lines it wrote, stderr after stdout, without docker's advertisement for its --help."""
        lines = [*self.out.splitlines()[-20:], *self.err.splitlines()[-20:]]
        return "\n".join(line for line in lines if line.strip() and not line.startswith("Run 'docker"))


class Interrupted(Exception):
    """Ctrl-C came; nothing new is started."""


def refuse_when_stopping() -> None:
    """Raise Interrupted once `end_children` was called."""
    if _stopping.is_set():
        raise Interrupted


def put_first_on_path(folder: Path) -> None:
    """Have all children look for commands in this folder first."""
    _first_on_path.insert(0, str(folder))


def _path() -> str:
    return os.pathsep.join([*_first_on_path, os.environ.get("PATH", os.defpath)])


def clean_environment() -> dict[str, str]:
    """Return the environment for docker: ours without what would override the context."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN} | {"PATH": _path()}


def env_words() -> list[str]:
    """Return `env` and the words that make it give its command the same environment."""
    unset = [word for name in FOREIGN if name in os.environ for word in ("-u", name)]
    return ["env", *unset, *([f"PATH={_path()}"] if _first_on_path else [])]


def spawn(words: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, in the environment for docker."""
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        list(words), env=clean_environment(), start_new_session=True, **options
    )


@contextlib.contextmanager
def child(words: Sequence[str], *, when_stopping: bool = False, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own; end it on leaving.

    Raises Interrupted once `end_children` was called: a thread must not go on after Ctrl-C. What has to be cleared
    away then is told so by `when_stopping`.
    """
    if not when_stopping:
        refuse_when_stopping()
    process = spawn(words, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: SIGTERM, then SIGKILL (docker over a frozen ssh ignores the first).

    The group also where the process itself is gone: what it started may hold its pipes.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_AFTER_SECONDS)


def run(words: Sequence[str], *, deadline: float, stdin: bytes | None = None, when_stopping: bool = False) -> Completed:
    """Run a command for at most `deadline` seconds; never raises for its exit code."""
    pipes = {"stdin": subprocess.PIPE if stdin is not None else subprocess.DEVNULL}
    with child(words, when_stopping=when_stopping, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **pipes) as process:
        try:
            out, err = process.communicate(stdin, timeout=deadline)
        except subprocess.TimeoutExpired:
            end(process)
            return Completed(-1, "", "", timed_out=True)
        return Completed(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def run_silent(words: Sequence[str], *, deadline: float) -> bool:
    """Run a command with none of our pipes, which what it leaves behind would keep open; return whether it did well."""
    nothing = subprocess.DEVNULL
    with child(words, stdin=nothing, stdout=nothing, stderr=nothing) as process:
        try:
            return process.wait(deadline) == 0
        except subprocess.TimeoutExpired:
            return False


def pass_through(words: Sequence[str]) -> int:
    """Run a person's command with this process's own stdin, stdout and stderr; return its exit code.

    It has no deadline, and stays in this process's group, so that it can be at the terminal: Ctrl-C there is the
    command's to deal with. Raises KeyboardInterrupt when this process is told to end (SIGTERM), after ending it.
    """
    refuse_when_stopping()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with subprocess.Popen(list(words), env=clean_environment()) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.terminate()
                raise
    finally:
        signal.signal(signal.SIGINT, before)


def run_bytes(words: Sequence[str], *, deadline: float) -> tuple[Completed, bytes]:
    """Run a command whose stdout is not text; returns (completed with empty `out`, stdout)."""
    with child(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            out, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            end(process)
            return Completed(-1, "", "", timed_out=True), b""
        return Completed(process.returncode, "", err.decode(errors="replace")), out


def run_into(words: Sequence[str], file: IO[bytes], *, deadline: float) -> Completed:
    """Run a command whose stdout goes to a file: for what may be larger than the memory."""
    with child(words, stdout=file, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            _, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            end(process)
            return Completed(-1, "", "", timed_out=True)
        return Completed(process.returncode, "", err.decode(errors="replace"))


def lines(
    words: Sequence[str], *, silent: float | None = None, go_on: Callable[[], bool] = lambda: True
) -> Generator[str]:
    """Yield a command's lines, stdout and stderr in the order they come; ends it when the reader stops.

    When nothing comes for `silent` seconds, `go_on` is asked, and the command ended where it says no.
    """
    with child(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process:
        for line in _arriving(process, lambda: silent):
            if line is not None:
                yield line
            elif not go_on():
                return


def tell_lines(words: Sequence[str], say: Callable[[str], None], *, deadline: float) -> Completed:
    """Run a command for at most `deadline` seconds, telling each line of its stdout and stderr as it comes.

    The result's `out` holds the last of them.
    """
    limit = time.monotonic() + deadline
    last: deque[str] = deque(maxlen=30)
    with child(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process:
        for line in _arriving(process, lambda: max(0.0, limit - time.monotonic())):
            if line is None or time.monotonic() > limit:
                return Completed(-1, "\n".join(last), "", timed_out=True)
            last.append(line)
            say(line)
        return Completed(process.wait(), "\n".join(last), "")


def _arriving(process: subprocess.Popen[bytes], patience: Callable[[], float | None]) -> Iterator[str | None]:
    """Yield a child's lines as they come, and None each time that none came for `patience()` seconds."""
    assert process.stdout is not None
    rest = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], patience())
        if not ready:
            yield None
            continue
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in [*whole, rest] if not chunk and rest else whole:
            yield line.decode(errors="replace").rstrip("\r")
        if not chunk:
            return


class Dialog:
    """A command that is spoken to line by line: `say` to its stdin, `hear` from its stdout; stderr is kept apart."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._errors = process, errors
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._unsent, self._rest = b"", b""
        os.set_blocking(self._in, False)

    def say(self, line: str) -> None:
        """Send a line, at the next `hear`: a command that does not read must not hold us up."""
        self._unsent += line.encode() + b"\n"

    def hear(self, seconds: float) -> str | None:
        """Return the next line, None where the command ends first. Raises TimeoutError."""
        limit = time.monotonic() + seconds
        while b"\n" not in self._rest:
            wants = [self._in] if self._unsent else []
            ready, writable, _ = select.select([self._out], wants, [], max(0.0, limit - time.monotonic()))
            if writable:
                self._send()
            if ready:
                chunk = os.read(self._out, 1 << 16)
                if not chunk:
                    return None
                self._rest += chunk
            elif not writable:
                raise TimeoutError
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._in, self._unsent) :]
        except BrokenPipeError:
            self._unsent = b""  # its stdout will say that it has ended
        except BlockingIOError:
            pass

    def finish(self, seconds: float) -> Completed:
        """End what is said and wait; return how the command ended. `child` kills what goes on longer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        timed_out = False
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        self._errors.seek(0)
        told = self._errors.read().decode(errors="replace")
        return Completed(self._process.returncode or 0, "", told, timed_out=timed_out)


@contextlib.contextmanager
def dialog(words: Sequence[str]) -> Iterator[Dialog]:
    """Start a command to speak to; it is ended on leaving."""
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors, child(words, stdin=pipe, stdout=pipe, stderr=errors) as process:
        yield Dialog(process, errors)


def end_children() -> None:
    """End every process started from here that is still alive, python-on-whales' included (on Ctrl-C)."""
    _stopping.set()
    for stop in at_stop:
        stop()
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    limit = time.monotonic() + KILL_AFTER_SECONDS
    while _descendants() and time.monotonic() < limit:
        time.sleep(0.05)
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants() -> list[int]:
    """Return the pids of all living descendants of this process."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, queue = [], [os.getpid()]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found
