"""One kept connection to an engine's HTTP API: a question takes milliseconds there, and a process with the docker CLI.

A path without a version means the engine's own version of the API (https://docs.docker.com/reference/api/engine/).
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import math
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import urlsplit

from hvdcompose.hosts import process
from hvdcompose.hosts.logins import destination

CLOSE_SECONDS = 1.0
DIAL = ("docker", "system", "dial-stdio")  # passes its stdin and stdout to the engine: what docker itself runs over ssh


class Socket(socket.socket):
    """One whose reads all end at one moment; a timeout alone begins anew with each."""

    limit = math.inf  # of time.monotonic()

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Read, for no longer than until then."""
        self.settimeout(_left(self.limit))
        return super().recv_into(*args, **kwargs)


class Unanswered(Exception):
    """The engine gave no answer; the text is what the way to it said, if anything."""


def dial_words(endpoint: str, docker: Sequence[str]) -> list[str]:
    """Return the command whose stdin and stdout are a connection to the engine.

    docker: the words of `docker system dial-stdio` for its context. ssh is spared the docker in between.
    """
    parts = urlsplit(endpoint)
    direct = parts.scheme == "ssh" and not parts.path
    return ["ssh", "-T", *destination(endpoint), *DIAL] if direct else list(docker)


def log_text(data: bytes) -> str:
    """Return the text of a container's log, which comes in frames: 8 bytes of head, the last 4 the length after it."""
    told, at = b"", 0
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        told, at = told + data[at + 8 : end], end
    return told.decode(errors="replace")


@dataclass(eq=False)
class Connection:
    """The connection to one engine, made at the first question; one question at a time."""

    endpoint: str
    docker: Sequence[str]  # see `dial_words`
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _http: http.client.HTTPConnection | None = None
    _socket: Socket | None = None  # its own: HTTPConnection forgets it where the answer is the last one
    _dial: subprocess.Popen[bytes] | None = None
    _said: IO[bytes] | None = None

    @property
    def made(self) -> bool:
        """True after an answer, until one fails to come."""
        return self._http is not None

    def get(self, path: str, seconds: float, *, when_stopping: bool = False) -> tuple[int, bytes]:
        """Return (status, body). Raises TimeoutError, Unanswered; FileNotFoundError without ssh or docker here.

        Raises Interrupted once `end_children` was called, unless the question is asked `when_stopping`.
        """
        refuse: Callable[[], None] = (lambda: None) if when_stopping else process.refuse_when_stopping
        limit = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise TimeoutError
        try:
            refuse()
            if self._http is not None:
                with contextlib.suppress(Unanswered):  # the engine may have restarted since
                    return self._ask(path, limit)
                refuse()  # or all was told to end
            self._open(limit)
            return self._ask(path, limit)
        finally:
            self._lock.release()

    def _ask(self, path: str, limit: float) -> tuple[int, bytes]:
        connection, reader = self._http, self._socket
        assert connection is not None and reader is not None
        try:
            reader.limit = limit
            reader.settimeout(_left(limit))
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            said = self.close()
            if isinstance(error, TimeoutError):
                raise
            raise Unanswered(said or str(error)) from None
        except BaseException:
            self.close()  # an answer that comes later must not pass for the next one's
            raise
        if answer.will_close:
            self.close()
        return answer.status, body

    def _open(self, limit: float) -> None:
        parts = urlsplit(self.endpoint)
        self._socket = _unix(parts.path, limit) if parts.scheme == "unix" else self._dialled()
        self._http = http.client.HTTPConnection("docker")
        self._http.auto_open = 0
        self._http.sock = self._socket
        _made.add(self)

    def _dialled(self) -> Socket:
        ours, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the connection ends
        with theirs:
            try:
                words = dial_words(self.endpoint, self.docker)
                self._dial = process.spawn(words, stdin=theirs, stdout=theirs, stderr=said)
            except OSError:
                ours.close()
                said.close()
                raise
        self._said = said
        return Socket(fileno=ours.detach())

    def wake(self) -> None:
        """Have a question that waits end now, as unanswered."""
        reader = self._socket
        if reader is not None:
            with contextlib.suppress(OSError):
                reader.shutdown(socket.SHUT_RDWR)

    def close(self) -> str:
        """End the connection; return what the way to the engine had said."""
        connection, self._http = self._http, None
        reader, self._socket = self._socket, None
        dial, self._dial = self._dial, None
        said, self._said = self._said, None
        _made.discard(self)
        if connection is not None:
            connection.close()
        if reader is not None:
            reader.close()
        if dial is None or said is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            dial.wait(CLOSE_SECONDS)
        if dial.returncode is None:
            process.end(dial)
        with said:
            said.seek(0)
            return said.read().decode(errors="replace")


def _left(limit: float) -> float:
    left = limit - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _unix(path: str, limit: float) -> Socket:
    connection = Socket(socket.AF_UNIX)
    try:
        connection.settimeout(_left(limit))
        connection.connect(path)
    except TimeoutError:
        connection.close()
        raise
    except OSError as error:
        connection.close()
        raise Unanswered(f"dial unix {path}: connect: {str(error.strerror).lower()}") from None
    return connection


_made: set[Connection] = set()


def wake_all() -> None:
    """Have all questions that wait end now."""
    for connection in list(_made):
        connection.wake()


@atexit.register
def close_all() -> None:
    """End all connections; what dials ends with them, all at once."""
    wake_all()
    for connection in list(_made):
        connection.close()


process.at_stop.append(wake_all)
