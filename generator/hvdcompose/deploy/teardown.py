"""Take everything of a cluster off its hosts, as far as they can be reached."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hvdcompose.deploy.look import engine_of
from hvdcompose.deploy.operations import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.hosts import composefiles
from hvdcompose.hosts.engine import ACT_SECONDS, Engine
from hvdcompose.hosts.fanout import Outcome, on_all
from hvdcompose.hosts.observed import observe


def volumes_of(engine: Engine, project: str) -> list[str]:
    """Return the project's volumes on a host. Raises HostError."""
    label = f"label=com.docker.compose.project={project}"
    return engine.call("volume", "ls", "--quiet", "--filter", label, doing="listing its volumes").split()


def take_down(target: Target, report: Reporter, *, volumes: bool) -> dict[str, Outcome[None]]:
    """Remove the cluster's containers from every host, those that left cluster.yaml included; `volumes` too if told.

    Returns an outcome per host; the folder of a host that left is deleted once its containers are gone.
    """

    def remove(name: str) -> None:
        engine = engine_of(target, name)
        observe(engine, target.cluster.name)  # a host that does not answer is told after seconds, not minutes
        with tempfile.TemporaryDirectory() as folder:
            # a file must be named: without one Compose would take whatever lies in the current folder
            path = Path(folder) / composefiles.COMPOSE
            text = target.texts.get(name) or composefiles.read_text(composefiles.compose_file(target.root, name)) or ""
            path.write_text(text, encoding="utf-8")
            engine.down([path], target.cluster.name, volumes=volumes)
        if volumes:
            left = volumes_of(engine, target.cluster.name)
            if left:
                engine.call("volume", "rm", *left, doing="removing its volumes", deadline=ACT_SECONDS)
        report.host(name, "removed" if not volumes else "removed, with its volumes")
        if name in target.gone:
            composefiles.remove_host(target.root, name)

    return on_all([*target.engines, *target.gone], remove)
