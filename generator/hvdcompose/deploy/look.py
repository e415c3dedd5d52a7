"""Observe: ask all hosts at once, and put the answers together into a plan. Changes nothing on any host."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from hvdcompose.deploy.images import builder_image, image_needs, meant, settled_digest
from hvdcompose.deploy.neighbours import conflicts
from hvdcompose.deploy.reconcile import ImageNeeds, Launch, Plan, foreign, reconcile
from hvdcompose.deploy.target import Target
from hvdcompose.doctor.facts import Facts, HostFacts
from hvdcompose.doctor.rule import Finding
from hvdcompose.doctor.rules import errors as wrong_in
from hvdcompose.doctor.rules import findings
from hvdcompose.errors import HostError, HostsFailed, Refused
from hvdcompose.hosts import process
from hvdcompose.hosts.delivery import FILL, Unread, adopt_key, code_versions, launched
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import Outcome, begin, errors, on_all, values
from hvdcompose.hosts.images import ImageFacts, client_image, image_facts
from hvdcompose.hosts.keys import ClusterKey, keys_in_label, load_key, own_keys_digest
from hvdcompose.hosts.observed import Container, EngineFacts, Observed, engine_facts, observe
from hvdcompose.hosts.proofs import load_proofs, with_proofs

KeyOrigin = Literal["client", "primary", "new"]
CLIENT_IMAGE = ""  # the name under which the client's own image is asked for, beside the hosts


@dataclass(frozen=True)
class Seen:
    """Everything that was asked, and the plan that follows from it."""

    observed: Mapping[str, Observed]
    gone: Mapping[str, Observed]
    key: ClusterKey
    key_origin: KeyOrigin
    image: str | None  # digest of the image that is meant, as far as it is known
    plan: Plan
    launch: Launch | None
    history: frozenset[str] | None = None
    unreachable_gone: Mapping[str, HostError] = field(default_factory=dict)
    engines: Mapping[str, EngineFacts] = field(default_factory=dict)  # asked where something is to be done

    def container(self, host: str, service: str) -> Container | None:
        """Return a service's container on a host, or None."""
        return self.observed[host].service(service)


@dataclass(frozen=True)
class Details:
    """What is asked of one host only when something is to be done there."""

    engine: EngineFacts
    image: ImageFacts | None
    has_code: bool


def must(outcomes: Mapping[str, Outcome[object]], doing: str) -> None:
    """Raise HostsFailed when a host failed; every host's error is in it."""
    failed = errors(outcomes)
    if failed:
        well = ", ".join(host for host, outcome in outcomes.items() if outcome.ok)
        count = f"{len(failed)} of {len(outcomes)} hosts failed" + f" (not {well})" * bool(well)
        raise HostsFailed(f"{doing}: {count}; nothing was launched", failed)


@dataclass(frozen=True)
class Snapshots:
    """The answers of all hosts, of those that left cluster.yaml, and the client's own image."""

    hosts: Mapping[str, Outcome[Observed]]
    gone: Mapping[str, Outcome[Observed]]
    client: ImageFacts | None
    engine_here: bool = True  # the client has an engine of its own


