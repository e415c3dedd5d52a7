"""A first cluster.yaml, from what hosts say of themselves and what a person answers. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvdcompose.config.scalars import reading
from hvdcompose.config.words import host_complaint

_INNER = re.compile(r"docker\d*|br-[0-9a-f]{12}|veth.*|virbr\d*|lxcbr\d*|lxdbr\d*|cni.*|flannel.*|cali.*|podman\d*")
_PLAIN = re.compile(r"[\w./][\w./ =,@+-]*(?::[\w./][\w./ =,@+-]*)*", re.ASCII)
_COMMENT_COLUMN = 36

Lines = tuple[tuple[str, str], ...]
"""Lines of YAML, each with its comment."""


@dataclass(frozen=True)
class Nic:
    """One IPv4 address of a host, the interface that has it, and its network; "" where these are not known."""

    address: str
    interface: str = ""
    network: str = ""

    def __str__(self) -> str:
        return f"{self.address} ({self.interface})" if self.interface else self.address


@dataclass(frozen=True)
class HostFacts:
    """What is known of a host; `gpus` is None where it gives GPUs and nobody could count them."""

    context: str
    nics: tuple[Nic, ...] = ()
    endpoint: str = ""
    gpus: int | None = 0

    @property
    def options(self) -> tuple[Nic, ...]:
        """The addresses other hosts may reach it at: no bridges inside the host, and none without a network."""
        outer = tuple(nic for nic in self.nics if not _INNER.fullmatch(nic.interface))
        outer = tuple(nic for nic in outer if nic.network) or outer
        return outer or ((Nic(self.endpoint),) if self.endpoint else ())

    def nic(self, address: str) -> Nic:
        """Return what is known of an address."""
        return next((nic for nic in self.options if nic.address == address), Nic(address))


@dataclass(frozen=True)
class Wish:
    """What the person wants: names, image, command, port."""

    name: str
    image: str
    command: str
    port: int = 12345


def decided(facts: Sequence[HostFacts]) -> dict[str, Nic]:
    """Return {context: address} of the hosts where there is but one to take.

    That is the only one a host has, or its only one in a network where every other host has an address too.
    """
    chosen = {}
    for host in facts:
        shared = [nic for nic in host.options if _is_shared(nic, [other for other in facts if other is not host])]
        for nics in (host.options, shared):
            if len(nics) == 1:
                chosen[host.context] = nics[0]
                break
    return chosen


def proposed(host: HostFacts) -> str:
    """Return the address to propose where there are several: the one its context leads to, else the first; or ""."""
    addresses = [nic.address for nic in host.options]
    return host.endpoint if host.endpoint in addresses else next(iter(addresses), "")


def _is_shared(nic: Nic, others: Sequence[HostFacts]) -> bool:
    if not nic.network or not others:
        return False
    network = ipaddress.IPv4Network(nic.network)
    return all(any(ipaddress.IPv4Address(theirs.address) in network for theirs in other.options) for other in others)


def project_name(folder: str) -> str:
    """Return a name for a cluster that is described in a folder of this name."""
    return re.sub(r"[^a-z0-9_-]+", "-", folder.lower()).strip("-_")[:40].rstrip("-_") or "train"


def host_names(contexts: Sequence[str]) -> dict[str, str]:
    """Return {context: host name}: the context's own name, made fit to name a folder."""
    names: dict[str, str] = {}
    for context in contexts:
        name = context if host_complaint(context) is None else re.sub(r"[^A-Za-z0-9_.-]", "-", context)[:63]
        while name.lower() in (taken.lower() for taken in names.values()):
            name = f"{name[:60]}-2"
        names[context] = name
    return names


