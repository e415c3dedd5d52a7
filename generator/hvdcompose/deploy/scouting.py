"""Ask hosts that no cluster.yaml knows yet: what each could give a cluster, and which cannot be in one, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hvdcompose.config.first import HostFacts, Nic
from hvdcompose.doctor.rules_engine import unfit
from hvdcompose.errors import HostError
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import errors, on_all, values
from hvdcompose.hosts.scout import Scouted, scout


@dataclass(frozen=True)
class Known:
    """What is known of a host without asking it, because this machine made it: its address, its GPUs."""

    address: str
    gpus: int


@dataclass(frozen=True)
class Scouting:
    """The hosts that can be in a cluster, in the order of their contexts, and an error for each of the others."""

    hosts: tuple[HostFacts, ...]
    left_out: Mapping[str, HostError]


def scout_all(endpoints: Mapping[str, str], image: str, known: Mapping[str, Known]) -> Scouting:
    """Ask the hosts behind contexts, {context: endpoint}, all at once, each with deadlines.

    image: tried first where a host is asked through a container. known: by context.
    """
    engines = {name: Engine(name, name, endpoint) for name, endpoint in endpoints.items()}
    outcomes = on_all(engines, lambda name: scout(engines[name], image))
    answers = values(outcomes)
    found = {name: answer.engine for name, answer in answers.items()}
    left_out = {error.host: error for error in errors(outcomes)}
    for finding in unfit(found, {}):
        left_out.setdefault(finding.host, HostError(finding.host, finding.message, hint=finding.remedy))
    hosts = tuple(_facts(name, answer, known.get(name)) for name, answer in answers.items() if name not in left_out)
    return Scouting(hosts, {name: left_out[name] for name in endpoints if name in left_out})


def _facts(context: str, answer: Scouted, known: Known | None) -> HostFacts:
    if known is None:
        return HostFacts(context, answer.nics, answer.endpoint, answer.gpus)
    return HostFacts(context, answer.nics or (Nic(known.address),), known.address, known.gpus)
