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
    primary: str,
    engine_here: bool = True,
    wanted_build: str = "",
) -> ImageNeeds:
    """Return what is to be built, pulled and sent.

    client, hosts: the image of that name there, or None; machines: each host's architecture as its engine tells it.
    primary: the host that builds where this machine has no engine, and that gives its image to those that have none.
    wanted_build: digest of the build folder, "" without `build`.
    The image of the machine that builds, where there is one, is the one that is meant.
    Raises Refused where a host can get none, or where hosts have different ones and nothing says which is meant.
    """
    client = builder_image(image, client, hosts, primary, engine_here)
    if image.build is not None and (client is None or client.build != wanted_build):
        cause = "its folder changed" if client is not None else "not built yet"
        if engine_here:
            return ImageNeeds(build=cause, send=dict.fromkeys(hosts, "after the build"))
        others = dict.fromkeys((host for host in hosts if host != primary), "after the build")
        return ImageNeeds(build=f"{cause}; this machine has no engine", builder=primary, send=others)
    if image.pull == "always" and image.build is None:
        return ImageNeeds(pull=dict.fromkeys(hosts, "pull: always"))
    client = meant(image, client, hosts, machines)
    if client is not None:
        return ImageNeeds(
            send={
                host: _why_send(client, facts, "here" if engine_here else f"on {primary}")
                for host, facts in hosts.items()
                if facts is None or facts.digest != client.digest
            }
        )
    missing = [host for host, facts in hosts.items() if facts is None]
    if missing and meant(image, hosts[primary], hosts, machines) is not None:
        _refuse_mixture(image.name, {host: facts for host, facts in hosts.items() if facts is not None})
        return ImageNeeds(send=dict.fromkeys(missing, f"it has no such image; {primary} has it, this machine has not"))
    why = "one named by its digest is not sent" if _pinned(image) else "nor has this machine"
    if missing and image.pull == "never":
        raise Refused(
            "\n".join(
                f"{host}: it has no image {image.name}, {why}; `pull: never` asks no registry" for host in missing
            ),
            hint=f"docker pull {image.name} there"
            if _pinned(image)
            else f"docker build -t {image.name} FOLDER here, and apply sends it",
        )
    _refuse_mixture(image.name, {host: facts for host, facts in hosts.items() if facts is not None})
    return ImageNeeds(pull=dict.fromkeys(missing, f"it has no such image, {why}"))


def builder_image(
    image: Image, client: ImageFacts | None, hosts: Mapping[str, ImageFacts | None], primary: str, engine_here: bool
) -> ImageFacts | None:
    """Return the image of the machine that builds: this one, or the primary where this one has no engine."""
    return hosts[primary] if image.build is not None and not engine_here else client


def meant(
    image: Image,
    client: ImageFacts | None,
    hosts: Mapping[str, ImageFacts | None],
    machines: Mapping[str, str],
) -> ImageFacts | None:
    """Return the client's image where it is the one that all hosts should have; None where theirs is.

    That is so for one named by its digest, which `docker save` would lose, and for one made for another
    architecture than the hosts, which all have their own. Raises Refused where they have not.
    """
    if client is None or _pinned(image):
        return None
    needed = {host: MACHINES.get(machine, machine) for host, machine in machines.items()}
    wrong = {host: machine for host, machine in needed.items() if machine and machine != client.architecture}
    if not wrong:
        return client
    own = [facts for host, facts in hosts.items() if facts and facts.architecture == needed.get(host)]
    if image.build is None and len(own) == len(hosts) and len({facts.digest for facts in own}) == 1:
        return None
    told = "\n".join(
        f"{host}: it is {machine}, the image {image.name} is for {client.architecture}"
        for host, machine in wrong.items()
    )
    platforms = ",".join(f"linux/{machine}" for machine in dict.fromkeys(wrong.values()))
    ways = (
        "build it on a machine like the hosts"
        if image.build is not None
        else f"docker build --platform {platforms} here, or one and the same {image.name} on every host, "
        "or `pull: always` for a registry's"
    )
    raise Refused(told, hint=f"{ways}; or leave the host out")


def _pinned(image: Image) -> bool:
    return "@" in image.name


def _why_send(meant: ImageFacts, facts: ImageFacts | None, where: str) -> str:
    return "it has no such image" if facts is None else f"it has another one: {facts.digest}, {where} {meant.digest}"


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
