"""`hvdcompose init`: a first cluster.yaml, from Docker's contexts and what the hosts behind them say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdcompose.cli.complete import complete_contexts
from hvdcompose.cli.options import HERE, File, Json, Yes

if TYPE_CHECKING:
    from hvdcompose.config.first import HostFacts, Nic, Wish
    from hvdcompose.deploy.scouting import Scouting


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Cluster")(init)


def init(
    file: File = HERE,
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="CONTEXT",
            help="A host's Docker context; may be repeated. Default: all but `default`.",
            autocompletion=complete_contexts,
        ),
    ] = None,
    image: Annotated[str | None, typer.Option("--image", metavar="IMAGE", help="What every container runs.")] = None,
    command: Annotated[str | None, typer.Option("--command", metavar="COMMAND", help="What every rank runs.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The cluster's name. Default: the folder's.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port of sshd on every host.")] = 12345,
    primary: Annotated[
        str | None,
        typer.Option(
            "--primary",
            metavar="CONTEXT",
            help="The host that launches. Default: the first.",
            autocompletion=complete_contexts,
        ),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="CONTEXT=ADDRESS", help="How the others reach it; may be repeated."),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write a first cluster.yaml from Docker's contexts and what the hosts say (docker info). Overwrites nothing."""
    from hvdcompose import console
    from hvdcompose.config.first import first_text
    from hvdcompose.errors import HostsFailed, UsageError

    if file.exists():
        raise UsageError(f"{file} is there already; init overwrites nothing", hint="-f OTHER.yaml writes another file")
    endpoints = _chosen(context or [], primary)
    given = _given_addresses(address or [], endpoints)
    wish = _wish(file, image, command, name, port)
    scouting = _scout(endpoints, wish)
    if not scouting.hosts:
        raise HostsFailed("no host can be in a cluster", list(scouting.left_out.values()))
    for error in scouting.left_out.values():
        console.show_error(error)
    hosts = sorted(scouting.hosts, key=lambda host: host.context != primary)  # stable: the primary first
    addresses = _addresses(hosts, given, yes=yes)
    why = {name: error.message for name, error in scouting.left_out.items()}
    text = first_text(wish, hosts, addresses, why)
    _check(text, file, wish)
    _show(hosts, addresses)
    _write(file, text)
    rows = [{"context": host.context, "address": addresses[host.context].address, "gpus": host.gpus} for host in hosts]
    console.answer({"file": str(file), "hosts": rows, "left_out": why})
    console.say(f"{file} is written: {len(hosts)} host{'s' * (len(hosts) > 1)}", "green")
    if why:
        console.say(f"left out: {', '.join(why)}", "yellow")
    console.say("read it, then: hvdcompose plan, hvdcompose apply --follow", "cyan")


def _chosen(contexts: list[str], primary: str | None) -> dict[str, str]:
    """Return {context: endpoint} of the hosts to ask, in the order given. Raises UsageError for unknown contexts."""
    from hvdcompose.errors import UsageError
    from hvdcompose.hosts.contexts import endpoints

    there = endpoints()
    named = list(dict.fromkeys(contexts)) or [name for name in there if name != "default"] or list(there)
    unknown = [name for name in named if name not in there]
    if unknown:
        raise UsageError(f"there is no Docker context {', '.join(unknown)}", hint=f"contexts: {', '.join(there)}")
    if primary is not None and primary not in named:
        raise UsageError(f"--primary {primary} is none of the contexts", hint=f"contexts: {', '.join(named)}")
    return {name: there[name] for name in named}


def _given_addresses(words: list[str], endpoints: Mapping[str, str]) -> dict[str, str]:
    """Return {context: address} as --address gives them. Raises UsageError."""
    from hvdcompose.config.words import address_complaint
    from hvdcompose.errors import UsageError

    given = {}
    for word in words:
        context, _, address = word.partition("=")
        if context not in endpoints:
            raise UsageError(f"--address {word}: {context} is none of the contexts", hint="--address CONTEXT=ADDRESS")
        complaint = address_complaint(address)
        if complaint:
            raise UsageError(f"--address {word}: {complaint}")
        given[context] = address
    return given


