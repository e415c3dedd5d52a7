"""`hvdcompose lab`: virtual hosts on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hvdcompose.cli.options import AFTER_DASHES, CommandAfterDashes, Json

if TYPE_CHECKING:
    from hvdcompose.lab.operations import HostStatus
    from hvdcompose.lab.plan import Network

app = typer.Typer(
    help="Try a cluster.yaml without a cluster: N virtual Docker hosts on this machine.", no_args_is_help=True
)

COLUMNS = ("HOST", "ADDRESS", "STATE", "ENGINE", "GPUS", "CPUS", "CONTAINERS", "CONTEXT")

Name = Annotated[
    str,
    typer.Option(help="Name of the lab; its hosts are NAME1, NAME2, ...", envvar="HVDCOMPOSE_LAB", metavar="NAME"),
]


def _report(host: str, text: str) -> None:
    from hvdcompose import console

    console.say(f"{host or 'lab'}: {text}")


@app.command()
def up(
    hosts: Annotated[
        int | None,
        typer.Option("--hosts", min=1, max=64, help="How many; default: as many as there are, else 4."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, max=64, help="Stub GPUs per new host; 0: no GPU runtime; default: 1.")
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(min=0.1, help="CPU quota per new host; default: none, hosts share the machine."),
    ] = None,
    rootless: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Make this host's engine rootless; may be repeated."),
    ] = None,
    ssh: Annotated[
        bool,
        typer.Option("--ssh", help="Contexts over ssh instead, for use inside `hvdcompose lab shell` only."),
    ] = False,
    subnet: Annotated[
        str | None, typer.Option(help="Network of the hosts, host N is its 10+N; default: 10.213.77.0/24.")
    ] = None,
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Start virtual hosts (docker run), each with an engine and a Docker context of its own."""
    from hvdcompose import console
    from hvdcompose.lab import operations, spec

    lab = operations.open_lab(name)
    request = spec.Request(
        hosts=hosts,
        subnet=spec.parse_subnet(subnet) if subnet else None,
        gpus=gpus,
        cpus=cpus,
        rootless=frozenset(rootless or ()),
        ssh=ssh,
    )
    raised = operations.up(lab, request, _report)
    steps = raised.plan.steps
    console.answer(
        {
            "lab": name,
            "subnet": str(raised.plan.subnet),
            "hosts": [{"name": step.host.name, "address": str(step.host.address)} for step in steps],
            "acted": raised.acted,
            "seconds": round(raised.seconds, 3),
        }
    )
    count = f"{len(steps)} host{'s' if len(steps) > 1 else ''}"
    if raised.acted:
        _report("", f"{count} ready in {raised.seconds:.1f} s, on {raised.plan.subnet}")
    else:
        _report("", f"{count} ready, nothing to do")
    if raised.plan.others:
        _report("", f"{', '.join(raised.plan.others)} stay as they are")
    first = steps[0].host.name
    if ssh:
        _report("", f"try: hvdcompose lab shell{lab.option} -- docker --context {first} info")
    elif raised.acted:
        _report("", f"try: docker --context {first} info")


@app.command()
def status(name: Name = "lab", as_json: Json = False) -> None:
    """Show every virtual host (docker inspect) and whether its engine answers."""
    from hvdcompose import console
    from hvdcompose.lab import operations

    lab = operations.open_lab(name)
    network, hosts = operations.status(lab)
    console.answer(_document(name, network, hosts))
    if not hosts:
        _report("", f"no hosts in the lab {name}: hvdcompose lab up{lab.option}")
        return
    console.table(COLUMNS, [_row(host) for host in hosts])
    if not all(host.image_current for host in hosts):
        _report("", "some hosts were made from an older image: `lab down`, then `lab up`, renews them")


def _row(seen: HostStatus) -> tuple[str, ...]:
    info, host = seen.info or {}, seen.host
    if seen.ready:
        state = "ready"
    elif seen.status == "running":
        state = "no answer" if seen.info is None else "no network"
    else:
        state = seen.status
    engine = f"{info.get('ServerVersion', '-')}{' rootless' if host.rootless else ''}"
    cpus = "all" if host.cpus is None else f"{host.cpus:g}"
    containers = str(info.get("ContainersRunning", "-"))
    context = host.name if seen.context else "in `lab shell`" if seen.ssh_context else "-"
    return (host.name, str(host.address), state, engine, str(host.gpus), cpus, containers, context)


def _document(name: str, network: Network | None, hosts: list[HostStatus]) -> dict[str, Any]:
    return {
        "lab": name,
        "subnet": str(network.subnet) if network else None,
        "hosts": [
            {
                "name": seen.host.name,
                "address": str(seen.host.address),
                "state": seen.status,
                "ready": seen.ready,
                "attached": seen.attached,
                "engine": (seen.info or {}).get("ServerVersion"),
                "containers": (seen.info or {}).get("ContainersRunning"),
                "rootless": seen.host.rootless,
                "gpus": seen.host.gpus,
                "cpus": seen.host.cpus,
                "context": seen.context,
                "ssh_context": seen.ssh_context,
                "image_current": seen.image_current,
            }
            for seen in hosts
        ],
    }


@app.command()
def down(
    name: Name = "lab",
    images: Annotated[bool, typer.Option("--images", help="Remove the images that hosts are made of as well.")] = False,
    as_json: Json = False,
) -> None:
    """Remove all virtual hosts with their data, their network and their contexts (docker rm)."""
    from hvdcompose import console
    from hvdcompose.lab import operations

    removed = operations.down(operations.open_lab(name), _report, remove_images=images)
    console.answer({"lab": name, "removed": removed})
    if removed:
        _report("", "gone")
    else:
        _report("", f"there is no lab {name}: nothing to do")


@app.command(cls=CommandAfterDashes)
def shell(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Argument(help="A virtual host, to be on it; default: this machine.")] = None,
    name: Name = "lab",
) -> None:
    """Open a shell where the lab's contexts work, or on a HOST; with `-- CMD ARGS`, run that instead."""
    from hvdcompose.lab import operations

    lab = operations.open_lab(name)
    command: list[str] = ctx.meta.get(AFTER_DASHES, [])
    if host is None:
        operations.enter(lab, command)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    operations.enter_host(lab, host, command, terminal=terminal)


@app.command()
def image(
    rootless: Annotated[bool, typer.Option("--rootless", help="The image of rootless hosts as well.")] = False,
    as_json: Json = False,
) -> None:
    """Build the image of the virtual hosts now (docker build), as `up` does when it is missing."""
    from hvdcompose import console
    from hvdcompose.lab import engine, images

    docker = engine.find_engine()
    names = [images.ensure_image(docker, _report, rootless=kind) for kind in ((False, True) if rootless else (False,))]
    console.answer({"images": names})
    for name in names:
        console.out(name)
