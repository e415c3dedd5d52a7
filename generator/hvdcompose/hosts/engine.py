"""One host's Docker engine, through its context. Every call has a deadline and fails as one HostError."""

from __future__ import annotations

import http
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from hvdcompose.errors import HostError
from hvdcompose.hosts import contexts, process
from hvdcompose.hosts.api import DIAL, Connection, Unanswered, log_text
from hvdcompose.hosts.explain import explain
from hvdcompose.hosts.logins import logins

if TYPE_CHECKING:
    from python_on_whales import DockerClient

ASK_SECONDS = 20.0  # for a question the engine answers from memory
SLOWEST_BYTES_PER_SECOND = 250_000  # of a home's uplink, shared by eight hosts
SILENT_SECONDS = 15.0  # a followed log that says nothing for so long: is the host still there?
ACT_SECONDS = 120.0  # for what makes or removes containers
LARGE_SECONDS = 1800.0  # for a log of a gigabyte over a slow line
POLL_SECONDS = 0.15
INSPECT = {"container": "/containers/{}/json", "image": "/images/{}/json", "volume": "/volumes/{}"}
CLIENT = ""  # stands for the context of this machine's own engine


def client_words(*words: str) -> list[str]:
    """Return a docker command for the engine that `docker build` typed in this shell would use."""
    if os.environ.get("DOCKER_HOST"):
        return ["docker", "--host", os.environ["DOCKER_HOST"], *words]
    if os.environ.get("DOCKER_CONTEXT"):
        return ["docker", "--context", os.environ["DOCKER_CONTEXT"], *words]
    return ["docker", *words]


