"""Decide: desired x observed -> plan, each step with its cause. Pure; nothing here asks or does anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hvdcompose.hosts.delivery import FILL
from hvdcompose.hosts.keys import keys_in_label
from hvdcompose.hosts.observed import Container, Observed
from hvdcompose.stack.plan import Role


class Action(StrEnum):
    """What can be done on a host, in the order in which it is done."""

    REMOVE = "remove"
    TIDY = "tidy"
    BUILD_IMAGE = "build image"
    PULL_IMAGE = "pull image"
    SEND_IMAGE = "send image"
    SEND_CODE = "send code"
    STOP_RUN = "stop run"
    CHECK = "check"
    CREATE = "create"
    RECREATE = "recreate"
    LAUNCH = "launch"


HARMLESS = (Action.BUILD_IMAGE, Action.CHECK, Action.TIDY)  # a live run does not notice them


@dataclass(frozen=True)
class Step:
    """One step on one host, with the reason for it."""

    host: str
    action: Action
    cause: str

    def __str__(self) -> str:
        return f"{self.host}: {self.action}: {self.cause}"


@dataclass(frozen=True)
class Desired:
    """What should stand on one host. `image` is None until the image's content is known."""

    host: str
    role: Role
    image_name: str
    spec: str
    keys: str
    code: str  # "" without a code folder
    image: str | None


@dataclass(frozen=True)
class Launch:
    """The launch that is wanted: its digest, what to say of it, and whether it is asked for again."""

    digest: str
    title: str
    forced: bool = False


@dataclass(frozen=True)
class Plan:
    """The steps that make it so; `live` names the run that is going on."""

    steps: tuple[Step, ...] = ()
    live: str | None = None
    disturbs: tuple[Step, ...] = ()  # steps that a live run would not survive

    @property
    def empty(self) -> bool:
        """True when everything stands as it should."""
        return not self.steps

    def of(self, host: str) -> tuple[Step, ...]:
        """Return a host's steps, in order."""
        return tuple(step for step in self.steps if step.host == host)

    def hosts(self, *actions: Action) -> tuple[str, ...]:
        """Return the hosts that have a step of these kinds, each once."""
        return tuple(dict.fromkeys(step.host for step in self.steps if step.action in actions))

    @property
    def changing(self) -> tuple[str, ...]:
        """The hosts where a container is made."""
        return self.hosts(Action.CREATE, Action.RECREATE, Action.LAUNCH)

    def __str__(self) -> str:
        return "\n".join(str(step) for step in self.steps)


@dataclass(frozen=True)
class Live:
    """A run that is going on: the host of its launcher, its id, and the digest of its launch."""

    host: str
    run: str
    launch: str  # "" for a command of its own (`run -- COMMAND`)


@dataclass(frozen=True)
class ImageNeeds:
    """How each host gets the image; hosts that have the right one are in none of these."""

    build: str | None = None  # cause
    builder: str = "this machine"  # or the primary
    pull: Mapping[str, str] | None = None  # host -> cause
    send: Mapping[str, str] | None = None


def reconcile(
    desired: Sequence[Desired],
    observed: Mapping[str, Observed],
    launch: Launch | None,
    *,
    history: frozenset[str] | None = frozenset(),
    images: ImageNeeds = ImageNeeds(),
    code_missing: Iterable[str] = (),
    gone: Mapping[str, Observed] | None = None,
    replace: bool = False,
) -> Plan:
    """Return the plan.

    desired: one per host of cluster.yaml, in its order; observed: the snapshot of each of these hosts.
    launch: what to launch, or None; history: digests of the launches that ever ran.
    gone: hosts that left cluster.yaml, with their snapshots. replace: a live run may be stopped.
    """
    steps = [Step(host, Action.REMOVE, "it left cluster.yaml") for host in gone or {}]
    left = "an interrupted client left a helper container there"
    steps += [Step(host, Action.TIDY, left) for host, seen in observed.items() if stale_helpers(seen)]
    if images.build:
        steps.append(Step(images.builder, Action.BUILD_IMAGE, images.build))
    steps += [Step(host, Action.PULL_IMAGE, cause) for host, cause in (images.pull or {}).items()]
    steps += [Step(host, Action.SEND_IMAGE, cause) for host, cause in (images.send or {}).items()]
    steps += [Step(host, Action.SEND_CODE, "this version is not there") for host in code_missing]
    for want in desired:
        if want.role == "worker":
            steps += worker_steps(want, observed[want.host])
    primary = next(want for want in desired if want.role == "launcher")
    steps += [
        Step(primary.host, Action.REMOVE, f"its {c.service} is not in cluster.yaml")
        for c in leftovers(primary, observed)
    ]
    launcher = observed[primary.host].service("launcher")
    steps += launch_steps(primary, launcher, launch, history)
    live = live_run({**(gone or {}), **observed})
    return _with_live(tuple(steps), live, primary.host, launch, replace=replace)


