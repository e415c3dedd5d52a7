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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hvdcompose.errors import HostError, HostsFailed, HvdError, UsageError
from hvdcompose.hosts import fanout
from hvdcompose.lab import images, plan, spec, ssh
from hvdcompose.lab.broken import read_broken
from hvdcompose.lab.engine import OUTER_CONFIG, Engine, Report, ask_info, find_engine, reason
from hvdcompose.lab.plan import Broken, Host, Observed, Standing, Step
from hvdcompose.lab.spec import Lab, Request

READY_SECONDS = 60
ANSWER_SECONDS = 5  # for an engine that has been running for long


def open_lab(name: str) -> Lab:
    """Return the lab of that name, with its state in the user's state folder."""
    return spec.new_lab(name, Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"))


def hosts_behind(endpoints: Mapping[str, str]) -> dict[str, Host]:
    """Return {context: virtual host} of the contexts, {context: endpoint}, that lead to a host of a lab of this user.

    Without an engine on this machine none does.
    """
    found: dict[str, Host] = {}
    labs = {name: spec.lab_of_socket(endpoint.removeprefix("unix://")) for name, endpoint in endpoints.items()}
    for name in sorted({lab for lab in labs.values() if lab}):
        lab = open_lab(name)
        try:
            hosts = observe(lab, find_engine()).hosts
        except HvdError:
            break
        sockets = {f"unix://{lab.socket(host)}": standing.host for host, standing in hosts.items()}
        found |= {context: sockets[endpoint] for context, endpoint in endpoints.items() if endpoint in sockets}
    return found


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
        plan.read_contexts(lab, engine.unpinned.objects("context", "ls", "--format", "{{json .}}")),
        frozenset(engine.call("volume", "ls", "--quiet", "--filter", label).split()),
        read_broken(lab),
    )


@contextlib.contextmanager
def locked(lab: Lab, report: Report) -> Iterator[None]:
    """Let one command that changes a lab run at a time."""
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
                try:
                    yield
                finally:
                    if not lab.state.exists():
                        lab.lock.unlink(missing_ok=True)
                return


@dataclass(frozen=True)
class Raised:
    """What `lab up` found and did."""

    plan: plan.Plan
    acted: bool  # False if all stood as asked
    seconds: float  # from the first host to the last answer; building the image does not count


def up(lab: Lab, request: Request, report: Report) -> Raised:
    """Make the lab stand as asked; what stands already stays as it is."""
    engine = find_engine()
    with locked(lab, report):
        seen = observe(lab, engine)
        decided = plan.plan_up(lab, request, seen)
        new: set[images.Kind] = {step.host.kind for step in decided.steps if step.verb in plan.MAKES}
        names = {kind: images.ensure_image(engine, report, kind) for kind in sorted(new)}
        began = time.monotonic()
        privileged = bool(names) and may_be_privileged(engine, next(iter(names.values())))
        if decided.make_network:
            _make_network(lab, engine, decided)
        lab.state.mkdir(mode=0o700, exist_ok=True)  # the lock's folder is its parent
        raising = _Raising(lab, engine, decided, report, names, privileged, ssh.ensure_key(lab))
        try:
            outcomes = fanout.on_all(raising.steps, raising.raise_host)
        finally:
            raising.over.set()
        _raise_all(lab, fanout.errors(outcomes))
        if request.ssh or lab.docker_config.exists():
            left = [seen.hosts[each.host].host for each in decided.broken if each.host in seen.hosts]
            _write_ssh_contexts(lab, [*(step.host for step in decided.steps), *left])
    acted = decided.make_network or bool(decided.contexts) or bool(raising.acted)
    return Raised(decided, acted, time.monotonic() - began)