def look(
    target: Target,
    *,
    forced: bool = False,
    replace: bool = False,
    launches: bool = True,
    taken: Snapshots | None = None,
    new_key: ClusterKey | None = None,
) -> Seen:
    """Return what stands and what is to be done. Raises HostsFailed, Refused.

    forced: launch whether or not it ever ran (`run`); replace: a live run may be stopped;
    launches: False for none at all; taken: answers that are there already; new_key: the cluster's from now on.
    """
    _ = target.code, target.build, target.secrets  # what cannot be read here is told before a host is asked
    if launches:
        target.refuse_missing_script()
    taken = taken or snapshots(target)
    must(taken.hosts, "asking the hosts")
    observed = with_proofs(values(taken.hosts), load_proofs(target.cluster))
    gone, client = values(taken.gone), taken.client
    lost = {name: outcome.error for name, outcome in taken.gone.items() if outcome.error is not None}
    refuse_foreign(target, observed)
    asked = None
    if not all(seen.containers for seen in observed.values()):  # something will be done
        begin(Engine.prepare)
        asked = begin(lambda: _details(target))
    always = target.cluster.image.pull == "always"
    image = client.digest if client and not always else _labelled_image(observed)
    launch = target.launch(image, forced=forced) if launches else None
    reading = begin(lambda: read_history(target, observed, launch))
    found: tuple[ClusterKey, KeyOrigin] = (new_key, "new") if new_key else _find_key(target, observed)
    key, origin = found
    history = reading.result()
    plan = reconcile(target.desired(key, image), observed, launch, history=history, gone=gone, replace=replace)
    refuse_taken(target, observed, plan)
    seen = Seen(observed, gone, key, origin, image, plan, launch, history, lost)
    built = not target.build or (client is not None and client.build == target.build)
    if plan.empty and built and not always:
        return seen
    details = asked.result() if asked else _details(target)
    needs, image = _needs(target, taken, details)
    launch = target.launch(image or seen.image, forced=forced) if launches else None
    if launch and seen.launch and launch.digest != seen.launch.digest:
        history = read_history(target, observed, launch)
    missing = [name for name, told in details.items() if target.code and not told.has_code]
    desired = target.desired(key, image)
    plan = reconcile(
        desired, observed, launch, history=history, images=needs, code_missing=missing, gone=gone, replace=replace
    )
    engines = {name: told.engine for name, told in details.items()}
    return dataclasses.replace(seen, image=image, plan=plan, launch=launch, history=history, engines=engines)


def refuse_foreign(target: Target, observed: Mapping[str, Observed]) -> None:
    """Raise Refused where a host runs another Compose project of this name: its containers are not ours to touch."""
    found = foreign(observed)
    if found:
        told = "\n".join(
            f"{host}: another Compose project is called {target.cluster.name} there: {', '.join(names)}"
            for host, names in found.items()
        )
        raise Refused(told, hint="take another `name` in cluster.yaml")


def refuse_taken(target: Target, observed: Mapping[str, Observed], plan: Plan) -> None:
    """Raise Refused where another cluster has a port or GPUs of what is to be started."""
    found = conflicts(target.plans, observed, plan.changing)
    if found:
        remedies = "\n".join(dict.fromkeys(conflict.remedy for conflict in found))
        raise Refused("\n".join(str(conflict) for conflict in found), hint=remedies)


def snapshots(target: Target) -> Snapshots:
    """Ask all hosts for their containers and the client for its image, at once."""
    engines = [*target.engines.values(), *target.gone.values()]

    def ask(name: str) -> Observed | ImageFacts | None:
        if name == CLIENT_IMAGE:
            return client_image(target.cluster.image.name)
        return observe(engine_of(target, name), target.cluster.name)

    outcomes = on_all([*(engine.host for engine in engines), CLIENT_IMAGE], ask)
    asked = outcomes.pop(CLIENT_IMAGE)
    client = asked.value
    told = {name: cast("Outcome[Observed]", outcome) for name, outcome in outcomes.items()}
    return Snapshots(
        {name: told[name] for name in target.engines},
        {name: told[name] for name in target.gone},
        client if isinstance(client, ImageFacts) else None,
        engine_here=asked.ok,
    )


def _find_key(target: Target, observed: Mapping[str, Observed]) -> tuple[ClusterKey, KeyOrigin]:
    """Return the client's key, else the one another client left on the primary, else a new one.

    The primary's also where nothing that stands has the client's: another client rotated it.
    """
    key = load_key(target.cluster)
    standing = {(name, keys_in_label(c.keys)) for name, seen in observed.items() for c in seen.containers if c.keys}
    if key is not None:
        ours = {(name, own_keys_digest(target.cluster, target.host(name), key)) for name in observed}
        if not standing or standing & ours or not target.cluster.ssh.managed:
            return key, "client"
    if target.cluster.ssh.managed:
        primary = target.primary
        launcher = observed[primary.host].service("launcher")
        name = launcher.name if launcher else None
        engine = target.engines[primary.host]
        with contextlib.suppress(Unread):
            adopted = adopt_key(engine, target.cluster.name, primary.image, name, target.cluster.ssh.volume)
            if adopted is not None:
                return adopted, "primary"
    return (key, "client") if key is not None else (ClusterKey.generate(), "new")


