"""The hosts that a cluster.yaml names, read quickly and without a look at anything else: for shell completion. Pure."""

from __future__ import annotations

import yaml


def host_names(text: str) -> list[str]:
    """Return the names of the hosts in the order of the file; none where the text cannot be read."""
    try:
        read = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return []
    hosts = read.get("hosts") if isinstance(read, dict) else None
    return [str(name) for name in hosts] if isinstance(hosts, dict) else []
