"""What the runs of a cluster wrote on its primary, read through one helper container that ends with this client."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hvdcompose.errors import HostError
from hvdcompose.hosts import process
from hvdcompose.hosts.delivery import helper_labels, mount_words
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.explain import explain

READER = Path(__file__).with_name("output_reader.py")
ROOT = "/hvd/output"
SILENT_SECONDS = 30.0  # the helper says something every second while it is at work
START_SECONDS, END_SECONDS = 60.0, 10.0


@dataclass(frozen=True)
class Remote:
    """One thing a run wrote: a file with size and sha256, a link with its target, or what cannot be brought home.

    odd: what it is instead of a file or a link; fault: why it cannot be read.
    """

    path: str  # below the run's folder; bytes that are no text stand as lone surrogates
    size: int = 0
    sha256: str = ""
    link: str | None = None
    odd: str = ""
    fault: str = ""


class Reader:
    """The helper at work: one request, one answer. Every method raises HostError when it no longer answers."""

    def __init__(self, host: str, requests: IO[bytes], answers: IO[bytes], errors: IO[bytes]) -> None:
        self.host, self._requests, self._answers, self._errors = host, requests, answers, errors
        self._rest = b""

    def runs(self) -> list[str]:
        """Return the runs that wrote something."""
        self._ask(do="runs")
        return [str(name) for name in self._line(START_SECONDS)["runs"]]

    def manifest(self, run: str) -> Iterator[Remote | int]:
        """Yield all that a run wrote; in between, while a large file is read, how many bytes of it are."""
        self._ask(do="manifest", run=run)
        while True:
            told = self._line()
            if "end" in told:
                return
            yield int(told["checked"]) if "checked" in told else Remote(**told)

    def read(self, run: str, entry: Remote, at: int) -> Iterator[bytes]:
        """Yield a file's bytes from `at` on."""
        self._ask(do="get", run=run, path=entry.path, at=at, size=entry.size)
        told = self._line()
        if "fault" in told:
            raise HostError(self.host, f"{entry.path}: {told['fault']}")
        left = int(told["size"])
        while left:
            data = self._rest[:left] or self._more()[:left]
            self._rest = self._rest[len(data) :]
            left -= len(data)
            yield data

    def _ask(self, **request: object) -> None:
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except OSError:
            raise self._ended() from None

    def _line(self, silent: float = SILENT_SECONDS) -> dict[str, Any]:
        while b"\n" not in self._rest:
            self._more(silent)
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return dict(json.loads(line))
        except ValueError:
            raise HostError(self.host, f"its helper container said: {line.decode(errors='replace')[:200]}") from None

    def _more(self, silent: float = SILENT_SECONDS) -> bytes:
        """Wait for more; return all that is not taken yet."""
        ready, _, _ = select.select([self._answers], [], [], silent)
        if not ready:
            raise HostError(self.host, f"no answer within {silent:.0f} s", hint="is the host frozen or overloaded?")
        data = os.read(self._answers.fileno(), 1 << 20)
        if not data:
            raise self._ended()
        self._rest += data
        return self._rest

    def _ended(self) -> HostError:
        ready, _, _ = select.select([self._errors], [], [], 1)
        told = os.read(self._errors.fileno(), 1 << 16).decode(errors="replace") if ready else ""
        message, hint = explain(told) if told else ("its helper container ended", None)
        return HostError(self.host, message, hint=hint)


@contextlib.contextmanager
def open_output(engine: Engine, cluster: str, image: str, source: str) -> Iterator[Reader]:
    """Start a helper that reads `source`, a volume or an absolute path on the host; it ends and goes on leaving.

    Its stdin ends with this process, and so does it: a client that was killed leaves nothing. Raises HostError.
    """
    kind = "bind" if source.startswith("/") else "volume"
    words = (
        *("run", "--interactive", "--rm", "--init", "--pull", "never", "--user", "0:0", "--network", "none"),
        *("--log-driver", "none", "--no-healthcheck", "--entrypoint", "python3", *helper_labels(cluster)),
        *mount_words(kind, source, ROOT, "readonly"),
        *(image, "-c", READER.read_text(), ROOT),
    )
    pipe = subprocess.PIPE
    with process.child(engine.words(*words), stdin=pipe, stdout=pipe, stderr=pipe) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        assert helper.stderr is not None
        yield Reader(engine.host, helper.stdin, helper.stdout, helper.stderr)
        helper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            helper.wait(END_SECONDS)
