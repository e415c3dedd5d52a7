"""Rules: facts -> findings. Each rule is one small pure function; `RULES` lists them in the order to fix things."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hvdcompose.hosts.observed import EngineFacts

OLDEST_COMPOSE = (2, 23, 1)  # the first that takes `configs: content:`
ROOTLESS_HOST_NETWORK = (
    29,
    5,
)  # the first whose rootless `network_mode: host` is the machine's (moby pull request 47103)


@dataclass(frozen=True)
class Facts:
    """What is known before anything starts: the client's Compose, and each host's engine, context and endpoint."""

    compose: str
    engines: Mapping[str, EngineFacts] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """Something that would stop the run: on which host ("" for this machine), what, and what to do."""

    host: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.host}: {self.message}" if self.host else self.message


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (29, 5, 1) for "29.5.1-rc.2"; () where there are none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def compose_is_there(facts: Facts) -> Iterator[Finding]:
    """Compose on the client must know what is rendered."""
    wanted = ".".join(str(part) for part in OLDEST_COMPOSE)
    remedy = "Debian, Ubuntu: apt install docker-compose-v2 (or docker-compose-plugin from Docker's own packages)"
    if not facts.compose:
        yield Finding("", f"this machine has no `docker compose`; {wanted} or later is needed", remedy)
    elif version_of(facts.compose) < OLDEST_COMPOSE:
        yield Finding("", f"this machine's `docker compose` is {facts.compose}; {wanted} or later is needed", remedy)


def engines_are_rootful(facts: Facts) -> Iterator[Finding]:
    """A rootless engine's host network is private to it: sshd listens there, and no other host can reach it."""
    for host, engine in facts.engines.items():
        if engine.rootless and version_of(engine.version) < ROOTLESS_HOST_NETWORK:
            yield Finding(
                host,
                f"its Docker {engine.version} is rootless, and its host network is not the machine's: "
                "sshd would listen where no other host can reach it",
                f"point its context ({facts.contexts.get(host, host)}) to a rootful engine, usually "
                "unix:///var/run/docker.sock or ssh://USER@HOST; or use Docker 29.5 or later there",
            )


def engines_differ(facts: Facts) -> Iterator[Finding]:
    """Two hosts on one engine would start both containers on one machine."""
    first: dict[str, str] = {}
    for host, engine in facts.engines.items():
        other = first.setdefault(engine.id, host) if engine.id else host
        if other != host:
            contexts = f"{facts.contexts.get(other, other)} and {facts.contexts.get(host, host)}"
            yield Finding(
                host,
                f"same Docker engine as {other}: the contexts {contexts} lead to one machine",
                "docker context ls; a machine cloned from another has that one's engine id as well: there, "
                "rm /var/lib/docker/engine-id and systemctl restart docker",
            )


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    compose_is_there,
    engines_are_rootful,
    engines_differ,
)


def findings(facts: Facts) -> list[Finding]:
    """Return everything the rules find, in the order to fix it."""
    return [finding for rule in RULES for finding in rule(facts)]
