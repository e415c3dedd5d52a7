"""`hvdcompose render`: cluster.yaml -> compose/<host>/compose.yaml, without asking any host."""

from __future__ import annotations

from typing import Annotated

import typer

from hvdcompose.cli.options import HERE, File, Json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Cluster")(render)


def render(
    file: File = HERE,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail when a file is missing or stale.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write compose/<host>/compose.yaml for every host of cluster.yaml."""
    from hvdcompose import console
    from hvdcompose.cli.options import cluster_of
    from hvdcompose.hosts import composefiles
    from hvdcompose.stack.plan import plan_hosts
    from hvdcompose.stack.render import render as text_of

    cluster = cluster_of(file)
    root = file.absolute().parent / "compose"
    texts = {plan.host: text_of(plan) for plan in plan_hosts(cluster)}
    stale = composefiles.stale(root, texts)
    console.answer({"folder": str(root), "hosts": list(texts), "stale": stale, "written": [] if check else stale})
    if check:
        for host in stale:
            console.say(f"{composefiles.compose_file(root, host)} is not what cluster.yaml renders", "bold red")
        if stale:
            console.say("  -> hvdcompose render", "cyan")
            raise typer.Exit(1)
        console.say(f"all {len(texts)} files are what cluster.yaml renders")
        return
    composefiles.write_all(root, cluster.name, texts)
    console.say(
        f"{len(stale)} of {len(texts)} files written below {root}"
        if stale
        else f"all {len(texts)} files were up to date"
    )
