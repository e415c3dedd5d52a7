"""What a Docker host says of itself before any cluster.yaml knows it: its engine, its addresses, its GPUs."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from hvdcompose.config.first import Nic
from hvdcompose.config.model import Gpus
from hvdcompose.errors import HostError
from hvdcompose.hosts.contexts import ssh_route
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.gpus import try_gpus
from hvdcompose.hosts.nics import nics_through, own_nics
from hvdcompose.hosts.observed import EngineFacts, engine_info, parse_info

OWN_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
MOST_IMAGES = 3  # so many images are tried until one has a `cat`


@dataclass(frozen=True)
class Scouted:
    """A host's answers; `gpus` is None where it has a GPU runtime and nothing there could count them."""

    engine: EngineFacts
    nics: tuple[Nic, ...]
    endpoint: str  # the address its context leads to, "" where that is no address of a machine
    gpus: int | None


def scout(engine: Engine, image: str) -> Scouted:
    """Ask a host, with short containers of an image that is there already (`image` first). Raises HostError."""
    engine.reach()
    told = engine_info(engine)
    listed = [
        tag for each in engine.query("/images/json", doing="listing its images") for tag in each["RepoTags"] or []
    ]
    images = [name for name in (image, *(name for name in listed if name != image)) if name in listed]
    images = [name for name in images if "<none>" not in name][:MOST_IMAGES]
    return Scouted(
        engine=parse_info(told),
        nics=_nics(engine, images),
        endpoint=endpoint_address(engine.endpoint or ""),
        gpus=_gpus(engine, images, runtime="nvidia" in (told.get("Runtimes") or {})),
    )


def _nics(engine: Engine, images: list[str]) -> tuple[Nic, ...]:
    parts = urlsplit(engine.endpoint or "")
    if parts.scheme == "unix" and parts.path in OWN_SOCKETS:
        return own_nics()
    return next((nics for nics in (nics_through(engine, image) for image in images) if nics), ())


def _gpus(engine: Engine, images: list[str], *, runtime: bool) -> int | None:
    for image in images[:1]:
        try:
            counted = try_gpus(engine, image, Gpus(kind="all"))
        except HostError:
            return 0  # it refuses to give any
        if counted:
            return counted
    return None if runtime else 0


def endpoint_address(url: str) -> str:
    """Return the IPv4 address at which a context's endpoint is reached from here, "" where there is none of use."""
    parts = urlsplit(url)
    try:
        name = ssh_route(url).address if parts.scheme == "ssh" else parts.hostname if parts.scheme == "tcp" else None
        address = socket.gethostbyname(name) if name else ""
    except OSError:  # no ssh command, or a name that only a proxy on the way resolves
        return ""
    return "" if address.startswith("127.") else address
