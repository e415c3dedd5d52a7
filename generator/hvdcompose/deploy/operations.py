"""Act: carry a plan out, phase by phase, on all hosts at once. Decides nothing that `reconcile` could have decided."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from hvdcompose.deploy.look import Seen, Snapshots, engine_of, must, read_history, snapshots
from hvdcompose.deploy.reconcile import Action, Live, live_run, reconcile
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError, HostsFailed, HvdError, Refused
from hvdcompose.hosts import composefiles, images
from hvdcompose.hosts.delivery import FILL, drop_half_filled, drop_keys, fill_code, prune_code, put_keys, try_folders
from hvdcompose.hosts.engine import ACT_SECONDS, Engine
from hvdcompose.hosts.explain import recognise
from hvdcompose.hosts.fanout import errors, on_all, values
from hvdcompose.hosts.gpus import try_gpus
from hvdcompose.hosts.keys import keys_digest, keys_tar, save_key
from hvdcompose.hosts.ssh_folder import faults, look, strangers
from hvdcompose.stack.launch import horovodrun

READY_SECONDS = 30.0
STOP_SECONDS = 60.0
LOG_LINES = "20"


class Reporter(Protocol):
    """Where the progress of long work goes; `cli/` prints it."""

    def host(self, host: str, text: str) -> None:
        """Tell what happens on a host."""


def converge(target: Target, seen: Seen, report: Reporter) -> str | None:
    """Carry out the plan; return the id of the run that was launched, or None.

    Raises HostsFailed with every host's error; Refused for a live run, GPUs or an ssh folder that will not do.
    """
    refuse_disturbance(seen)
    composefiles.write_all(target.root, target.cluster.name, target.texts)
    _write_standing_envs(target, seen)
    if seen.key_origin != "client":
        save_key(target.cluster, seen.key)
    primary = target.primary.host
    launcher = seen.container(primary, "launcher")
    if launcher and launcher.young and launcher.keys == keys_digest(target.cluster, target.host(primary), seen.key):
        # a client that was killed after it started the launcher may not have brought the keys
        _bring_keys(target, seen, primary)
    if seen.plan.empty:
        return None
    image = _deliver_image(target, seen, report)
    seen = _with_image(target, seen, image, report)
    _refuse_what_cannot_start(target, seen)
    _deliver_code(target, seen, report)
    _stop_live(target, seen, report)
    _remove_gone(target, seen, report)
    _remove_leftovers(target, seen)
    _start_workers(target, seen, image, report)
    run = _launch(target, seen, image, report) if seen.plan.hosts(Action.LAUNCH) else None
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


def _deliver_image(target: Target, seen: Seen, report: Reporter) -> str:
    """Build, pull and send as planned; return the digest of the image that all hosts now have."""
    plan, image = seen.plan, target.cluster.image
    if plan.hosts(Action.BUILD_IMAGE):
        assert image.build is not None
        report.host("this machine", f"building {image.name}")
        images.build(
            image.name,
            target.base / image.build,
            image.args,
            target.build,
            lambda line: report.host("this machine", line),
        )
    changed = plan.hosts(Action.PULL_IMAGE, Action.SEND_IMAGE)
    if seen.image is not None and not changed:
        return seen.image
    client = images.client_image(image.name)

    def deliver(name: str) -> None:
        engine = target.engines[name]
        if name in plan.hosts(Action.PULL_IMAGE):
            report.host(name, f"pulling {image.name}")
            images.pull(engine, image.name)
        elif client is None:
            raise HostError(name, f"cannot send {image.name}: this machine has it no more")
        else:
            report.host(name, f"image {image.name}, {client.size / 1e9:.2f} GB, is sent")
            images.send(engine, image.name, client.size, lambda text: report.host(name, text))
            report.host(name, "image is there")

    must(on_all(changed, deliver), "delivering the image")
    return _common_digest(target)


def _common_digest(target: Target) -> str:
    """Return the digest of the image on all hosts. Raises HostsFailed, HvdError where they differ."""
    outcomes = on_all(target.engines, lambda name: images.image_facts(target.engines[name], target.cluster.image.name))
    must(outcomes, "asking for the image")
    found = {name: outcome.value.digest if outcome.value else "none" for name, outcome in outcomes.items()}
    if len(set(found.values())) > 1 or "none" in found.values():
        told = "\n".join(f"{name}: {digest}" for name, digest in found.items())
        raise HvdError(
            f"the hosts do not have one and the same {target.cluster.image.name}:\n{told}",
            hint="hvdcompose apply",
        )
    return next(iter(found.values()))


def _changing(seen: Seen) -> tuple[str, ...]:
    """Return the hosts where a container is made."""
    return seen.plan.hosts(Action.CREATE, Action.RECREATE, Action.LAUNCH)


def _refuse_what_cannot_start(target: Target, seen: Seen) -> None:
    """Try folders and GPUs, look into the user's ssh folder: before anything starts. Raises HostsFailed, Refused."""
    changing = _changing(seen)
    folders = {name: [m.source for m in plan.mounts if m.is_path] for name, plan in target.plans.items()}
    cluster = target.cluster
    mounting = [name for name, paths in folders.items() if name in changing and paths]
    must(
        on_all(
            mounting, lambda name: try_folders(target.engines[name], cluster.name, cluster.image.name, folders[name])
        ),
        "trying the folders that are mounted",
    )
    with_gpus = [name for name, plan in target.plans.items() if name in changing and plan.gpus.kind != "none"]
    outcomes = on_all(
        with_gpus,
        lambda name: try_gpus(target.engines[name], target.cluster.image.name, target.plans[name].gpus),
    )
    must(outcomes, "trying the GPUs")
    _refuse_uncounted(target, values(outcomes))
    if not target.cluster.ssh.managed:
        _refuse_ssh_folder(target)