class _Raising:
    """One `lab up` at work; `raise_host` runs for all hosts at once."""

    def __init__(
        self,
        lab: Lab,
        engine: Engine,
        decided: plan.Plan,
        report: Report,
        image_names: Mapping[images.Kind, str],
        privileged: bool,
        authorized: str,
    ) -> None:
        self.lab, self.engine, self.report = lab, engine, report
        self.steps = {step.host.name: step for step in decided.steps}
        self.contexts = decided.contexts
        self.image_names, self.privileged, self.authorized = image_names, privileged, authorized
        self.began = time.monotonic()
        self.acted: set[str] = set()
        self.over = threading.Event()  # set when the work is done or was interrupted

    def raise_host(self, name: str) -> None:
        """Bring one host up to a ready engine with its context."""
        step = self.steps[name]
        try:
            self._ensure_folder(step.host)
            self._bring_up(step)
            wait_ready(self.lab, self.engine, name, self.over)
            if name in self.contexts:
                self.engine.unpinned.call(*self.contexts[name])
        except HostError:
            raise
        except HvdError as problem:
            raise HostError(name, problem.message, hint=problem.hint) from None
        taken = f"after {time.monotonic() - self.began:.1f} s" if name in self.acted else "as it was"
        self.report(name, f"ready {taken}: {step.host.address}, {step.host.gpus_text}")

    def _bring_up(self, step: Step) -> None:
        name, container = step.host.name, spec.container(step.host.name)
        if step.verb in plan.MAKES:
            self._act(name, f"creating: {step.cause}")
            if step.verb == "recreate":
                self.engine.call("rm", "--force", container)
            image = self.image_names[step.host.kind]
            group = os.getgid()
            words = plan.host_words(self.lab, step.host, image, privileged=self.privileged, socket_group=group)
            self.engine.call(*words, seconds=READY_SECONDS)
        elif step.verb != "keep":
            self._act(name, f"{step.verb}: {step.cause}")
            self.engine.call(step.verb, container, seconds=READY_SECONDS)
        if step.connect:
            self._act(name, "connecting: it had lost its network")
            self.engine.call(*plan.connect_words(self.lab, step.host))
        if step.verb in ("keep", "unpause") and not answers(self.lab, name, ANSWER_SECONDS, self.over):
            self._act(name, "restarting: its engine does not answer")
            self.engine.call("restart", "--time", "2", container, seconds=READY_SECONDS)

    def _act(self, name: str, text: str) -> None:
        if self.over.is_set():
            raise HostError(name, "interrupted")
        self.acted.add(name)
        self.report(name, text)

    def _ensure_folder(self, host: Host) -> None:
        folder = self.lab.folder(host.name)
        folder.mkdir(exist_ok=True)
        if host.rootless:
            folder.chmod(0o777)  # its engine has a uid of its own; the folder above keeps others out
        (folder / "authorized_keys").write_text(self.authorized)


def answers(lab: Lab, name: str, seconds: float, over: threading.Event) -> bool:
    """Wait until a host's engine answers; False if it did not in time, or `over` was set."""
    end = time.monotonic() + seconds
    while ask_info(lab.socket(name)) is None:
        if time.monotonic() > end or over.wait(0.1):
            return False
    return True


def wait_ready(lab: Lab, engine: Engine, name: str, over: threading.Event) -> None:
    """Wait until a host's engine answers; when its container has ended instead, say why. Raises HostError."""
    container, end = spec.container(name), time.monotonic() + READY_SECONDS
    while not answers(lab, name, 2, over):
        if over.is_set():
            raise HostError(name, "interrupted")
        status = engine.call("inspect", "--format", "{{.State.Status}}", container).strip()
        if status == "running" and time.monotonic() < end:
            continue
        log = engine.attempt("logs", "--tail", "20", container)
        why = f"does not answer after {READY_SECONDS} s" if status == "running" else f"is {status}"
        raise HostError(
            name,
            f"the engine in {container} {why}",
            hint=f"docker logs {container}",
            output=log.out + log.err,
        )


