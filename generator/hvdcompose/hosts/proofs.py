"""Which workers this client saw ready: their keys had come, and sshd listened. Kept beside the cluster's key.

For a worker's first seconds Docker cannot say that yet, and a client that was killed may not have brought the keys.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace

from hvdcompose.config.model import Cluster
from hvdcompose.hosts.keys import state_folder
from hvdcompose.hosts.observed import Observed

FILE = "proved"


def load_proofs(cluster: Cluster) -> dict[str, str]:
    """Return {host: id of the container that was seen ready}; what cannot be read proves nothing."""
    try:
        told = json.loads((state_folder(cluster) / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(host): str(container) for host, container in told.items()} if isinstance(told, dict) else {}


def save_proofs(cluster: Cluster, proofs: Mapping[str, str]) -> None:
    """Add containers that were seen ready, whole or not at all; without them the next apply only looks once more."""
    folder = state_folder(cluster)
    part = folder / f"{FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        part.write_text(json.dumps({**load_proofs(cluster), **proofs}), encoding="utf-8")
        part.replace(folder / FILE)


def with_proofs(observed: Mapping[str, Observed], proofs: Mapping[str, str]) -> dict[str, Observed]:
    """Return the snapshots with the workers marked that were seen ready. Pure."""

    def marked(host: str, seen: Observed) -> Observed:
        return replace(seen, containers=tuple(replace(c, proved=proofs.get(host) == c.id) for c in seen.containers))

    return {host: marked(host, seen) for host, seen in observed.items()}