def _refuse_uncounted(target: Target, counted: Mapping[str, int]) -> None:
    """With `gpus: all`, GPUs that are counted here must fit the ranks; 0 says only that the image cannot count them."""
    told = {}
    for name, number in counted.items():
        host = target.host(name)
        if host.gpus.kind != "all":
            continue
        if number > 1 and not host.slots_given:
            told[name] = f"`gpus: all` gives {number} GPUs, and `slots` does not say how many ranks use them"
        elif 0 < number < host.slots:
            told[name] = f"{host.slots} slots but only {number} GPU{'s' * (number > 1)} there"
    if told:
        raise Refused(
            "\n".join(f"hosts.{name}: {text}" for name, text in told.items()),
            hint="; ".join(f"hosts.{name}: slots: {counted[name]}" for name in told),
        )


def _refuse_ssh_folder(target: Target) -> None:
    folder = target.cluster.ssh.volume
    outcomes = on_all(target.engines, lambda name: look(target.engines[name], target.cluster.image.name, folder))
    files, primary = values(outcomes), target.primary.host
    told = [
        HostError(name, fault)
        for name, entries in files.items()
        for fault in faults(folder, entries, launches=name == primary)
    ]
    told += [
        HostError(name, f"{folder}/authorized_keys has none of the keys that {primary} offers")
        for name, entries in files.items()
        if name != primary and strangers(files.get(primary, ()), entries)
    ]
    failed = errors(outcomes)
    if failed:
        raise HostsFailed(f"the ssh folder {folder} will not do; nothing was launched", [*failed, *told])
    if told:
        raise Refused(
            "\n".join(f"{fault.host}: {fault.message}" for fault in told),
            hint="or let hvdcompose keep the keys: name a volume in `ssh.volume` instead of a path",
        )


def _deliver_code(target: Target, seen: Seen, report: Reporter) -> None:
    code = target.code
    if code is None:
        return

    def deliver(name: str) -> None:
        engine, cluster = target.engines[name], target.cluster
        helpers = {c.id: c.code for c in seen.observed[name].containers if c.service == FILL}
        drop_half_filled(engine, cluster.name, helpers)
        if fill_code(engine, cluster.name, cluster.image.name, code):
            report.host(name, f"code {code.name} {code.digest} is there")

    needy = dict.fromkeys((*seen.plan.hosts(Action.SEND_CODE), *_changing(seen)))
    must(on_all(needy, deliver), "sending the code")


def _remove_leftovers(target: Target, seen: Seen) -> None:
    """Remove the containers of the other role: a launcher on a host that is now a secondary, or the reverse."""

    def remove(name: str) -> None:
        role = target.plans[name].role
        for container in seen.observed[name].containers:
            if container.service not in (role, FILL):
                target.engines[name].call(
                    "rm", "--force", container.id, doing="removing a container", deadline=ACT_SECONDS
                )

    must(
        on_all([name for name in seen.plan.hosts(Action.REMOVE) if name in target.plans], remove),
        "removing containers",
    )


def _write_env(target: Target, seen: Seen, name: str, image: str, **more: str) -> None:
    """Write what Compose puts into the labels of a host's container."""
    variables = {
        "HVD_KEYS": keys_digest(target.cluster, target.host(name), seen.key),
        "HVD_IMAGE": image,
        **more,
    }
    if target.code is not None:
        variables["HVD_CODE"] = target.code_digest
    composefiles.write_env(target.root, name, variables)


def _write_standing_envs(target: Target, seen: Seen) -> None:
    """Write .env for the containers that stand, from their labels: Compose by hand then finds no difference."""
    for plan in target.plans.values():
        container = seen.container(plan.host, plan.role)
        if container is not None and container.host == plan.host:
            labels = {"KEYS": container.keys, "IMAGE": container.image_digest, "CODE": container.code}
            if plan.role == "launcher":
                labels |= {"LAUNCH": container.launch, "RUN": container.run}
            variables = {f"HVD_{name}": value for name, value in labels.items() if value}
            composefiles.write_env(target.root, plan.host, variables)


