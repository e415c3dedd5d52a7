"""Act: carry a plan out, phase by phase, on all hosts at once. Decides nothing that `reconcile` could have decided."""

from __future__ import annotations

from dataclasses import replace

from hvdcompose.deploy.containers import bring_keys, launch, start_workers, write_standing_envs
from hvdcompose.deploy.goods import deliver_code, deliver_image
from hvdcompose.deploy.look import Seen, Snapshots, engine_of, must, read_history, snapshots
from hvdcompose.deploy.preflight import refuse_what_cannot_start
from hvdcompose.deploy.reconcile import Action, Live, live_run, reconcile, stale_helpers
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.errors import Refused
from hvdcompose.hosts import composefiles
from hvdcompose.hosts.delivery import FILL, prune_code, remove_containers
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import on_all, values
from hvdcompose.hosts.keys import save_key

STOP_SECONDS = 60.0


def converge(target: Target, seen: Seen, report: Reporter) -> str | None:
    """Carry out the plan; return the id of the run that was launched, or None.

    Raises HostsFailed with every host's error; Refused for a live run, and for what `doctor` finds.
    """
    refuse_disturbance(seen)
    composefiles.write_all(target.root, target.cluster.name, target.texts)
    write_standing_envs(target, seen)
    if seen.key_origin != "client":
        save_key(target.cluster, seen.key)
    primary = target.primary.host
    launcher = seen.container(primary, "launcher")
    if launcher and launcher.young and launcher.keys == target.keys_digest(primary, seen.key):
        # a client that was killed after it started the launcher may not have brought the keys
        bring_keys(target, seen, primary)
    if seen.plan.empty:
        return None
    image = deliver_image(target, seen, report)
    seen = _with_image(target, seen, image, report)
    refuse_what_cannot_start(target, seen, image, report)
    _tidy(target, seen)
    deliver_code(target, seen, report)
    _stop_live(target, seen, report)
    _remove_gone(target, seen, report)
    _remove_leftovers(target, seen)
    start_workers(target, seen, image, report)
    run = launch(target, seen, image, report) if seen.plan.hosts(Action.LAUNCH) else None
    if target.code is not None:
        on_all(
            target.engines,
            lambda name: prune_code(target.engines[name], target.cluster.name, target.code_digest),
        )
    return run


def _with_image(target: Target, seen: Seen, image: str, report: Reporter) -> Seen:
    """Return the plan anew where something could not be known before the image was there.

    Workers of another image are made anew, and a launch may turn out to have run before.
    """
    replaced = bool(seen.plan.hosts(Action.STOP_RUN))
    asked = seen.launch is None or seen.launch.forced or seen.history is not None or not seen.plan.hosts(Action.LAUNCH)
    if seen.image is not None and (asked or replaced):
        return seen
    launch = target.launch(image, forced=seen.launch.forced or replaced) if seen.launch else None
    history = read_history(target, seen.observed, launch)
    missing = seen.plan.hosts(Action.SEND_CODE)
    plan = reconcile(
        target.desired(seen.key, image), seen.observed, launch,
        history=history, code_missing=missing, gone=seen.gone, replace=replaced,
    )  # fmt: skip
    for step in plan.steps:
        if step.action is Action.RECREATE and step not in seen.plan.steps:
            report.host(step.host, f"{step.action}: {step.cause}")
    return replace(seen, image=image, plan=plan, launch=launch, history=history)


def refuse_disturbance(seen: Seen) -> None:
    """Raise Refused when the plan would disturb a live run."""
    if seen.plan.disturbs:
        steps = "\n".join(f"  {step}" for step in seen.plan.disturbs)
        raise Refused(
            f"run {seen.plan.live} is live, and this would disturb it:\n{steps}",
            hint="wait for its end (hvdcompose logs -f), end it (hvdcompose stop), or say --replace to end it now",
        )


def refuse_live(seen: Seen, why: str) -> None:
    """Raise Refused while a run is live."""
    if seen.plan.live:
        raise Refused(
            f"run {seen.plan.live} is live: {why}",
            hint="wait for its end (hvdcompose logs -f) or end it (hvdcompose stop)",
        )


def _remove_gone(target: Target, seen: Seen, report: Reporter) -> None:
    """Take the containers off hosts that left cluster.yaml, then delete their folder."""

    def remove(name: str) -> None:
        engine, cluster = target.gone[name], target.cluster.name
        engine.down([composefiles.compose_file(target.root, name)], cluster, volumes=False)
        engine.ask("volume", "rm", "--force", *target.key_volumes)  # keys are not left where they are no longer needed
        prune_code(engine, cluster, keep="")
        composefiles.remove_host(target.root, name)
        report.host(name, "removed: it left cluster.yaml")

    outcomes = on_all(seen.gone, remove)
    must(outcomes, "removing from the hosts that left cluster.yaml")


def _stop_live(target: Target, seen: Seen, report: Reporter) -> None:
    for name in seen.plan.hosts(Action.STOP_RUN):
        report.host(name, f"stopping run {seen.plan.live}")
        stop_run(engine_of(target, name), target.launcher)


def stop_run(engine: Engine, container: str) -> None:
    """End the launcher; it ends all ranks before it goes. Raises HostError."""
    engine.call("stop", "-t", "30", container, doing="stopping the run", deadline=STOP_SECONDS)


def find_live(target: Target) -> Live | None:
    """Return the live run, as far as the hosts answer."""
    return _live_in(snapshots(target))


def _live_in(taken: Snapshots) -> Live | None:
    return live_run({**values(taken.gone), **values(taken.hosts)})


def stop_live(target: Target) -> Live | None:
    """End the live run, on whichever host its launcher is; return it, or None. Raises HostsFailed."""
    taken = snapshots(target)
    live = _live_in(taken)
    if live is None:
        must(taken.hosts, "asking the hosts")
    else:
        stop_run(engine_of(target, live.host), target.launcher)
    return live


def _tidy(target: Target, seen: Seen) -> None:
    """Remove the helper containers that interrupted clients left; half full volumes are filled or pruned later."""

    stale = {name: stale_helpers(there, alone=True) for name, there in seen.observed.items()}

    def remove(name: str) -> None:
        remove_containers(target.engines[name], stale[name])

    must(on_all([name for name in stale if stale[name]], remove), "removing what an interrupted client left")


def _remove_leftovers(target: Target, seen: Seen) -> None:
    """Remove the containers of the other role: a launcher on a host that is now a secondary, or the reverse."""

    def remove(name: str) -> None:
        role = target.plans[name].role
        others = [c for c in seen.observed[name].containers if c.service not in (role, FILL)]
        remove_containers(target.engines[name], others)

    must(
        on_all([name for name in seen.plan.hosts(Action.REMOVE) if name in target.plans], remove),
        "removing containers",
    )
