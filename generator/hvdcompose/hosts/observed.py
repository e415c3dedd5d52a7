"""What stands on a host now: one snapshot, one call."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvdcompose.hosts.engine import Engine

LABELS = ("cluster", "host", "spec", "keys", "code", "image", "launch", "run", "port", "gpus")
FIELD = {"image": "image_digest"}  # where a field of Container is called otherwise
OBSERVE_SECONDS = 10.0
RECENT_SECONDS = 60.0
RANK = "/hvd/rank"


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
    port: str = ""  # of the cluster's ssh
    gpus: str = ""  # all, "any 2", ids with commas, or none
    project: str = ""
    age: float = math.inf  # seconds since it was made, by the client's clock
    proved: bool = False  # this client saw its keys come and its sshd listen

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
    def recent(self) -> bool:
        """True for a minute at most after it was made."""
        return self.age < RECENT_SECONDS

    @property
    def live(self) -> bool:
        """True while its processes exist."""
        return self.state in ("running", "paused", "restarting")


@dataclass(frozen=True)
class Observed:
    """All containers of the cluster's project on one host; `others` are those of other clusters there."""

    containers: tuple[Container, ...] = ()
    others: tuple[Container, ...] = ()

    def service(self, name: str) -> Container | None:
        """Return the container of a service, or None."""
        return next((container for container in self.containers if container.service == name), None)


def parse_snapshot(told: Iterable[Mapping[str, Any]], project: str, now: float) -> Observed:
    """Return what the engine's list of containers says; now: unix seconds. Pure."""
    found = [parse_container(each, now) for each in told]
    return Observed(
        tuple(container for container in found if container.project == project),
        tuple(container for container in found if container.project != project and container.cluster),
    )


def parse_container(told: Mapping[str, Any], now: float) -> Container:
    """Return one container of the engine's list. Pure."""
    labels = told.get("Labels") or {}
    own: dict[str, Any] = {FIELD.get(name, name): str(labels.get(f"hvdcompose.{name}", "")) for name in LABELS}
    # with a link to it a container has a second name, /other/name
    name = next((name for name in told.get("Names") or () if name.count("/") == 1), "").lstrip("/")
    return Container(
        id=told["Id"],
        name=name,
        state=told["State"],
        status=told["Status"],
        image=told["Image"],
        service=str(labels.get("com.docker.compose.service", "")),
        project=str(labels.get("com.docker.compose.project", "")),
        age=now - told["Created"],
        **own,
    )


def observe(engine: Engine, project: str) -> Observed:
    """Ask a host for the containers of a project, and of other clusters. Raises HostError, quickly when nobody answers.

    All that Compose made are asked for, in one call: filters for several labels mean all of them, not one of them.
    """
    engine.reach()
    query = {"all": "1", "filters": json.dumps({"label": ["com.docker.compose.project"]})}
    told = engine.query("/containers/json", query, doing="asking its Docker engine", deadline=OBSERVE_SECONDS)
    return parse_snapshot(told, project, time.time())


def parse_ranks(text: str) -> tuple[str, ...]:
    """Return the commands of the ranks in what `docker top` lists: each is run by a wrapper, /hvd/rank. Pure."""
    words = [line.split()[1:] for line in text.splitlines()]  # the first is the pid, which Docker insists on
    return tuple(" ".join(line[2:]) for line in words if line[1:2] == [RANK] and "python" in line[0])


def ranks_in(engine: Engine, container: str) -> tuple[str, ...]:
    """Return the commands of the ranks that run in a container, none where it does not run. Raises HostError."""
    listed = engine.ask("top", container, "-eo", "pid,args", deadline=OBSERVE_SECONDS)
    return parse_ranks(listed.out) if listed.ok else ()


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says of itself."""

    id: str
    version: str
    rootless: bool
    architecture: str
    selinux: bool = False
    cgroup_driver: str = ""
    cgroup_version: str = ""


def parse_info(told: Mapping[str, Any]) -> EngineFacts:
    """Return the facts in what an engine says of itself (`docker info`). Pure."""
    security = told.get("SecurityOptions") or []
    return EngineFacts(
        id=str(told.get("ID", "")),
        version=str(told.get("ServerVersion", "")),
        rootless=any("name=rootless" in option for option in security),
        architecture=str(told.get("Architecture", "")),
        selinux=any("name=selinux" in option for option in security),
        cgroup_driver=str(told.get("CgroupDriver", "")),
        cgroup_version=str(told.get("CgroupVersion", "")),
    )


def engine_info(engine: Engine) -> dict[str, Any]:
    """Return what an engine says of itself. Raises HostError."""
    return dict(engine.query("/info", doing="asking its Docker engine"))


def engine_facts(engine: Engine) -> EngineFacts:
    """Ask an engine for its facts. Raises HostError."""
    return parse_info(engine_info(engine))