def _start(target: Target, seen: Seen, name: str, files: Iterable[str] = (composefiles.COMPOSE,)) -> None:
    """Make and start a host's container. One that cannot be started is removed; an older one is left where it is."""
    engine, container = target.engines[name], target.plans[name].container
    try:
        _make_and_start(target, seen, name, files)
    except HostError:
        with contextlib.suppress(HostError):
            made = engine.inspect("container", container)
            if made is not None and made["State"]["Status"] == "created":
                engine.ask("rm", "--force", container)
        raise


def _make_and_start(target: Target, seen: Seen, name: str, files: Iterable[str]) -> None:
    """Make and start a host's container, then fill its volumes: the script in it waits for these very keys."""
    engine, plan = target.engines[name], target.plans[name]
    before = seen.container(name, plan.role)
    wanted = keys_digest(target.cluster, target.host(name), seen.key)
    if before is not None and before.keys != wanted:
        drop_keys(engine, before.id, target.key_volumes)
    engine.up([target.root / name / file for file in files], plan.cluster, recreate=before is not None)
    _bring_keys(target, seen, name)


def _bring_keys(target: Target, seen: Seen, name: str) -> None:
    """Fill the volumes of a host's container with its keys, unless they hold them."""
    host = target.host(name)
    digest = keys_digest(target.cluster, host, seen.key)
    engine, container = target.engines[name], target.plans[name].container
    tar = keys_tar(target.cluster, host, seen.key)
    if seen.key_origin == "new":
        engine.put(container, tar)  # nothing that is there can be this key
    else:
        put_keys(engine, container, tar, digest)


def bring_keys_to_primary(target: Target, seen: Seen) -> None:
    """Give the launcher's volumes the new keys at once, not at the next launch: another client adopts what is there."""
    if seen.container(target.primary.host, "launcher") is not None:
        _bring_keys(target, seen, target.primary.host)


def _start_workers(target: Target, seen: Seen, image: str, report: Reporter) -> None:
    """Start all workers at once and wait until each serves ssh; a failed one is removed, the others stay."""

    def start(name: str) -> None:
        container, engine = target.plans[name].container, target.engines[name]
        if name in made:
            _write_env(target, seen, name, image)
            _start(target, seen, name)
        else:
            _bring_keys(target, seen, name)
        try:
            engine.call(
                "exec",
                container,
                "/hvd/worker",
                "ready",
                doing="waiting for its worker",
                deadline=READY_SECONDS,
            )
        except HostError as error:
            raise _with_log(engine, container, error) from None
        report.host(name, "worker is ready")

    made = seen.plan.hosts(Action.CREATE, Action.RECREATE)
    names = seen.plan.hosts(Action.CREATE, Action.RECREATE, Action.CHECK)
    outcomes = on_all(names, start)
    failed = [outcome.error for outcome in outcomes.values() if outcome.error is not None]
    if failed:
        raise HostsFailed(f"not launched: {len(failed)} of {len(names)} workers did not start", failed)


def _with_log(engine: Engine, container: str, error: HostError) -> HostError:
    """Return the error with the failed container's last lines, and remove that container."""
    try:
        log = engine.ask("logs", "--tail", LOG_LINES, container)
        engine.ask("rm", "--force", container)
    except HostError:
        return error
    lines = (log.out + log.err).strip() if log.ok else ""
    ours = [line.removeprefix("hvdcompose: ") for line in lines.splitlines() if line.startswith("hvdcompose: ")]
    if ours and "sshd on port" not in ours[-1]:  # the script under /hvd said itself why it ended
        return HostError(engine.host, ours[-1].removeprefix(f"{engine.host}: "), output=lines)
    message, hint = recognise(lines) or (error.message, error.hint)
    return HostError(engine.host, message, hint=hint, output=lines or error.output)


def new_run_id() -> str:
    """Return the name of a new run: UTC time, to sort by, and three hex digits against a collision."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)[:3]}"


def _launch(target: Target, seen: Seen, image: str, report: Reporter) -> str:
    """Start the launcher; return the run's id. Raises HostsFailed."""
    plan, run = target.primary, new_run_id()
    files = [composefiles.COMPOSE]
    if target.adhoc:
        composefiles.write_command(target.root, plan.host, horovodrun(target.cluster))
        files.append(composefiles.COMMAND)
    launch = "" if target.adhoc else target.launch(image).digest
    _write_env(target, seen, plan.host, image, HVD_LAUNCH=launch, HVD_RUN=run)
    try:
        _start(target, seen, plan.host, files)
    except HostError as error:
        raise HostsFailed("not launched", [error]) from None
    report.host(plan.host, f"launched run {run}")
    return run
