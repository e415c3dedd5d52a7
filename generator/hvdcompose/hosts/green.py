"""What the client remembers of the last look at a cluster that found nothing amiss: a digest of what it looked at."""

from __future__ import annotations

import contextlib

from hvdcompose.config.model import Cluster
from hvdcompose.hosts.keys import GREEN, state_folder


def last_green(cluster: Cluster) -> str:
    """Return the digest of the last look that found nothing, "" without one."""
    try:
        return (state_folder(cluster) / GREEN).read_text().strip()
    except OSError:
        return ""


def remember_green(cluster: Cluster, digest: str) -> None:
    """Keep the digest, "" to forget the last one; without a place for it the next look is only longer."""
    path = state_folder(cluster) / GREEN
    with contextlib.suppress(OSError):
        if digest:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text(f"{digest}\n")
        else:
            path.unlink(missing_ok=True)
