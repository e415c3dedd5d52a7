"""What stands on a host now: one snapshot, one call."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hvdcompose.errors import HostError
from hvdcompose.hosts.engine import Engine

LABELS = ("cluster", "host", "spec", "keys", "code", "image", "launch", "run")
OBSERVE_SECONDS = 10.0
_FIELDS = [".ID", ".Names", ".State", ".Status", ".Image", '(.Label "com.docker.compose.service")']
_FIELDS += [f'(.Label "hvdcompose.{name}")' for name in LABELS]
TEMPLATE = "[" + ",".join(f"{{{{json {field}}}}}" for field in _FIELDS) + "]"


@dataclass(frozen=True)
class Container:
    """One container of the cluster on a host. `image` is a name while that name still means the image it runs."""

    id: str
    name: str
    state: str  # created, running, paused, restarting, exited, dead, removing
    status: str  # Docker's words: "Up 2 minutes (healthy)", "Exited (1) 3 seconds ago"
    image: str
    service: str
    cluster: str = ""
    host: str = ""
    spec: str = ""
    keys: str = ""
    code: str = ""
    image_digest: str = ""
    launch: str = ""
    run: str = ""

    @property
    def exit_code(self) -> int | None:
        """The exit code of a container that ended, or None."""
        found = re.match(r"Exited \((\d+)\)", self.status)
        return int(found.group(1)) if found else None

    @property
    def health(self) -> str:
        """healthy, unhealthy, starting, or "" without a healthcheck."""
        found = re.search(r"\((?:health: )?(healthy|unhealthy|starting)\)", self.status)
        return found.group(1) if found else ""

    @property
    def young(self) -> bool:
        """True for a minute at most after its start."""
        return self.state == "running" and "second" in self.status

    @property
    def live(self) -> bool:
        """True while its processes exist."""
        return self.state in ("running", "paused", "restarting")


@dataclass(frozen=True)
class Observed:
    """All containers of the cluster's project on one host."""

    containers: tuple[Container, ...] = ()

    def service(self, name: str) -> Container | None:
        """Return the container of a service, or None."""
        return next((container for container in self.containers if container.service == name), None)


def parse_snapshot(text: str) -> Observed:
    """Return what the lines of `docker ps` with TEMPLATE say. Pure."""
    return Observed(tuple(Container(*json.loads(line)) for line in text.splitlines() if line.startswith("[")))


def observe(engine: Engine, project: str) -> Observed:
    """Ask a host for the containers of a project. Raises HostError, quickly when nobody answers."""
    engine.reach()
    label = f"label=com.docker.compose.project={project}"
    words = ("ps", "--all", "--no-trunc", "--filter", label, "--format", TEMPLATE)
    return parse_snapshot(engine.call(*words, doing="asking its Docker engine", deadline=OBSERVE_SECONDS))


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says of itself."""

    id: str
    version: str
    rootless: bool
    architecture: str


def parse_info(host: str, text: str) -> EngineFacts:
    """Return the facts in `docker info`'s JSON. Raises HostError when the engine did not answer."""
    told = json.loads(text)
    if told.get("ServerErrors"):
        raise HostError(host, f"its Docker engine does not answer: {told['ServerErrors'][0]}")
    return EngineFacts(
        id=str(told.get("ID", "")),
        version=str(told.get("ServerVersion", "")),
        rootless=any("name=rootless" in option for option in told.get("SecurityOptions") or []),
        architecture=str(told.get("Architecture", "")),
    )


def engine_facts(engine: Engine) -> EngineFacts:
    """Ask an engine for its facts. Raises HostError."""
    return parse_info(engine.host, engine.call("info", "--format", "{{json .}}", doing="asking its Docker engine"))
