"""What `hvdcompose lab` does: observe, let `plan` decide, act on all hosts at once.

Whatever is interrupted, the labels in the engine tell the next `up` or `down` what is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hvdcompose.errors import HostError, HvdError, UsageError
from hvdcompose.hosts import fanout
from hvdcompose.lab import images, plan, spec, ssh
from hvdcompose.lab.engine import OUTER_CONFIG, Engine, Report, ask_info, find_engine, reason
from hvdcompose.lab.plan import Host, Observed, Standing
from hvdcompose.lab.spec import Lab, Request

READY_SECONDS = 60
ANSWER_SECONDS = 5  # for an engine that has been running for long


def open_lab(name: str) -> Lab:
    """Return the lab of that name, with its state in the user's state folder."""
    return spec.new_lab(name, Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"))


def observe(lab: Lab, engine: Engine) -> Observed:
    """Take one snapshot of all that bears the lab's label or names."""
    label = f"label={spec.LABEL}={lab.name}"
    ids = engine.call("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
    hosts: dict[str, Standing] = {}
    for inspected in engine.objects("inspect", *ids) if ids else []:
        standing = plan.read_standing(lab, inspected)
        if standing is not None:
            hosts[standing.host.name] = standing
    network = engine.attempt("network", "inspect", "--format", "{{json .}}", lab.network)
    return Observed(
        plan.read_network(lab, json.loads(network.out)) if network.ok else None,
        {name: hosts[name] for name in spec.sort_hosts(lab, list(hosts))},
        plan.read_contexts(lab, engine.objects("context", "ls", "--format", "{{json .}}")),
        frozenset(engine.call("volume", "ls", "--quiet", "--filter", label).split()),
    )


@contextlib.contextmanager
def _locked(lab: Lab, report: Report) -> Iterator[None]:
    """Let one `up` or `down` of a lab run at a time."""
    lab.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        with lab.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("", "waiting for another `hvdcompose lab` to end")
                fcntl.flock(file, fcntl.LOCK_EX)
            # a `down` that we waited for has removed the file: what we hold then keeps nobody out
            if lab.lock.exists() and lab.lock.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield
                return


@dataclass(frozen=True)
class Raised:
    """What `lab up` found and did."""

    plan: plan.Plan
    seconds: float  # from the first host to the last answer; building the image does not count

    @property
    def changed(self) -> bool:
        """True if anything was done."""
        return bool(self.plan.make_network or self.plan.contexts) or any(
            step.verb != "keep" or step.connect for step in self.plan.steps
        )


def up(lab: Lab, request: Request, report: Report) -> Raised:
    """Make the lab stand as asked; what stands already stays as it is."""
    engine = find_engine()
    with _locked(lab, report):
        decided = plan.plan_up(lab, request, observe(lab, engine))
        create = [step for step in decided.steps if step.verb in ("create", "recreate")]
        names = {
            rootless: images.ensure_image(engine, report, rootless=rootless)
            for rootless in {step.host.rootless for step in create}
        }
        began = time.monotonic()
        privileged = bool(create) and _may_be_privileged(engine, next(iter(names.values())))
        if decided.make_network:
            _make_network(lab, engine, decided)
        lab.state.mkdir(mode=0o700, exist_ok=True)  # the lock's folder is its parent
        authorized = ssh.ensure_key(lab)
        gone = threading.Event()

        def raise_host(host: str) -> None:
            step = next(step for step in decided.steps if step.host.name == host)
            try:
                folder = _ensure_folder(lab, step.host, authorized)
                if step.verb in ("create", "recreate"):
                    report(host, f"creating: {step.cause}")
                    if step.verb == "recreate":
                        engine.call("rm", "--force", spec.container(host))
                    words = plan.host_words(
                        lab,
                        step.host,
                        names[step.host.rootless],
                        privileged=privileged,
                        socket_group=os.getgid(),
                    )
                    engine.call(*words, seconds=READY_SECONDS)
                elif step.verb != "keep":
                    report(host, f"{step.verb}: {step.cause}")
                    engine.call(step.verb, spec.container(host), seconds=READY_SECONDS)
                if step.connect:
                    report(host, "connecting: it had lost its network")
                    engine.call(*plan.connect_words(lab, step.host))
                if step.verb in ("keep", "unpause") and not _wait_for(folder, ANSWER_SECONDS, gone):
                    report(host, "restarting: its engine does not answer")
                    engine.call("restart", "--time", "2", spec.container(host), seconds=READY_SECONDS)
                _wait_ready(engine, lab, host, gone)
                taken = f"after {time.monotonic() - began:.1f} s" if step.verb != "keep" else "as it was"
                report(host, f"ready {taken}, {step.host.address}")
            except HostError:
                raise
            except HvdError as problem:
                raise HostError(host, f"{host}: {problem.message}", hint=problem.hint) from None

        try:
            outcomes = fanout.on_all([step.host.name for step in decided.steps], raise_host)
        finally:
            gone.set()
        _raise_all(fanout.errors(outcomes))
        for words in decided.contexts:
            engine.call(*words)
        seconds = time.monotonic() - began
        if request.ssh or lab.docker_config.exists():
            _write_ssh_contexts(lab, engine, [step.host for step in decided.steps])
    return Raised(decided, seconds)


def _raise_all(errors: list[HostError]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise HvdError("\n".join(error.message for error in errors), hint=errors[0].hint)


def _may_be_privileged(engine: Engine, image: str) -> bool:
    """Try it: where the machine itself lacks a capability, runc cannot give it to a container."""
    return engine.attempt(
        "run", "--rm", "--privileged", "--network", "none", "--pull", "never", "--entrypoint", "true", image
    ).ok


def _make_network(lab: Lab, engine: Engine, decided: plan.Plan) -> None:
    done = engine.attempt(*plan.network_words(lab, decided.subnet))
    if not done.ok:
        hint = "choose another with --subnet" if "overlap" in done.err else None
        raise HvdError(f"no network {decided.subnet} for the lab: {reason(done)}", hint=hint)


def _ensure_folder(lab: Lab, host: Host, authorized: str) -> Path:
    folder = lab.folder(host.name)
    folder.mkdir(exist_ok=True)
    if host.rootless:
        folder.chmod(0o777)  # its engine has a uid of its own; the folder above keeps others out
    (folder / "authorized_keys").write_text(authorized)
    return folder


def _wait_for(folder: Path, seconds: float, gone: threading.Event) -> bool:
    end = time.monotonic() + seconds
    while ask_info(folder / "docker.sock") is None:
        if time.monotonic() > end or gone.wait(0.1):
            return False
    return True


def _wait_ready(engine: Engine, lab: Lab, host: str, gone: threading.Event) -> None:
    """Wait until the inner engine answers; when its container has ended instead, say why."""
    end = time.monotonic() + READY_SECONDS
    while not _wait_for(lab.folder(host), 2, gone):
        if gone.is_set():
            return
        status = engine.call("inspect", "--format", "{{.State.Status}}", spec.container(host)).strip()
        if status == "running" and time.monotonic() < end:
            continue
        log = engine.attempt("logs", "--tail", "20", spec.container(host))
        why = f"is {status}" if status != "running" else f"has no answering engine after {READY_SECONDS} s"
        raise HostError(
            host,
            f"{host}: {spec.container(host)} {why}",
            hint=f"docker logs {spec.container(host)}",
            output=log.out + log.err,
        )


def _write_ssh_contexts(lab: Lab, engine: Engine, hosts: list[Host]) -> None:
    outer = os.environ.get(OUTER_CONFIG) or os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    ssh.write_client(lab, hosts, Path(outer))
    listed = _ssh_contexts(lab)
    for host in hosts:
        if host.name not in listed:
            _inside(lab).call(*plan.context_words(host.name, ssh.endpoint(host)))


def _inside(lab: Lab) -> Engine:
    return Engine(("docker", "--config", str(lab.docker_config)))


def _ssh_contexts(lab: Lab) -> dict[str, plan.Context]:
    return plan.read_contexts(lab, _inside(lab).objects("context", "ls", "--format", "{{json .}}"))


@dataclass(frozen=True)
class HostStatus:
    """One line of `lab status`."""

    host: Host
    status: str
    image_current: bool
    attached: bool
    info: dict[str, Any] | None  # what its engine says of itself; None if it does not answer
    context: str | None  # endpoint of its context in the user's configuration
    ssh_context: str | None  # and of the one inside `lab shell`

    @property
    def ready(self) -> bool:
        """True if the host can be used."""
        return self.status == "running" and self.info is not None and self.attached


def status(lab: Lab) -> tuple[plan.Network | None, list[HostStatus]]:
    """Look at every host of the lab."""
    engine = find_engine()
    seen = observe(lab, engine)
    over_ssh = _ssh_contexts(lab) if lab.docker_config.exists() else {}

    def look(host: str) -> HostStatus:
        standing = seen.hosts[host]
        context, ssh_context = seen.contexts.get(host), over_ssh.get(host)
        return HostStatus(
            standing.host,
            standing.status,
            standing.image == images.image_name(rootless=standing.host.rootless),
            standing.attached,
            ask_info(lab.socket(host)) if standing.status == "running" else None,
            context.endpoint if context is not None and context.ours else None,
            ssh_context.endpoint if ssh_context is not None else None,
        )

    return seen.network, list(fanout.values(fanout.on_all(seen.hosts, look)).values())


def down(lab: Lab, report: Report, *, remove_images: bool = False) -> bool:
    """Remove all of the lab, also what is half made; False if there was nothing."""
    engine = find_engine()
    with _locked(lab, report):
        seen = observe(lab, engine)
        contexts = plan.stale_contexts(lab, seen.contexts)
        found = not seen.nothing or bool(contexts) or lab.state.exists()
        label = f"label={spec.LABEL}={lab.name}"
        # by label and not by `seen.hosts`: a container whose other labels cannot be read goes as well
        ids = engine.call("ps", "--all", "--quiet", "--filter", label).split()
        if ids:
            report("", f"removing {len(ids)} host{'s' if len(ids) > 1 else ''}")
            _remove(engine, ids)
        for volume in engine.call("volume", "ls", "--quiet", "--filter", label).split():
            engine.call("volume", "rm", "--force", volume)
        if seen.network is not None and seen.network.ours:
            engine.call("network", "rm", lab.network)
        for name in contexts:
            engine.call("context", "rm", "--force", name)
        shutil.rmtree(lab.state, ignore_errors=True)
        if lab.state.exists():
            raise HvdError(f"{lab.state} cannot be removed", hint=f"sudo rm -r {lab.state}")
        if remove_images:
            images.remove_images(engine, report)
        lab.lock.unlink(missing_ok=True)
    return found


def _remove(engine: Engine, containers: list[str]) -> None:
    def remove(container: str) -> None:
        try:
            engine.call("rm", "--force", "--volumes", container, seconds=READY_SECONDS)
        except HvdError as problem:
            raise HostError(container, problem.message) from None

    _raise_all(fanout.errors(fanout.on_all(containers, remove)))


def enter(lab: Lab, command: list[str]) -> NoReturn:
    """Become `command`, or the user's shell, where the lab's contexts work; returns only by an error."""
    if not lab.state.exists():
        raise UsageError(f"there is no lab {lab.name}", hint=f"hvdcompose lab up{lab.option}")
    words = command or [os.environ.get("SHELL") or "/bin/sh"]
    env = shell_environment(lab, dict(os.environ), over_ssh=lab.docker_config.exists())
    try:
        os.execvpe(words[0], words, env)
    except OSError as problem:
        raise UsageError(f"{words[0]}: {problem.strerror}") from None


def shell_environment(lab: Lab, env: dict[str, str], *, over_ssh: bool) -> dict[str, str]:
    """Return the environment of `lab shell`: contexts rule, and over ssh the lab's own configuration."""
    inside = {name: value for name, value in env.items() if name not in ("DOCKER_HOST", "DOCKER_CONTEXT")}
    inside["HVDCOMPOSE_LAB"] = lab.name
    if over_ssh and OUTER_CONFIG not in env:
        inside[OUTER_CONFIG] = env.get("DOCKER_CONFIG") or str(Path.home() / ".docker")
        inside["DOCKER_CONFIG"] = str(lab.docker_config)
        inside["PATH"] = f"{lab.bin_folder}:{env.get('PATH', os.defpath)}"
    return inside


def enter_host(lab: Lab, host: str, command: list[str], *, terminal: bool) -> NoReturn:
    """Become a shell, or `command`, on one virtual host; returns only by an error."""
    engine = find_engine()
    if host not in observe(lab, engine).hosts:
        raise UsageError(
            f"there is no host {host} in the lab {lab.name}", hint=f"hvdcompose lab status{lab.option}"
        )
    flags = ["--interactive", *(["--tty"] if terminal else [])]
    words = [*engine.words, "exec", *flags, spec.container(host), *(command or ["bash"])]
    os.execvp(words[0], words)
