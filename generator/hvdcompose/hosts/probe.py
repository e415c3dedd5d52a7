"""One helper container per host, made as the run's own would be: what it finds there, and whom it reaches.

It is removed by its engine when it ends, and it ends with this client. What the engine refuses to give it (a folder,
the GPUs, ulimits) is left out at the next try, so that one fault hides no other.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvdcompose.errors import HostError
from hvdcompose.hosts.delivery import helper_labels, mount_words
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.explain import about
from hvdcompose.hosts.gpus import gpu_words
from hvdcompose.hosts.process import Completed, Dialog, dialog
from hvdcompose.hosts.ssh_folder import SshFile
from hvdcompose.hosts.tars import Entry, pack
from hvdcompose.stack.plan import HOST_TARGET, SSH_TARGET, HostPlan
from hvdcompose.stack.render import probe_scripts, ssh_wrapper

FACTS_SECONDS = 30.0  # to make the container and look round in it
ORDER_SECONDS = 40.0  # for all calls and logins, their retries included
END_SECONDS = 10.0
LIFE_SECONDS = 180  # the container's own, whatever becomes of this client
MOST_TRIES = 12
SPACE_BYTES = 32 * 2**20
# reads a line with the scripts, makes them importable, hands the rest of the line to the last of them
START = """\
import importlib.abc, importlib.util, json, sys
class Inline(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in given["scripts"] else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(given["scripts"][module.__name__], module.__name__ + ".py", "exec"), module.__dict__)
given = json.loads(sys.stdin.readline())
if sys.version_info < (3, 8):
    print(json.dumps({"old_python": sys.version.split()[0]}))
else:
    sys.meta_path.insert(0, Inline())
    import probe
    probe.main(given["task"])
"""


@dataclass(frozen=True)
class Disk:
    """Space at a path of the container, in bytes; `inodes` free, -1 where they are not counted."""

    path: str
    kind: str = ""  # file system
    folder: bool = True
    total: int = 0
    free: int = 0
    inodes: int = -1
    writable: bool = True
    error: str = ""  # why it cannot be read


@dataclass(frozen=True)
class Nic:
    """One interface: its IPv4 addresses and its MTU; `up` while it has a link."""

    addresses: tuple[str, ...]
    mtu: int = 1500
    up: bool = True


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi shows it; memory in MiB, `capability` as (7, 0), () where it is not told."""

    name: str
    memory: int
    driver: str
    uuid: str = ""
    capability: tuple[int, ...] = ()


@dataclass(frozen=True)
class Listing:
    """How much a folder holds; `digest` over names and sizes, "" where that was too much to list."""

    files: int
    digest: str


@dataclass(frozen=True)
class ProbeFacts:
    """What the helper container found; everything as the run's own container would."""

    interfaces: Mapping[str, Nic] = field(default_factory=dict)
    resolved: str = ""  # `address` as it resolves there
    unresolved: str = ""  # why it does not
    shm: Disk = Disk("/dev/shm")
    limits: Mapping[str, int] = field(default_factory=dict)
    disks: tuple[Disk, ...] = ()
    listings: Mapping[str, Listing] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    built_with: tuple[str, ...] = ()
    home: str = "/root"
    shell: str = "/bin/sh"
    gpus: tuple[Gpu, ...] = ()
    gpus_asked: bool = False  # False: no nvidia-smi in the image
    gpus_error: str = ""
    gpu_driver: bool = False  # NVIDIA's driver is in the kernel
    rdma_cards: tuple[str, ...] = ()
    rdma_device: bool = False
    ssh_folder: tuple[SshFile, ...] = ()
    ssh_free: bool = True
    holder: str = ""  # what answers on the ssh port where it is not free
    ports: tuple[int, ...] = ()
    cores: int = 0
    memory: int = 0

    @property
    def owner(self) -> str:
        """The interface that owns the host's address, "" without one."""
        return next((name for name, nic in self.interfaces.items() if self.resolved in nic.addresses), "")


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def parse_gpu(row: Mapping[str, str]) -> Gpu:
    """Return a GPU from a row of `nvidia-smi --query-gpu`. Pure."""
    parts = row.get("compute_cap", "").split(".")
    capability = tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
    return Gpu(row["name"], _number(row["memory.total"]), row["driver_version"], row.get("uuid", ""), capability)


def parse_facts(told: Mapping[str, Any]) -> ProbeFacts:
    """Return the facts in the first line that a helper prints. Pure."""
    return ProbeFacts(
        interfaces={
            name: Nic(tuple(nic["addresses"]), nic["mtu"], nic["up"]) for name, nic in told["interfaces"].items()
        },
        resolved=told["resolved"],
        unresolved=told["unresolved"],
        shm=Disk(**told["shm"]),
        limits=told["limits"],
        disks=tuple(Disk(**disk) for disk in told["disks"]),
        listings={path: Listing(**entry) for path, entry in told["listings"].items()},
        programs=told["programs"],
        versions=told["versions"],
        built_with=tuple(told["built_with"]),
        home=told["account"]["home"],
        shell=told["account"]["shell"],
        gpus=tuple(parse_gpu(row) for row in told["gpus"]["rows"]),
        gpus_asked=told["gpus"]["asked"],
        gpus_error=told["gpus"]["error"],
        gpu_driver=told["gpus"]["driver"],
        rdma_cards=tuple(told["rdma"]["cards"]),
        rdma_device=told["rdma"]["device"],
        ssh_folder=tuple(SshFile.parse(entry) for entry in told["ssh_folder"]),
        ssh_free=told.get("ssh_free", True),
        holder=told.get("holder", ""),
        ports=tuple(told.get("ports", ())),
        cores=told["cores"],
        memory=told["memory"],
    )