def _raise_all(lab: Lab, errors: list[HostError]) -> None:
    if errors:
        names = ", ".join(error.host for error in errors)
        hint = f"`hvdcompose lab up{lab.option}` goes on from here, `lab down{lab.option}` removes all"
        raise HostsFailed(f"the lab is not whole: {names}", errors, hint=hint)


def may_be_privileged(engine: Engine, image: str) -> bool:
    """Try it: where the machine itself lacks a capability, runc cannot give it to a container."""
    words = ("--rm", "--privileged", "--network", "none", "--pull", "never", "--entrypoint", "true")
    return engine.attempt("run", *words, image).ok


def _make_network(lab: Lab, engine: Engine, decided: plan.Plan) -> None:
    done = engine.attempt(*plan.network_words(lab, decided.subnet))
    if not done.ok:
        hint = "choose another with --subnet" if "overlap" in done.err else None
        raise HvdError(f"no network {decided.subnet} for the lab: {reason(done)}", hint=hint)


def _write_ssh_contexts(lab: Lab, hosts: list[Host]) -> None:
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
    broken: Broken | None = None  # by `lab break`

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
            host in seen.broken or standing.image == images.image_name(standing.host.kind),
            standing.attached,
            ask_info(lab.socket(host)) if standing.status == "running" else None,
            context.endpoint if context is not None and context.ours else None,
            ssh_context.endpoint if ssh_context is not None else None,
            seen.broken.get(host),
        )

    return seen.network, list(fanout.values(fanout.on_all(seen.hosts, look)).values())


def down(lab: Lab, report: Report, *, remove_images: bool = False) -> bool:
    """Remove all of the lab, also what is half made; False if there was nothing."""
    engine = find_engine()
    with locked(lab, report):
        seen = observe(lab, engine)
        contexts = plan.stale_contexts(lab, seen.contexts)
        found = not seen.nothing or bool(contexts) or lab.state.exists()
        label = f"label={spec.LABEL}={lab.name}"
        # by label and not by `seen.hosts`: a container whose other labels cannot be read goes as well
        ids = engine.call("ps", "--all", "--quiet", "--filter", label).split()
        if ids:
            report("", f"removing {len(ids)} host{'s' if len(ids) > 1 else ''}")
            _remove(lab, engine, ids)
        for volume in engine.call("volume", "ls", "--quiet", "--filter", label).split():
            engine.call("volume", "rm", "--force", volume)
        if seen.network is not None and seen.network.ours:
            engine.call("network", "rm", lab.network)
        for name in contexts:
            engine.unpinned.call("context", "rm", "--force", name)
        shutil.rmtree(lab.state, ignore_errors=True)
        if lab.state.exists():
            raise HvdError(f"{lab.state} cannot be removed", hint=f"sudo rm -r {lab.state}")
        if remove_images:
            images.remove_images(engine, report)
    return found


def _remove(lab: Lab, engine: Engine, containers: list[str]) -> None:
    def remove(container: str) -> None:
        try:
            engine.call("rm", "--force", "--volumes", container, seconds=READY_SECONDS)
        except HvdError as problem:
            raise HostError(container, problem.message) from None

    _raise_all(lab, fanout.errors(fanout.on_all(containers, remove)))


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


def no_host(lab: Lab, host: str) -> UsageError:
    """Return the error for the name of a host that is not there."""
    return UsageError(f"there is no host {host} in the lab {lab.name}", hint=f"hvdcompose lab status{lab.option}")


def enter_host(lab: Lab, host: str, command: list[str], *, terminal: bool) -> NoReturn:
    """Become a shell, or `command`, on one virtual host; returns only by an error."""
    engine = find_engine()
    if host not in observe(lab, engine).hosts:
        raise no_host(lab, host)
    flags = ["--interactive", *(["--tty"] if terminal else [])]
    words = [*engine.words, "exec", *flags, spec.container(host), *(command or ["bash"])]
    os.execvp(words[0], words)
