"""What a shell offers after TAB. Whatever goes wrong, nothing is offered and nothing is said."""

from __future__ import annotations

from pathlib import Path

import typer


def complete_hosts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the hosts in the cluster.yaml of this command line that begin so."""
    try:
        from hvdcompose.config.names import host_names

        text = Path(ctx.params.get("file") or "cluster.yaml").read_text(encoding="utf-8")
        return [name for name in host_names(text) if name.startswith(incomplete)]
    except Exception:
        return []


def complete_contexts(incomplete: str) -> list[str]:
    """Return the Docker contexts of this machine that begin so."""
    try:
        from hvdcompose.hosts.contexts import endpoints

        return [name for name in endpoints() if name.startswith(incomplete)]
    except Exception:
        return []
