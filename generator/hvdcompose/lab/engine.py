"""The door to this machine's own Docker, and one question to a virtual host's socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdcompose.errors import HvdError, UsageError
from hvdcompose.hosts import process
from hvdcompose.lab import spec

Report = Callable[[str, str], None]
"""Receives progress: a host's name ("" for the whole lab) and what happens to it."""

OUTER_CONFIG = "HVDCOMPOSE_OUTER_DOCKER_CONFIG"  # in `lab shell`: what DOCKER_CONFIG was outside
NO_ENGINE = "no Docker engine answers on this machine"
NO_ENGINE_HINT = "start Docker; in a checkout `python tools/engine.py` installs and starts it where need be"


@dataclass(frozen=True)
class Engine:
    """This machine's engine, pinned to its socket so that `docker context use lab1` cannot redirect us."""

    words: tuple[str, ...]
    client: tuple[str, ...] = ("docker",)

    @property
    def unpinned(self) -> Engine:
        """The same client, for its contexts: only without --host does `context rm` leave the current one."""
        return Engine(self.client, self.client)

    def attempt(self, *arguments: str, seconds: float = 60) -> process.Completed:
        """Run a docker command, whatever its exit code."""
        done = process.run([*self.words, *arguments], deadline=seconds)
        if done.timed_out:
            raise HvdError(f"`docker {' '.join(arguments[:2])}` was ended: no answer in {seconds:.0f} s")
        return done

    def call(self, *arguments: str, seconds: float = 60) -> str:
        """Run a docker command; its output, or an `HvdError` with the line that says why."""
        done = self.attempt(*arguments, seconds=seconds)
        if not done.ok:
            raise HvdError(f"`docker {' '.join(arguments[:2])}` failed: {reason(done)}")
        return done.out

    def objects(self, *arguments: str) -> list[Any]:
        """Run a docker command that prints a JSON list, or one JSON object per line."""
        out = self.call(*arguments)
        if out.lstrip().startswith("["):
            return list(json.loads(out))
        return [json.loads(line) for line in out.splitlines() if line.strip()]


def reason(done: process.Completed) -> str:
    """Pick the line that most likely says why a docker command failed."""
    lines = [line.strip() for line in (done.err.strip() or done.out).splitlines() if line.strip()]
    # `docker run` ends with an advertisement for its own --help
    lines = [line for line in lines if not line.startswith("Run 'docker")] or lines
    return lines[-1] if lines else f"exit code {done.code}, and not a word"


def find_engine() -> Engine:
    """Find the engine to build the lab on: the user's current one, but never one of a lab's own hosts."""
    docker: tuple[str, ...] = ("docker",)
    if OUTER_CONFIG in os.environ:  # inside `lab shell`, whose DOCKER_CONFIG is the lab's own
        docker += ("--config", os.environ[OUTER_CONFIG])
    endpoint = os.environ.get("DOCKER_HOST") or _context_endpoint(docker, os.environ.get("DOCKER_CONTEXT"))
    if not endpoint.startswith("unix://"):
        raise UsageError(
            f"Docker's current engine is at {endpoint}, and a lab needs this machine's own",
            hint="docker context use default",
        )
    engine = Engine((*docker, "--host", endpoint), docker)
    if not engine.attempt("version", "--format", "{{.Server.Version}}", seconds=20).ok:
        raise HvdError(f"{NO_ENGINE} at {endpoint}", hint=NO_ENGINE_HINT)
    return engine


def _context_endpoint(docker: tuple[str, ...], name: str | None) -> str:
    try:
        done = process.run([*docker, "context", "inspect", *([name] if name else [])], deadline=20)
    except FileNotFoundError:
        raise HvdError(f"{NO_ENGINE}: there is no docker command", hint=NO_ENGINE_HINT) from None
    if not done.ok:
        raise UsageError(f"Docker's current context cannot be read: {reason(done)}", hint="docker context use default")
    context = json.loads(done.out)[0]
    if context["Metadata"].get("Description") == spec.DESCRIPTION:
        return _context_endpoint(docker, "default")
    endpoint: str = context["Endpoints"]["docker"]["Host"]
    return endpoint


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask_info(path: Path, seconds: float = 3) -> dict[str, Any] | None:
    """Ask the engine behind a unix socket what `docker info` shows; None when it does not answer."""
    connection = _SocketConnection(path, seconds)
    try:
        connection.request("GET", "/info")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        return body if answer.status == 200 and isinstance(body, dict) else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