def _wish(file: Path, image: str | None, command: str | None, name: str | None, port: int) -> Wish:
    """Return what the person wants, asking for what has no flag. Raises UsageError where nobody can be asked."""
    from hvdcompose.config.first import Wish, project_name
    from hvdcompose.errors import UsageError

    missing = [flag for flag, value in (("--image", image), ("--command", command)) if value is None]
    if missing and not sys.stdin.isatty():
        raise UsageError(
            f"{' and '.join(missing)} cannot be known, and there is no terminal to ask at",
            hint="hvdcompose init --image hvd-trainer:cpu --command 'python train.py'",
        )
    image = image if image is not None else typer.prompt("The image that every container runs", err=True)
    command = command if command is not None else typer.prompt("The command that every rank runs", err=True)
    return Wish(name if name is not None else project_name(file.absolute().parent.name), image, command, port)


def _scout(endpoints: Mapping[str, str], wish: Wish) -> Scouting:
    from hvdcompose import console
    from hvdcompose.deploy.scouting import Known, scout_all
    from hvdcompose.lab.operations import hosts_behind

    console.say(f"asking {', '.join(endpoints)} ...")
    virtual = {name: Known(str(host.address), host.gpus) for name, host in hosts_behind(endpoints).items()}
    return scout_all(endpoints, wish.image, virtual)


def _addresses(hosts: list[HostFacts], given: Mapping[str, str], *, yes: bool) -> dict[str, Nic]:
    """Return {context: address}: as given, as there is no other, as a person chooses. Raises UsageError."""
    from hvdcompose.config.first import decided, proposed
    from hvdcompose.errors import UsageError

    known = decided(hosts) | {host.context: host.nic(given[host.context]) for host in hosts if host.context in given}
    if yes:
        sure = [host for host in hosts if host.context not in known and proposed(host)]
        known |= {host.context: host.nic(proposed(host)) for host in sure}
    open_ones = [host for host in hosts if host.context not in known]
    if open_ones and not (sys.stdin.isatty() and not yes):
        raise UsageError(
            "\n".join(_unknown(host) for host in open_ones),
            hint="\n".join(f"--address {host.context}={proposed(host) or 'ADDRESS'}" for host in open_ones),
        )
    for host in open_ones:
        question = f"{_unknown(host)}\nAddress at which the other hosts reach {host.context}"
        typed = typer.prompt(question, default=proposed(host) or None, value_proc=_address(), err=True)
        known[host.context] = host.nic(typed)
    return known


def _unknown(host: HostFacts) -> str:
    if host.options:
        return f"{host.context} has several addresses: {', '.join(map(str, host.options))}"
    return f"{host.context} does not tell its address"


def _address() -> Callable[[str], str]:
    """Return what checks an address that is typed."""
    from hvdcompose.config.words import address_complaint

    def checked(text: str) -> str:
        complaint = address_complaint(text.strip())
        if complaint:
            raise typer.BadParameter(complaint)
        return text.strip()

    return checked


def _check(text: str, file: Path, wish: Wish) -> None:
    """Read the text as every command will. Raises UsageError: what is wrong with it comes from the flags."""
    from hvdcompose.config.source import parse_cluster
    from hvdcompose.errors import ConfigError, UsageError

    try:
        parse_cluster(text, source=str(file), is_folder=lambda _: True)
    except ConfigError as error:
        raise UsageError(
            "\n".join(f"{problem.path}: {problem.message}" for problem in error.problems),
            hint=f"{file} is not written: --name, --image, --command, --port or --address are not right",
        ) from None


def _show(hosts: list[HostFacts], addresses: Mapping[str, Nic]) -> None:
    from hvdcompose import console

    gpus = {0: "none", None: "all"}
    rows = [(host.context, str(addresses[host.context]), gpus.get(host.gpus, str(host.gpus))) for host in hosts]
    console.table(["HOST", "ADDRESS", "GPUS"], rows)


def _write(file: Path, text: str) -> None:
    """Write the file, unless one has come there since. Raises UsageError."""
    from hvdcompose.errors import UsageError

    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