@dataclass(frozen=True)
class Engine:
    """The engine behind a Docker context; `endpoint` is where the context leads, None when there is no such context."""

    host: str
    context: str
    endpoint: str | None = ""

    @staticmethod
    def prepare() -> None:
        """Import python-on-whales, 0.2 s of CPU, while the hosts are asked: for when something will be done."""
        import python_on_whales  # noqa: F401

    def words(self, *words: str) -> list[str]:
        """Return a docker command for this engine."""
        return ["docker", "--context", self.context, *words] if self.context else client_words(*words)

    def fail(self, completed: process.Completed, doing: str, seconds: float) -> HostError:
        """Return the error for a command that failed."""
        if completed.timed_out:
            return HostError(
                self.host,
                f"{doing}: no answer within {seconds:.0f} s",
                hint="is the host frozen or overloaded?",
            )
        message, hint = explain(completed.err or completed.out)
        told = completed.tail.strip() in message  # the sentence holds all that was written
        return HostError(self.host, f"{doing}: {message}", hint=hint, output="" if told else completed.tail)

    def reach(self) -> None:
        """Raise HostError quickly when nobody answers where the context leads; over ssh, log in once for all calls."""
        if self._connection.made:
            return
        if self.endpoint is None:
            message, hint = explain(f'context "{self.context}" does not exist')
            raise HostError(self.host, message, hint=hint)
        why = contexts.unreachable(self.endpoint)
        if why:
            hint = explain(why)[1] or f"docker --context {self.context} version"
            raise HostError(self.host, why, hint=hint)
        logins.share(self.endpoint)

    def call(self, *words: str, doing: str, deadline: float = ASK_SECONDS, stdin: bytes | None = None) -> str:
        """Run a docker command; return its stdout. Raises HostError."""
        completed = process.run(self.words(*words), deadline=deadline, stdin=stdin)
        if not completed.ok:
            raise self.fail(completed, doing, deadline)
        return completed.out

    def ask(self, *words: str, deadline: float = ASK_SECONDS) -> process.Completed:
        """Run a docker command whose failure is an answer too. Raises HostError only when its deadline passes."""
        completed = process.run(self.words(*words), deadline=deadline)
        if completed.timed_out:
            raise self.fail(completed, f"docker {words[0]}", deadline)
        return completed

    @cached_property
    def _connection(self) -> Connection:
        return Connection(self.endpoint or "", self.words(*DIAL[1:]))

    def query(
        self, path: str, words: Mapping[str, str] | None = None, *, doing: str, deadline: float = ASK_SECONDS
    ) -> Any:
        """Ask the engine's API for what every engine has; return the JSON of its answer. Raises HostError."""
        body = self._get(path, words, doing, deadline)
        if body is None:
            raise HostError(self.host, f"{doing}: what answers is no Docker engine: it knows no {path}")
        return self._told(body, doing)

    def _told(self, body: bytes, doing: str) -> Any:
        try:
            return json.loads(body)
        except ValueError:
            began = body[:80].decode(errors="replace")
            raise HostError(self.host, f"{doing}: what answers is no Docker engine: {began}") from None

    def _get(
        self, path: str, words: Mapping[str, str] | None, doing: str, seconds: float, *, when_stopping: bool = False
    ) -> bytes | None:
        path = f"{path}?{urlencode(words)}" if words else path
        try:
            status, body = self._connection.get(path, seconds, when_stopping=when_stopping)
        except TimeoutError:
            raise self.fail(process.Completed(-1, "", "", timed_out=True), doing, seconds) from None
        except FileNotFoundError as error:
            raise HostError(self.host, f"{doing}: this machine has no {error.filename} command") from None
        except Unanswered as error:
            why = None if when_stopping else contexts.unreachable(self.endpoint or "")
            raise self.fail(process.Completed(1, "", why or str(error)), doing, seconds) from None
        if status == http.HTTPStatus.NOT_FOUND:
            return None
        if status >= http.HTTPStatus.BAD_REQUEST:
            told = self._told(body, doing)
            text = told.get("message") if isinstance(told, dict) else told
            raise self.fail(process.Completed(1, "", str(text)), doing, seconds)
        return body

    def inspect(self, kind: str, name: str, *, when_stopping: bool = False) -> dict[str, Any] | None:
        """Return the raw JSON of an object, or None when the engine has none of that name. Raises HostError."""
        path, doing = INSPECT[kind].format(quote(name, safe="/:@")), f"docker {kind} inspect {name}"
        body = self._get(path, None, doing, ASK_SECONDS, when_stopping=when_stopping)
        return None if body is None else dict(self._told(body, doing))

    def volumes(self, labels: Sequence[str] = ()) -> list[str]:
        """Return the names of the engine's volumes with all of these labels. Raises HostError."""
        query = {"filters": json.dumps({"label": list(labels)})} if labels else None
        told = self.query("/volumes", query, doing="listing its volumes")
        return [volume["Name"] for volume in told["Volumes"] or []]

    def put(self, container: str, tar: bytes) -> None:
        """Unpack a tar at / of a container, its volumes included, all owned by root. Raises HostError."""
        deadline = ACT_SECONDS + len(tar) / SLOWEST_BYTES_PER_SECOND
        self.call("cp", "-", f"{container}:/", doing="sending files", deadline=deadline, stdin=tar)

    def get(self, container: str, path: str) -> bytes | None:
        """Return the tar of a path in a container, or None when it is not there. Raises HostError."""
        completed, data = process.run_bytes(self.words("cp", f"{container}:{path}", "-"), deadline=ACT_SECONDS)
        return data if self._got(completed, path, ACT_SECONDS) else None

    def get_into(self, container: str, path: str, file: IO[bytes]) -> bool:
        """Write the tar of a path in a container, however large, to a file; False when it is not there.

        Raises HostError.
        """
        completed = process.run_into(self.words("cp", f"{container}:{path}", "-"), file, deadline=LARGE_SECONDS)
        return self._got(completed, path, LARGE_SECONDS)

    def _got(self, completed: process.Completed, path: str, seconds: float) -> bool:
        """Tell whether `docker cp` found a path. Raises HostError where it could not look."""
        if not completed.ok and not re.search(r"could not find the file|no such container", completed.err, re.I):
            raise self.fail(completed, f"reading {path}", seconds)
        return completed.ok

    def follow_logs(self, container: str, *, since: str | None = None, tail: str = "all") -> Iterator[str]:
        """Yield a container's log lines as they come, each with Docker's RFC 3339 timestamp in front.

        Ends when the container does, or when the host no longer answers.
        """
        words = self.words("logs", "--timestamps", "--follow", "--tail", tail, *(["--since", since] if since else []))
        return process.lines([*words, container], silent=SILENT_SECONDS, go_on=self.answers)

    def log_tells(self, container: str, text: str, seconds: float) -> bool:
        """Wait for a line of a container's log that begins so; False when it ends or the time is over first."""
        limit = time.monotonic() + seconds
        path, query = f"/containers/{container}/logs", {"stdout": "1", "stderr": "1"}
        while time.monotonic() < limit:
            running = (self.inspect("container", container) or {}).get("State", {}).get("Running")
            log = self._get(path, query, "reading its log", ASK_SECONDS)
            if log is not None and any(line.startswith(text) for line in log_text(log).splitlines()):
                return True
            if not running:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def answers(self) -> bool:
        """Tell whether somebody answers where the context leads."""
        return self.endpoint is not None and contexts.unreachable(self.endpoint) is None

    def all_logs(self, container: str, *, tail: str = "all") -> list[str]:
        """Return the log lines of a container so far, each with its timestamp. Raises HostError."""
        words = ("logs", "--timestamps", "--tail", tail, container)
        completed = self.ask(*words, deadline=ACT_SECONDS)
        if not completed.ok and "no such container" in completed.err.lower():
            raise HostError(self.host, f"there is no container {container}", hint="hvdcompose apply makes it")
        if not completed.ok:
            raise self.fail(completed, "reading its log", ACT_SECONDS)
        return completed.out.splitlines() + completed.err.splitlines()

    def compose(self, files: Sequence[Path], project: str, *, deadline: float) -> DockerClient:
        """Return python-on-whales' client for this host's Compose file, with a deadline on every call of it."""
        from python_on_whales import DockerClient  # 0.1 s to import: only where something is done

        process.refuse_when_stopping()
        guard = ["timeout", "-k", f"{process.KILL_AFTER_SECONDS:.0f}", f"{deadline:.0f}"]
        return DockerClient(
            context=self.context,
            compose_files=list(files),
            compose_project_name=project,
            client_call=[*process.env_words(), *guard, "docker"],
        )

    def up(self, files: Sequence[Path], project: str, *, recreate: bool, deadline: float = ACT_SECONDS) -> None:
        """`docker compose up -d` for a host's file. Raises HostError."""
        from python_on_whales.exceptions import DockerException

        client = self.compose(files, project, deadline=deadline)
        try:
            client.compose.up(
                detach=True, force_recreate=recreate, remove_orphans=True, pull="never", quiet=True, color=False
            )
        except DockerException as error:
            raise self._compose_error(error, "starting the container", deadline) from None

    def down(self, files: Sequence[Path], project: str, *, volumes: bool, deadline: float = ACT_SECONDS) -> None:
        """`docker compose down` for a host's file and whatever else carries the project's label. Raises HostError."""
        from python_on_whales.exceptions import DockerException

        client = self.compose(files, project, deadline=deadline)
        try:
            client.compose.down(remove_orphans=True, volumes=volumes, quiet=True)
        except DockerException as error:
            raise self._compose_error(error, "removing the containers", deadline) from None

    def _compose_error(self, error: Any, doing: str, deadline: float) -> HostError:
        text = error.stderr or ""
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        timed_out = error.return_code in (124, 137, -9)  # of `timeout`: its deadline; its SIGKILL, which may hit itself
        return self.fail(process.Completed(error.return_code, "", text, timed_out=timed_out), doing, deadline)
