"""Take everything of a cluster off its hosts, as far as they can be reached."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hvdcompose.deploy.look import engine_of
from hvdcompose.deploy.reconcile import foreign
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError
from hvdcompose.hosts import composefiles
from hvdcompose.hosts.delivery import FILL, prune_code, remove_containers
from hvdcompose.hosts.fanout import Outcome, on_all
from hvdcompose.hosts.observed import observe


def take_down(target: Target, report: Reporter, *, volumes: bool) -> dict[str, Outcome[None]]:
    """Remove the cluster's containers from every host, those that left cluster.yaml included; `volumes` too if told.

    Returns an outcome per host; the folder of a host that left is deleted once its containers are gone.
    """

    def remove(name: str) -> None:
        engine = engine_of(target, name)
        # a host that does not answer is told after seconds, not minutes
        seen = observe(engine, target.cluster.name)
        others = foreign({name: seen})
        if others:
            raise HostError(name, f"another Compose project of this name runs there: {', '.join(others[name])}")
        # Compose passes over what it did not make
        helpers = [container for container in seen.containers if container.service == FILL and not container.live]
        remove_containers(engine, helpers)
        with tempfile.TemporaryDirectory() as folder:
            # a file must be named: without one Compose would take whatever lies in the current folder
            path = Path(folder) / composefiles.COMPOSE
            text = target.texts.get(name) or composefiles.read_text(composefiles.compose_file(target.root, name)) or ""
            path.write_text(text, encoding="utf-8")
            engine.down([path], target.cluster.name, volumes=volumes)
        if volumes:
            prune_code(engine, target.cluster.name, keep="")
        report.host(name, "removed" if not volumes else "removed, with its volumes")
        if name in target.gone:
            composefiles.remove_host(target.root, name)

    return on_all([*target.engines, *target.gone], remove)