def _with_live(
    steps: tuple[Step, ...], live: Live | None, primary: str, launch: Launch | None, *, replace: bool
) -> Plan:
    """Add what a live run means for the steps: nothing, a refusal, or its end and, of the cluster's own, its return."""
    disturbs = tuple(step for step in steps if step.action not in HARMLESS)
    if live is None or not disturbs:
        return Plan(steps, live.run if live else None)
    if not replace:
        return Plan(steps, live.run, disturbs)
    stop = Step(live.host, Action.STOP_RUN, f"run {live.run} is live, --replace")
    launches = any(step.action is Action.LAUNCH for step in steps)
    if launch is not None and live.launch == launch.digest and not launches:
        cause = f"again, in the place of the run that is stopped: {launch.title}"
        steps = (*steps, Step(primary, Action.LAUNCH, cause))
    return Plan((stop, *steps), live.run)


def live_run(observed: Mapping[str, Observed]) -> Live | None:
    """Return the run that is going on, on whichever host its launcher is: another may have become the primary since."""
    for host, seen in observed.items():
        launcher = seen.service("launcher")
        if launcher is not None and launcher.live:
            return Live(host, launcher.run or launcher.id[:12], launcher.launch)
    return None


def foreign(observed: Mapping[str, Observed]) -> dict[str, list[str]]:
    """Return {host: names} of containers that another Compose project of the same name has there: not ours to touch."""
    names = {host: [c.name for c in seen.containers if not c.cluster] for host, seen in observed.items()}
    return {host: found for host, found in names.items() if found}


def stale_helpers(seen: Observed, *, alone: bool = False) -> list[Container]:
    """Return our helper containers on a host that nobody can be using any more.

    They are made for seconds; one that runs ends with its client by itself. alone: no other client changes the
    cluster, so that those with code are nobody's.
    """
    helpers = (c for c in seen.containers if c.service == FILL and not c.live)
    return [c for c in helpers if not c.recent or (alone and c.code)]


def leftovers(want: Desired, observed: Mapping[str, Observed]) -> list[Container]:
    """Return the containers on a host that belong to the other role or to no service of ours."""
    return [c for c in observed[want.host].containers if c.service not in (want.role, FILL)]


def worker_steps(want: Desired, seen: Observed) -> list[Step]:
    """Return what a secondary needs: nothing, a worker, or another one."""
    steps = [
        Step(want.host, Action.REMOVE, f"its {c.service} is not in cluster.yaml")
        for c in leftovers(want, {want.host: seen})
    ]
    worker = seen.service("worker")
    if worker is None:
        return [*steps, Step(want.host, Action.CREATE, "no worker there")]
    cause = drift(want, worker) or ailment(worker)
    if cause:
        return [*steps, Step(want.host, Action.RECREATE, cause)]
    if worker.health == "starting" and not worker.proved:
        # a client that was killed after it started the worker may not have brought the keys
        return [*steps, Step(want.host, Action.CHECK, "its worker has just started")]
    return steps


def drift(want: Desired, container: Container) -> str | None:
    """Return how a container differs from what is wanted, or None."""
    if container.spec != want.spec:
        return "cluster.yaml changed for it"
    if keys_in_label(container.keys) != keys_in_label(want.keys):
        return "the cluster's keys changed"
    if container.keys != want.keys:
        return "its secrets changed"
    if container.code != want.code:
        return "the code changed"
    if container.image != want.image_name or (want.image is not None and container.image_digest != want.image):
        return "the image changed"
    return None


def ailment(worker: Container) -> str | None:
    """Return why a worker that should run does not, or None."""
    if worker.state == "running":
        return "its worker is unhealthy" if worker.health == "unhealthy" else None
    if worker.exit_code is not None:
        return f"its worker ended with exit {worker.exit_code}"
    return f"its worker is {worker.state}"


def launch_steps(
    want: Desired, launcher: Container | None, launch: Launch | None, history: frozenset[str] | None
) -> list[Step]:
    """Return the launch, or nothing: an unchanged launch that ran or runs is left alone unless it is asked for."""
    if launch is None:
        return []
    if launch.forced:
        return [Step(want.host, Action.LAUNCH, f"asked for: {launch.title}")]
    if launcher is not None and launcher.launch == launch.digest and launcher.live:
        return []
    if history is not None and launch.digest in history:
        return []
    if launcher is not None and launcher.launch == launch.digest and launcher.state != "created":
        if launcher.exit_code == 0:
            return []
        return [
            Step(
                want.host,
                Action.LAUNCH,
                f"it was never started, the launcher ended with exit {launcher.exit_code}: {launch.title}",
            )
        ]
    return [Step(want.host, Action.LAUNCH, f"not run yet as it is now: {launch.title}")]
