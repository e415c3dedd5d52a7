"""`hvdcompose schema`: what an editor needs to complete and check a cluster.yaml."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schema", rich_help_panel="Cluster")(show_schema)


def show_schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors: hvdcompose schema > cluster.schema.json."""
    import json

    from hvdcompose import console
    from hvdcompose.config.schema import schema

    console.out(json.dumps(schema(), indent=2))