def _labelled_image(observed: Mapping[str, Observed]) -> str | None:
    """Return the image digest that all containers carry, or None when they differ or there are none."""
    digests = {
        container.image_digest
        for seen in observed.values()
        for container in seen.containers
        if container.service != FILL
    }
    return digests.pop() or None if len(digests) == 1 else None


def read_history(target: Target, observed: Mapping[str, Observed], launch: Launch | None) -> frozenset[str] | None:
    """Return the launches that ever ran, asked for only where the launcher's container does not tell already.

    None: not asked, or not to be read before the image is there.
    """
    if launch is None or launch.forced:
        return None
    primary = target.primary
    launcher = observed[primary.host].service("launcher")
    if launcher is not None and launcher.launch == launch.digest and (launcher.live or launcher.exit_code == 0):
        return None
    engine = target.engines[primary.host]
    try:
        return launched(engine, target.cluster.name, primary.image, launcher.name if launcher else None)
    except Unread:
        return None


def _details(target: Target) -> dict[str, Details]:
    """Ask all hosts what matters before something is done. Raises HostsFailed, Refused."""

    def ask(name: str) -> Details | str:
        if name == CLIENT_IMAGE:
            return compose_version()
        engine = target.engines[name]
        has = target.code is not None and target.code_digest in code_versions(engine, target.cluster.name).whole
        return Details(engine_facts(engine), image_facts(engine, target.cluster.image.name), has)

    outcomes = on_all([*target.engines, CLIENT_IMAGE], ask)
    must({name: outcomes[name] for name in target.engines}, "asking the hosts")
    details = {name: told for name, told in values(outcomes).items() if isinstance(told, Details)}
    hosts = {name: HostFacts(target.host(name), engine=told.engine) for name, told in details.items()}
    refuse_errors(Facts(target.cluster, hosts, compose=str(outcomes[CLIENT_IMAGE].value or "")))
    return details


def refuse_errors(facts: Facts) -> list[Finding]:
    """Return what the rules only note. Raises Refused with everything that would stop the run, and its remedies."""
    found = findings(facts)
    wrong = wrong_in(found)
    if wrong:
        remedies = "\n".join(dict.fromkeys(finding.remedy for finding in wrong))
        raise Refused("\n".join(str(finding) for finding in wrong), hint=remedies)
    return found


def compose_version() -> str:
    """Return the version of this machine's `docker compose`, "" when it has none."""
    answer = process.run(["docker", "compose", "version", "--short"], deadline=20)
    return answer.out.strip() if answer.ok else ""


def _needs(target: Target, taken: Snapshots, details: Mapping[str, Details]) -> tuple[ImageNeeds, str | None]:
    """Return how the hosts get the image, and its digest where that is known before they have it."""
    images = {name: told.image for name, told in details.items()}
    machines = {name: told.engine.architecture for name, told in details.items()}
    image, primary, here = target.cluster.image, target.primary.host, taken.engine_here
    needs = image_needs(
        image, taken.client, images, machines, primary=primary, engine_here=here, wanted_build=target.build
    )
    if needs.build or needs.pull:
        return needs, None
    client = meant(image, builder_image(image, taken.client, images, primary, here), images, machines)
    return needs, client.digest if client else settled_digest(None, images)


def engine_of(target: Target, name: str) -> Engine:
    """Return the engine of a host, also of one that left cluster.yaml."""
    return target.engines.get(name) or target.gone[name]
