"""Make and start the containers: the workers at once, then the launcher; each gets its keys."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable

from hvdcompose.deploy.look import Seen
from hvdcompose.deploy.reconcile import Action
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError, HostsFailed
from hvdcompose.hosts import composefiles
from hvdcompose.hosts.delivery import drop_keys, put_keys
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.explain import recognise
from hvdcompose.hosts.fanout import begin, errors, on_all, values
from hvdcompose.hosts.proofs import save_proofs
from hvdcompose.stack.launch import horovodrun

READY_SECONDS = 30.0
LOG_LINES = "20"
LISTENING = "Server listening on "  # sshd(8), to its log once the port is bound


def _write_env(target: Target, seen: Seen, name: str, image: str, **more: str) -> None:
    """Write what Compose puts into the labels of a host's container."""
    variables = {
        "HVD_KEYS": target.keys_digest(name, seen.key),
        "HVD_IMAGE": image,
        **more,
    }
    if target.code is not None:
        variables["HVD_CODE"] = target.code_digest
    composefiles.write_env(target.root, name, variables)


def write_standing_envs(target: Target, seen: Seen) -> None:
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
    wanted = target.keys_digest(name, seen.key)
    if before is not None and before.keys != wanted:
        drop_keys(engine, before.id, target.key_volumes)
    engine.up([target.root / name / file for file in files], plan.cluster, recreate=before is not None)
    if before is None or before.keys != wanted:
        engine.put(plan.container, target.keys_tar(name, seen.key))  # nobody is logged in there
    else:
        bring_keys(target, seen, name)


def bring_keys(target: Target, seen: Seen, name: str) -> None:
    """Fill the volumes of a host's container with its keys, unless they hold them."""
    engine, container = target.engines[name], target.plans[name].container
    put_keys(engine, container, target.keys_tar(name, seen.key), target.keys_digest(name, seen.key))


def bring_keys_to_primary(target: Target, seen: Seen) -> None:
    """Give the launcher's volumes the new keys at once, not at the next launch: another client adopts what is there."""
    if seen.container(target.primary.host, "launcher") is not None:
        bring_keys(target, seen, target.primary.host)


def start_workers(target: Target, seen: Seen, image: str, report: Reporter) -> None:
    """Start all workers at once and wait until each serves ssh; a failed one is removed, the others stay."""

    def start(name: str) -> str:
        container, engine = target.plans[name].container, target.engines[name]
        if name in made:
            _write_env(target, seen, name, image)
            _start(target, seen, name)
        else:
            bring_keys(target, seen, name)
        asked = begin(lambda: _id_of(engine, container))
        _await_worker(engine, container, new=name in made)
        report.host(name, "worker is ready")
        return asked.result()

    made = seen.plan.hosts(Action.CREATE, Action.RECREATE)
    names = seen.plan.hosts(Action.CREATE, Action.RECREATE, Action.CHECK)
    outcomes = on_all(names, start)
    save_proofs(target.cluster, values(outcomes))
    failed = errors(outcomes)
    if failed:
        raise HostsFailed(f"not launched: {len(failed)} of {len(names)} workers did not start", failed)


def _id_of(engine: Engine, container: str) -> str:
    """Return a container's id, "" where it cannot be told: it only spares a later question."""
    with contextlib.suppress(HostError):
        found = engine.inspect("container", container)
        return str(found["Id"]) if found else ""
    return ""


def _await_worker(engine: Engine, container: str, *, new: bool) -> None:
    """Wait until a worker's sshd listens. Raises HostError with its last lines, and removes it."""
    # a new container's log is sshd's word at a third of the cost of a process in the container; an old one's may be old
    if new and engine.log_tells(container, LISTENING, READY_SECONDS):
        return
    words = ("exec", container, "/hvd/worker", "ready")
    try:
        engine.call(*words, doing="waiting for its worker", deadline=READY_SECONDS)
    except HostError as error:
        raise _with_log(engine, container, error) from None


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


def launch(target: Target, seen: Seen, image: str, report: Reporter) -> str:
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
