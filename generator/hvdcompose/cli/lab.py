"""`hvdcompose lab`: virtual hosts on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hvdcompose.cli.options import AFTER_DASHES, HERE, CommandAfterDashes, File, Json, cluster_of
from hvdcompose.cli.panels import PanelGroup

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hvdcompose.lab.faults import Value
    from hvdcompose.lab.operations import HostStatus
    from hvdcompose.lab.plan import Broken, Network

app = typer.Typer(
    cls=PanelGroup,
    help="Try a cluster.yaml without a cluster: N virtual Docker hosts on this machine.",
    no_args_is_help=True,
)

COLUMNS = ("HOST", "ADDRESS", "STATE", "BROKEN", "ENGINE", "GPUS", "CPUS", "CONTAINERS", "CONTEXT")

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
        typer.Option("--hosts", metavar="N", min=1, max=64, help="How many; default: as many as there are, else 4."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=64, help="Stub GPUs per new host; 0: no GPU runtime; default: 1."),
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.1, help="CPU quota per new host; default: none, hosts share the machine."),
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
        str | None,
        typer.Option(metavar="CIDR", help="Network of the hosts, host N is its 10+N; default: 10.213.77.0/24."),
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
            "broken": [_broken(broken) for broken in raised.plan.broken],
            "acted": raised.acted,
            "seconds": round(raised.seconds, 3),
        }
    )
    count = f"{len(steps)} host{'' if len(steps) == 1 else 's'}"
    if raised.acted:
        _report("", f"{count} ready in {raised.seconds:.1f} s, on {raised.plan.subnet}")
    else:
        _report("", f"{count} ready, nothing to do")
    if raised.plan.others:
        _report("", f"{', '.join(raised.plan.others)} stay as they are")
    _tell_broken(raised.plan.broken, lab.option)
    if ssh and steps:
        _report("", f"try: hvdcompose lab shell{lab.option} -- docker --context {steps[0].host.name} info")
    elif raised.acted and steps:
        _report("", f"try: docker --context {steps[0].host.name} info")


def _tell_broken(broken: Iterable[Broken], option: str) -> None:
    for each in broken:
        _report(each.host, f"is broken ({each.text}) and stays so: hvdcompose lab mend {each.host}{option}")


def _broken(broken: Broken) -> dict[str, Any]:
    return {"host": broken.host, "fault": broken.fault, "values": dict(broken.values), "since": broken.since}


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
    broken = "-" if seen.broken is None else seen.broken.text
    return (host.name, str(host.address), state, broken, engine, str(host.gpus), cpus, containers, context)


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
                "broken": None if seen.broken is None else _broken(seen.broken),
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


class _ShowsFaults(TyperCommand):
    """Has the faults in its --help, which no other command has to load."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Put a line for each fault below the options."""
        from hvdcompose.lab.faults import FAULTS

        self.epilog = "\n\n".join(["Faults:", *(f"{fault.name}: {fault.shown}" for fault in FAULTS)])
        super().format_help(ctx, formatter)


@app.command("break", cls=_ShowsFaults)
def break_(
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="A virtual host that is ready.")] = None,
    fault: Annotated[str | None, typer.Argument(metavar="FAULT", help="One of the faults below.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The cluster's ssh port, for the firewalls; default: 12345.")
    ] = None,
    path: Annotated[str | None, typer.Option(help="Folder on the host, for data-missing; default: /data.")] = None,
    ssh: Annotated[str | None, typer.Option(help="Volume or path on the host, for ssh-modes.")] = None,
    image: Annotated[str | None, typer.Option(help="Name of the image, for wrong-image.")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="How many are left, for fewer-gpus; default: one less.")
    ] = None,
    file: File = HERE,
    listed: Annotated[bool, typer.Option("--list", help="Show the faults and what they take.")] = False,
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Break a virtual host in one of the ways that real hosts break; `lab mend` undoes it.

    What a fault has to be told is taken from cluster.yaml, where there is one.
    """
    from hvdcompose import console
    from hvdcompose.errors import UsageError
    from hvdcompose.lab import breaking, faults, operations

    if listed:
        console.answer(
            {"faults": [{"name": each.name, "shown": each.shown, "value": each.value} for each in faults.FAULTS]}
        )
        console.table(
            ("FAULT", "OPTION", "WHAT IS WRONG THEN"),
            [(each.name, f"--{each.value}" if each.value else "", each.shown) for each in faults.FAULTS],
        )
        return
    if host is None or fault is None:
        raise UsageError("lab break needs a host and a fault", hint="hvdcompose lab break --list")
    chosen, lab = faults.find(fault), operations.open_lab(name)
    options: dict[Value, object] = {"port": port, "path": path, "ssh": ssh, "image": image, "gpus": gpus}
    given = {value: str(text) for value, text in options.items() if text is not None}
    needed = chosen.value is not None and chosen.value != "gpus" and chosen.value not in given
    done = breaking.break_host(lab, host, chosen, given, _from_cluster(file, host) if needed else {}, _report)
    console.answer({"lab": name, **_broken(done.broken), "seconds": round(done.seconds, 3)})
    _report(host, f"broken in {done.seconds:.1f} s: {chosen.shown}")
    _report("", f"undo it with: hvdcompose lab mend {host}{lab.option}")


def _from_cluster(file: Path, host: str) -> dict[Value, str]:
    """Return what a cluster.yaml tells about a host, known by its context; our defaults where there is no file."""
    from hvdcompose.lab.faults import DEFAULTS

    if file == HERE and not file.exists():
        return dict(DEFAULTS)
    cluster = cluster_of(file)
    told: dict[Value, str] = {"port": str(cluster.ssh.port), "ssh": cluster.ssh.volume, "image": cluster.image.name}
    mounts = [mount for each in cluster.hosts if each.context == host for mount in each.volumes]
    paths = [mount.source for mount in (*mounts, *cluster.train.volumes) if mount.source.startswith("/")]
    return {**DEFAULTS, **told, **({"path": paths[0]} if paths else {})}


@app.command()
def mend(
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST]...", help="Default: all that are broken.")
    ] = None,
    name: Name = "lab",
    as_json: Json = False,
) -> None:
    """Undo what `lab break` did, also where it was interrupted."""
    from hvdcompose import console
    from hvdcompose.lab import breaking, operations

    mended = breaking.mend(operations.open_lab(name), hosts or (), _report)
    console.answer(
        {"lab": name, "mended": [{**_broken(each.broken), "seconds": round(each.seconds, 3)} for each in mended]}
    )
    for each in mended:
        _report(each.broken.host, f"sound again after {each.seconds:.1f} s")
    if not mended:
        _report("", "no host was broken")


@app.command()
def image(
    rootless: Annotated[bool, typer.Option("--rootless", help="The image of rootless hosts as well.")] = False,
    old: Annotated[bool, typer.Option("--old", help="The image of hosts with engine 20.10 as well.")] = False,
    as_json: Json = False,
) -> None:
    """Build the image of the virtual hosts now (docker build), as `up` does when it is missing."""
    from hvdcompose import console
    from hvdcompose.lab import engine, images

    docker = engine.find_engine()
    wanted: dict[images.Kind, bool] = {"plain": True, "rootless": rootless, "old": old}
    names = [images.ensure_image(docker, _report, kind) for kind, is_wanted in wanted.items() if is_wanted]
    console.answer({"images": names})
    for name in names:
        console.out(name)
