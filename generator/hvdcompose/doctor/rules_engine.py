"""Rules over this machine's Compose, the contexts and the engines they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hvdcompose.doctor.facts import Facts, host_network_is_private, version_of
from hvdcompose.doctor.rule import CLIENT, At, Finding, rule
from hvdcompose.hosts.observed import EngineFacts

TITLE = "This machine, contexts and engines"
OLDEST_COMPOSE = (2, 23, 1)  # the first that takes `configs: content:`
OLDEST_ENGINE = (25, 0)  # the first with CDI; those before get no fixes any more


@rule(
    "compose",
    needs="client",
    remedy="Debian, Ubuntu: apt install docker-compose-v2 (or docker-compose-plugin from Docker's own packages)",
)
def compose_is_there(facts: Facts) -> Iterator[At]:
    """This machine has a `docker compose` that knows what is rendered: 2.23.1 or later (cases D06, W02)."""
    wanted = ".".join(str(part) for part in OLDEST_COMPOSE)
    if facts.compose is None:
        return
    if not facts.compose:
        yield At(CLIENT, f"this machine has no `docker compose`; {wanted} or later is needed", wanted=wanted)
    elif version_of(facts.compose) < OLDEST_COMPOSE:
        message = f"this machine's `docker compose` is {facts.compose}; {wanted} or later is needed"
        yield At(CLIENT, message, found=facts.compose, wanted=wanted)


@rule("reached", needs="host", remedy="docker --context {context} version")
def hosts_answer(facts: Facts) -> Iterator[At]:
    """Every context exists and leads to an engine that answers (cases D01, D10): the first step that fails is told."""
    for name, host in facts.hosts.items():
        if host.error is not None:
            yield At(name, host.error.message, {"context": host.host.context}, remedy=host.error.hint)


def rootless(engines: Mapping[str, EngineFacts], contexts: Mapping[str, str]) -> Iterator[At]:
    """Yield the hosts whose engine's host network is known not to be the machine's."""
    for name, engine in engines.items():
        if host_network_is_private(engine):
            yield At(
                name,
                f"its Docker {engine.version} is rootless, and its host network is not the machine's: "
                "sshd would listen where no other host can reach it",
                {"context": contexts.get(name, name)},
                found=f"rootless {engine.version}",
                wanted="rootful, or 29.5",
            )


def doubled(engines: Mapping[str, EngineFacts], contexts: Mapping[str, str]) -> Iterator[At]:
    """Yield the hosts that are on the engine of one before them."""
    first: dict[str, str] = {}
    for name, engine in engines.items():
        other = first.setdefault(engine.id, name) if engine.id else name
        if other != name:
            led = f"{contexts.get(other, other)} and {contexts.get(name, name)}"
            yield At(name, f"same Docker engine as {other}: the contexts {led} lead to one machine")


@rule(
    "rootful",
    needs="engine",
    remedy="point its context ({context}) to a rootful engine, usually unix:///var/run/docker.sock or "
    "ssh://USER@HOST; or use Docker 29.5 or later there",
)
def engines_are_rootful(facts: Facts) -> Iterator[At]:
    """A rootless engine below 29.5 has a host network of its own: sshd listens there, and no other host reaches it.

    Compose calls such a worker healthy. From 29.5 on, the interfaces and calls of the helper container decide (N01).
    """
    return rootless(facts.engines, facts.contexts)


@rule(
    "own engine",
    needs="engine",
    remedy="docker context ls; a machine cloned from another has that one's engine id as well: there, "
    "rm /var/lib/docker/engine-id and systemctl restart docker",
)
def engines_differ(facts: Facts) -> Iterator[At]:
    """Every context leads to an engine of its own (case D04): two hosts on one would start both containers there."""
    return doubled(facts.engines, facts.contexts)


def unfit(engines: Mapping[str, EngineFacts], contexts: Mapping[str, str]) -> list[Finding]:
    """Return why some of these engines cannot be in one cluster, before there is a cluster.yaml."""
    found = [engines_are_rootful.finding(at) for at in rootless(engines, contexts)]
    return found + [engines_differ.finding(at) for at in doubled(engines, contexts)]


@rule("engine", level="note", needs="engine", remedy="update Docker there when it suits")
def engines_are_not_old(facts: Facts) -> Iterator[At]:
    """An engine before 25 does, from 20.10 on; it knows no CDI (`gpus: {driver: cdi}`), and gets no fixes any more."""
    for name, host in facts.hosts.items():
        version = version_of(host.engine.version) if host.engine else ()
        if host.engine and version and version < OLDEST_ENGINE and not host_network_is_private(host.engine):
            message = f"its Docker {host.engine.version} is old: it knows no CDI, and gets no fixes any more"
            yield At(name, message, found=host.engine.version, wanted="25 or later")


@rule("other clusters", needs="engine", remedy="take the other cluster down: hvdcompose down, in its folder")
def other_clusters_leave_room(facts: Facts) -> Iterator[At]:
    """No other cluster on a host has the ssh port or the GPUs that this one wants (the neighbours of S02 and G08)."""
    for name, host in facts.hosts.items():
        for told, remedy in host.taken:
            yield At(name, told, remedy=remedy)


RULES = (
    compose_is_there,
    other_clusters_leave_room,
    hosts_answer,
    engines_are_rootful,
    engines_differ,
    engines_are_not_old,
)