@dataclass(frozen=True)
class Refusal:
    """What an engine would not give the container: folder, gpus, ulimits, disk, image, python, "" for all else."""

    about: str
    error: HostError
    what: str = ""  # which folder, say


def try_space(engine: Engine) -> Refusal | None:
    """Have an engine that lacks the image unpack 32 MiB of nothing, and forget it; return why it cannot, or None.

    There is no container yet in which its disk could be looked at. Raises HostError where it does not answer.
    """
    name = f"hvdcompose-space:{new_token()}"
    nothing = gzip.compress(pack([Entry("/nothing", bytes(SPACE_BYTES), 0o600)]), compresslevel=1)
    try:
        engine.call("import", "-", name, doing="trying its disk", deadline=FACTS_SECONDS, stdin=nothing)
    except HostError as error:
        told = f"{error.message}\n{error.output}"
        if about(told)[0] != "disk" and "its disk is full" not in told:
            raise
        return Refusal("disk", error)
    engine.ask("image", "rm", name)
    return None


@dataclass(frozen=True)
class Wants:
    """What a helper is made with. `volumes`: those of the plan's named volumes that are there, so that none is made."""

    plan: HostPlan
    token: str
    volumes: frozenset[str] = frozenset()
    listens: bool = True
    folders: tuple[str, ...] | None = None  # host paths to mount; None: all of the plan's
    gpus: bool = True
    ulimits: bool = True

    @property
    def ssh_path(self) -> str:
        """The user's own ssh folder, "" where hvdcompose keeps the keys."""
        return "" if self.plan.ssh_managed else self.plan.ssh_volume

    @property
    def sources(self) -> dict[str, str]:
        """{path in the container: host path} of what is mounted."""
        paths = {mount.target: mount.source for mount in self.plan.mounts if mount.is_path}
        if self.ssh_path:
            paths[SSH_TARGET] = self.ssh_path
        return {target: path for target, path in paths.items() if self.folders is None or path in self.folders}

    def without(self, refusal: Refusal) -> Wants | None:
        """Return the same without what was refused; None where there is nothing to leave out."""
        if refusal.about == "gpus" and self.gpus:
            return replace(self, gpus=False)
        if refusal.about == "ulimits" and self.ulimits:
            return replace(self, ulimits=False)
        left = tuple(path for path in self.sources.values() if path != refusal.what)
        if refusal.about == "folder" and len(left) < len(self.sources):
            return replace(self, folders=left)
        return None


def helper_words(wants: Wants) -> list[str]:
    """Return the words of `docker run` for a helper: image, network, GPUs, memory, limits and volumes are the run's."""
    plan = wants.plan
    words = ["run", "--rm", "--interactive", "--pull", "never", "--network", "host", "--user", "0:0"]
    words += helper_labels(plan.cluster)
    words += ["--log-driver", "none", "--env", "HVD_KEYS="]
    words += [word for name, value in plan.environment.items() for word in ("--env", f"{name}={value}")]
    words += ["--shm-size", plan.shm_size] if plan.shm_size else []
    if wants.ulimits:
        limits = ((name, limit) for name, limit in sorted(plan.ulimits.items()))
        words += [word for name, limit in limits for word in ("--ulimit", f"{name}={limit.soft}:{limit.hard}")]
    words += gpu_words(plan.gpus) if wants.gpus else []
    writable = {mount.target: not mount.read_only for mount in plan.mounts}
    for target, source in wants.sources.items():
        words += mount_words("bind", source, target, *([] if writable.get(target) else ["readonly"]))
    for mount in plan.mounts:
        if not mount.is_path and mount.source in wants.volumes:
            words += mount_words("volume", mount.source, mount.target, *(["readonly"] if mount.read_only else []))
    own = {f"{plan.cluster}-host": HOST_TARGET} | ({plan.ssh_volume: SSH_TARGET} if plan.ssh_managed else {})
    for volume, target in own.items():
        if volume in wants.volumes:
            words += mount_words("volume", volume, target, "readonly", "volume-nocopy")
    return [*words, "--entrypoint", "python3", plan.image, "-c", START]


