"""Decide how each host gets the image. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hvdcompose.config.model import Image
from hvdcompose.deploy.reconcile import ImageNeeds
from hvdcompose.errors import Refused
from hvdcompose.hosts.images import ImageFacts

MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
}  # `uname -m`, as engines tell it -> as images do


def image_needs(
    image: Image,
    client: ImageFacts | None,
    hosts: Mapping[str, ImageFacts | None],
    machines: Mapping[str, str],
    *,
    wanted_build: str = "",
) -> ImageNeeds:
    """Return what is to be built, pulled and sent.

    client, hosts: the image of that name there, or None; machines: each host's architecture as its engine tells it.
    wanted_build: digest of the build folder, "" without `build`.
    The client's image, where there is one, is the one that is meant.
    Raises Refused where a host can get none, or where hosts have different ones and nothing says which is meant.
    """
    if image.build is not None and (client is None or client.build != wanted_build):
        cause = "its folder changed" if client is not None else "not built yet"
        return ImageNeeds(build=cause, send=dict.fromkeys(hosts, "after the build"))
    if image.pull == "always" and image.build is None:
        return ImageNeeds(pull=dict.fromkeys(hosts, "pull: always"))
    if client is not None:
        _refuse_other_machines(image.name, client, machines)
        return ImageNeeds(
            send={
                host: _why_send(client, facts)
                for host, facts in hosts.items()
                if facts is None or facts.digest != client.digest
            }
        )
    missing = [host for host, facts in hosts.items() if facts is None]
    if missing and image.pull == "never":
        raise Refused(
            "\n".join(
                f"{host}: it has no image {image.name}, nor has this machine; `pull: never` asks no registry"
                for host in missing
            ),
            hint=f"docker build -t {image.name} FOLDER here, and apply sends it",
        )
    _refuse_mixture(image.name, {host: facts for host, facts in hosts.items() if facts is not None})
    return ImageNeeds(pull=dict.fromkeys(missing, "it has no such image, nor has this machine"))


def _why_send(client: ImageFacts, facts: ImageFacts | None) -> str:
    return "it has no such image" if facts is None else f"it has another one: {facts.digest}, here {client.digest}"


def _refuse_other_machines(name: str, client: ImageFacts, machines: Mapping[str, str]) -> None:
    wrong = {
        host: machine
        for host, machine in machines.items()
        if machine and MACHINES.get(machine, machine) != client.architecture
    }
    if wrong:
        told = "\n".join(
            f"{host}: it is {MACHINES.get(machine, machine)}, the image {name} is for {client.architecture}"
            for host, machine in wrong.items()
        )
        raise Refused(told, hint="build the image for that architecture, or leave the host out")


def _refuse_mixture(name: str, hosts: Mapping[str, ImageFacts]) -> None:
    if len({facts.digest for facts in hosts.values()}) > 1:
        told = "\n".join(f"{host}: {name} is {facts.digest} ({facts.architecture})" for host, facts in hosts.items())
        raise Refused(
            f"the hosts have different images of one name:\n{told}",
            hint=f"have the right {name} on this machine: apply sends it to all; or `pull: always` in cluster.yaml",
        )


def settled_digest(client: ImageFacts | None, hosts: Mapping[str, ImageFacts | None]) -> str | None:
    """Return the digest all hosts have, or None while they differ or lack it."""
    digests = {facts.digest if facts else None for facts in hosts.values()} | ({client.digest} if client else set())
    return digests.pop() if len(digests) == 1 else None
