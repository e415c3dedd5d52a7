"""Ask all hosts, and each of all others, for what the rules of `doctor` look at. Starts nothing that stays."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hvdcompose.deploy.images import image_needs
from hvdcompose.deploy.look import compose_version
from hvdcompose.deploy.neighbours import conflicts
from hvdcompose.deploy.target import Target
from hvdcompose.doctor.facts import Facts, HostFacts, host_network_is_private
from hvdcompose.errors import Refused
from hvdcompose.hosts.engine import CLIENT, Engine
from hvdcompose.hosts.fanout import Outcome, begin, errors, on_all, values
from hvdcompose.hosts.gpus import count_listed
from hvdcompose.hosts.images import client_image, image_facts
from hvdcompose.hosts.observed import EngineFacts, engine_facts, observe
from hvdcompose.hosts.probe import Helper, Login, Reach, Wants, new_token, open_helper, try_space

SMI_SECONDS = 30.0


@dataclass(frozen=True)
class Asked:
    """What one host answered, and its helper container, which waits for orders."""

    facts: HostFacts
    helper: Helper | None = None


def examine(target: Target, engines: Mapping[str, EngineFacts] | None = None) -> Facts:
    """Return all facts: of this machine, of every host that answers, and between these.

    engines: what engines said of themselves a moment ago; the others are asked.
    """
    compose = begin(compose_version)
    client = begin(lambda: on_all([CLIENT], lambda _: client_image(target.cluster.image.name))[CLIENT])
    with _open(target.engines, lambda name: _ask(target, name, (engines or {}).get(name))) as asked:
        facts = Facts(
            cluster=target.cluster,
            hosts={name: _facts_of(target, name, outcome) for name, outcome in asked.items()},
            compose=compose.result(),
            client_image=client.result().value,
        )
        facts = _with_image(target, facts, engine_here=client.result().ok)
        helpers = {
            name: told.helper for name, told in values(asked).items() if told.helper and name not in facts.image_differs
        }
        return _with_calls(target, facts, helpers)


def glance(target: Target, names: Iterable[str], engines: Mapping[str, EngineFacts]) -> Facts:
    """Return the facts of one helper container on some hosts, one call for each; what fails is among them."""

    def ask(name: str) -> Asked:
        wants = Wants(target.plans[name], new_token(), listens=False)
        return _opened(target.engines[name], wants, HostFacts(target.host(name), engine=engines.get(name)))

    with _open(names, ask) as asked:
        hosts = {name: _facts_of(target, name, outcome) for name, outcome in asked.items()}
        return Facts(cluster=target.cluster, hosts=hosts)


@contextlib.contextmanager
def _open(names: Iterable[str], ask: Callable[[str], Asked]) -> Iterator[dict[str, Outcome[Asked]]]:
    """Ask all hosts at once; their helpers are closed on leaving."""
    asked = on_all(names, ask)
    helpers = {name: told.helper for name, told in values(asked).items() if told.helper}
    try:
        yield asked
    finally:
        on_all(helpers, lambda name: helpers[name].close())


def _facts_of(target: Target, name: str, outcome: Outcome[Asked]) -> HostFacts:
    return outcome.value.facts if outcome.value else HostFacts(target.host(name), error=outcome.error)


def _ask(target: Target, name: str, about: EngineFacts | None) -> Asked:
    """Ask one host for everything that it alone can tell. Raises HostError where it does not answer.

    about: what its engine said of itself, None where it is to be asked.
    """
    engine, plan = target.engines[name], target.plans[name]
    observed = observe(engine, plan.cluster)
    about, image = about or engine_facts(engine), image_facts(engine, plan.image)
    worker = observed.service("worker")
    told = [] if worker is not None and worker.live else conflicts({name: plan}, {name: observed}, [name])
    taken = tuple((str(one).removeprefix(f"{name}: "), one.remedy) for one in told)
    facts = HostFacts(target.host(name), engine=about, image=image, image_asked=True, worker=worker, taken=taken)
    if host_network_is_private(about):
        return Asked(facts)  # what a helper saw would be the engine's own network
    if image is None:
        full = try_space(engine)  # there is nothing to make a helper of
        return Asked(dataclasses.replace(facts, refusals=(full,) if full else ()))
    asked = _opened(engine, Wants(plan, new_token(), frozenset(engine.volumes())), facts)
    if worker is not None and facts.worker_runs and facts.reserves_gpus:
        seen = engine.ask("exec", worker.name, "nvidia-smi", "-L", deadline=SMI_SECONDS)
        counted = dataclasses.replace(asked.facts, worker_gpus=count_listed(seen.out) if seen.ok else 0)
        asked = dataclasses.replace(asked, facts=counted)
    return asked


def _opened(engine: Engine, wants: Wants, facts: HostFacts) -> Asked:
    opened = open_helper(engine, wants)
    if isinstance(opened, Helper):
        return Asked(dataclasses.replace(facts, probe=opened.facts, refusals=opened.refusals), opened)
    return Asked(dataclasses.replace(facts, refusals=opened))


def _with_image(target: Target, facts: Facts, *, engine_here: bool) -> Facts:
    """Add how the hosts that answered get the image; what a wrong one shows is left out."""
    known = {name: host for name, host in facts.hosts.items() if host.image_asked}
    images = {name: host.image for name, host in known.items()}
    machines = {name: host.engine.architecture for name, host in known.items() if host.engine}
    image, primary = target.cluster.image, target.primary.host
    if primary not in known:
        return facts
    try:
        needs = image_needs(
            image, facts.client_image, images, machines,
            primary=primary, engine_here=engine_here, wanted_build=target.build,
        )  # fmt: skip
    except Refused as refused:
        return dataclasses.replace(facts, image_refused=refused)
    comes = {**(needs.pull or {}), **(needs.send or {})}
    differs = frozenset(name for name in needs.send or {} if images[name] is not None and not needs.build)
    hosts = {
        name: dataclasses.replace(host, probe=None, refusals=()) if name in differs else host
        for name, host in facts.hosts.items()
    }
    missing = frozenset(name for name in comes if images[name] is None)
    return dataclasses.replace(facts, hosts=hosts, image_comes=missing, image_differs=differs)


def _with_calls(target: Target, facts: Facts, helpers: Mapping[str, Helper]) -> Facts:
    """Add clocks, the calls of every host to all others, and the launcher's logins to the workers that run."""
    primary = target.primary.host
    workers = {
        name: target.host(name).address
        for name, host in facts.hosts.items()
        if name != primary and name in helpers and host.worker_runs
    }

    def call(name: str) -> tuple[float, dict[str, tuple[Reach, ...]], dict[str, Login]]:
        helper = helpers[name]
        skew = helper.skew()
        others = [other for peer, other in helpers.items() if peer != name]
        reached = helper.connect(others) if others else {}
        return skew, reached, helper.log_in(workers) if name == primary and workers else {}

    outcomes = on_all(helpers, call)
    told = values(outcomes)
    hosts = dict(facts.hosts)
    for name, (skew, _, _) in told.items():
        hosts[name] = dataclasses.replace(hosts[name], skew=skew)
    for error in errors(outcomes):
        hosts[error.host] = dataclasses.replace(hosts[error.host], error=error)
    reaches = {(name, peer): reach for name, (_, found, _) in told.items() for peer, reach in found.items()}
    logins = told[primary][2] if primary in told else {}
    return dataclasses.replace(facts, hosts=hosts, reaches=reaches, logins=logins)


def digest(target: Target, engines: Mapping[str, EngineFacts], image: str | None) -> str:
    """Return what identifies everything that the calls between hosts and the helpers depend on.

    The command and the code are not in it: they change with every other run.
    """
    told = [
        [
            plan.host, plan.context, plan.role, plan.ssh_port, plan.ssh_volume, plan.shm_size,
            repr(plan.gpus), repr(sorted(plan.ulimits.items())), repr(plan.mounts), sorted(plan.environment.items()),
            plan.settings["address"], plan.settings["interface"], target.host(plan.host).slots,
            engines[plan.host].id, engines[plan.host].version, image,
        ]
        for plan in target.plans.values()
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