def task_of(wants: Wants) -> dict[str, object]:
    """Return what the helper is told to look at."""
    plan = wants.plan
    mounted = [*wants.sources, *(m.target for m in plan.mounts if not m.is_path and m.source in wants.volumes)]
    data = [target for target in mounted if target != SSH_TARGET]
    holds_keys = SSH_TARGET in wants.sources or (plan.ssh_managed and plan.ssh_volume in wants.volumes)
    return {
        "host": {name: plan.settings[name] for name in ("host", "address", "interface", "port")},
        "cluster": plan.cluster,
        "paths": sorted(set(data)),
        "listed": sorted({target for target in data if not target.startswith("/hvd/")}),  # data, not what ranks write
        "ssh_folder": SSH_TARGET if holds_keys else "",
        "listens": wants.listens,
        "token": wants.token,
        "life": LIFE_SECONDS,
        "wrapper": ssh_wrapper(),
    }


@dataclass(frozen=True)
class Reach:
    """What came of one call from one host to another's port.

    result: ok, ssh (an sshd answers), refused, timeout, no route, closed (before a word), silent, stalled, other.
    """

    port: int
    result: str
    detail: str = ""


@dataclass(frozen=True)
class Login:
    """Whether the launcher's login to a worker works, and why not."""

    ok: bool
    reason: str = ""


@dataclass
class Helper:
    """A helper container that runs."""

    engine: Engine
    wants: Wants
    facts: ProbeFacts
    refusals: tuple[Refusal, ...]
    _talk: Dialog
    _closing: contextlib.ExitStack

    def order(self, what: str, **more: object) -> dict[str, Any]:
        """Have it do something; return its answer. Raises HostError."""
        self._talk.say(json.dumps({"do": what, **more}))
        line = _hear(self.engine, self._talk, ORDER_SECONDS)
        if line is None:
            raise HostError(self.engine.host, "its helper container ended early")
        return dict(json.loads(line))

    def skew(self) -> float:
        """Return by how many seconds the host's clock is ahead of this machine's. Raises HostError."""
        asked = time.time()
        told = float(self.order("clock")["time"])
        return told - (asked + time.time()) / 2

    def connect(self, peers: Sequence[Helper]) -> dict[str, tuple[Reach, ...]]:
        """Call the other hosts' ssh port and random ports; return {host: the ssh port's first}. Raises HostError."""
        told = self.order(
            "connect",
            peers=[
                {
                    "host": peer.engine.host,
                    "address": peer.wants.plan.settings["address"],
                    "ssh": peer.wants.plan.ssh_port,
                    "ports": list(peer.facts.ports),
                    "token": peer.wants.token,
                }
                for peer in peers
            ],
        )
        found: dict[str, tuple[Reach, ...]] = {}
        for entry in told["calls"]:
            reach = Reach(entry["port"], entry["result"], entry["detail"])
            found[entry["host"]] = (*found.get(entry["host"], ()), reach)
        return found

    def log_in(self, workers: Mapping[str, str]) -> dict[str, Login]:
        """Log in to workers ({host: address}) as the launcher would. Raises HostError."""
        asked = [{"host": host, "address": address} for host, address in workers.items()]
        told = self.order("login", workers=asked)
        return {entry["host"]: Login(entry["ok"], entry["reason"]) for entry in told["logins"]}

    def close(self) -> None:
        """Let it end; its engine removes it."""
        self._talk.finish(END_SECONDS)
        self._closing.close()


def _hear(engine: Engine, talk: Dialog, seconds: float) -> str | None:
    try:
        return talk.hear(seconds)
    except TimeoutError:
        raise HostError(
            engine.host,
            f"its helper container says nothing for {seconds:.0f} s",
            hint="is the host frozen or overloaded?",
        ) from None


def new_token() -> str:
    """Return what tells one helper from all others."""
    return secrets.token_hex(8)


def open_helper(engine: Engine, wants: Wants) -> Helper | tuple[Refusal, ...]:
    """Start a helper; return it with what it found, or all that its engine refuses. Raises HostError."""
    refused: list[Refusal] = []
    for _ in range(MOST_TRIES):
        started = _start(engine, wants, tuple(refused))
        if isinstance(started, Helper):
            return started
        refused.append(started)
        less = wants.without(started)
        if less is None:
            break
        wants = less
    return tuple(refused)


def _start(engine: Engine, wants: Wants, before: tuple[Refusal, ...]) -> Helper | Refusal:
    with contextlib.ExitStack() as closing:
        talk = closing.enter_context(dialog(engine.words(*helper_words(wants))))
        talk.say(json.dumps({"scripts": probe_scripts(), "task": task_of(wants)}))
        line = _hear(engine, talk, FACTS_SECONDS)
        if line is None:
            return refusal(engine, talk.finish(END_SECONDS))
        told = json.loads(line)
        if "old_python" in told:
            why = f"the image has Python {told['old_python']}; 3.8 or later is needed"
            return Refusal("python", HostError(engine.host, why))
        return Helper(engine, wants, parse_facts(told), before, talk, closing.pop_all())
    raise AssertionError


def refusal(engine: Engine, completed: Completed) -> Refusal:
    """Return what a `docker run` that failed says about the host."""
    what, which = about(completed.err)
    return Refusal(what, engine.fail(completed, "trying the run's container", FACTS_SECONDS), which)