def first_text(
    wish: Wish, hosts: Sequence[HostFacts], addresses: Mapping[str, Nic], left_out: Mapping[str, str]
) -> str:
    """Return the text of a cluster.yaml for these hosts, the primary first; `left_out` is {context: why}."""
    given = {host.context: _gpu_lines(host) for host in hosts}
    alike = len(set(given.values())) == 1
    return "\n".join(
        [
            *_head(left_out),
            "",
            _line("version: 1", "of this file's format; optional"),
            "",
            _line(f"name: {scalar(wish.name)}", "Compose project name on every host: a-z, 0-9, - and _"),
            "",
            _line(f"image: {scalar(wish.image)}", "what every container runs: it needs Horovod, Python 3 and OpenSSH"),
            _line("", "Or a mapping: {name: ..., build: ./FOLDER, args: {...}, pull: missing | always | never}"),
            "",
            "ssh:",
            _line(f"  port: {wish.port}", "one port for all hosts, never 22: that is the machine's own sshd"),
            "",
            _line("defaults:", "merged under every host"),
            *([_line(f"  {text}", about) for text, about in given[hosts[0].context]] if alike else []),
            _line("  shm_size: 1g", "/dev/shm, for data loaders and NCCL"),
            _line("", "also: interface, ulimits, env, volumes"),
            "",
            _line("hosts:", "the first is the primary (it launches), unless another says `primary: true`"),
            *_hosts(hosts, addresses, {} if alike else given),
            "",
            "train:",
            "  # A string is split as a shell would, and nothing in it is expanded; a list of words is taken as it is.",
            f"  command: {scalar(wish.command)}",
            _line("  # np: 2", "processes in all; default: all slots"),
            _line("  # code: ./FOLDER", "folder here, sent to every host; an edited line counts in the next run"),
            _line("", "there the command finds ./FOLDER/train.py as FOLDER/train.py"),
            _line(f"  # output: {wish.name}-output", "volume of what the ranks write to $HVD_OUTPUT: hvdcompose fetch"),
            _line("  # volumes: {/data: mnist-data}", "path in the containers: path on every host | named volume"),
            _line("  # env: {OMP_NUM_THREADS: 1}", "for every rank"),
            "",
        ]
    )


def _head(left_out: Mapping[str, str]) -> list[str]:
    lines = [
        "# One file describes the cluster. `hvdcompose apply` makes it so.",
        "# Written by `hvdcompose init` from what the hosts said: change what is not as you want it.",
    ]
    return lines + [f"# Left out: {context}: {_on_a_line(why)}" for context, why in left_out.items()]


def _on_a_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def _hosts(hosts: Sequence[HostFacts], addresses: Mapping[str, Nic], given: Mapping[str, Lines]) -> list[str]:
    lines: list[str] = []
    names = host_names([host.context for host in hosts])
    first = hosts[0].context
    for host in hosts:
        nic = addresses[host.context]
        about = "how the other hosts reach it: IPv4, or a name that all of them resolve" if host is hosts[0] else ""
        about = f"on its {nic.interface}" + (f"; {about}" if about else "") if nic.interface else about
        context = "the Docker context (`docker context ls`); default: the host's name" if host.context == first else ""
        lines += [
            f"  {scalar(names[host.context])}:",
            _line(f"    context: {scalar(host.context)}", context),
            _line(f"    address: {nic.address}", about),
            *(_line(f"    {text}", about) for text, about in given.get(host.context, ())),
        ]
    return lines


def _gpu_lines(host: HostFacts) -> Lines:
    """Return what says which GPUs a host gives, and how many processes run there."""
    forms = "all | a count | a list of ids | none | {driver: cdi, ids: [nvidia.com/gpu=0]}"
    if host.gpus == 0:
        return ("gpus: none", forms), ("slots: 1", "processes Horovod places on a host")
    if host.gpus is None:
        asks = "processes Horovod places on a host; where apply counts more GPUs, it asks for this"
        return ("gpus: all", forms), ("# slots: 1", asks)
    return ("gpus: all", forms), (f"slots: {host.gpus}", "processes Horovod places on a host: one for each GPU")


def _line(text: str, comment: str) -> str:
    """Return a line with its comment in the column of all comments."""
    return f"{text:<{_COMMENT_COLUMN - 1}} # {comment}" if comment else text


def scalar(text: str) -> str:
    """Return text as YAML that reads as this text again, in quotes only where it needs them."""
    plain = _PLAIN.fullmatch(text) and reading(text) is None and text == text.strip()
    if plain:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08x}" for character in quoted)
