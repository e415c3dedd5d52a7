"""What has to be done so that a lab stands as asked: decisions and lists of docker arguments, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal

from hvdcompose.errors import Refused, UsageError
from hvdcompose.lab import spec
from hvdcompose.lab.spec import Lab, Request

# What --privileged would give, without the capability that some machines (containers, small VMs) do not have.
UNPRIVILEGED = (
    "--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE",
    "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
    "--security-opt", "systempaths=unconfined",
    "--device-cgroup-rule", "a *:* rwm",
)  # fmt: skip
PRIVILEGED = ("--privileged",)

Verb = Literal["create", "recreate", "start", "unpause", "keep"]
MAKES: tuple[Verb, ...] = ("create", "recreate")  # the verbs that need an image


@dataclass(frozen=True)
class Host:
    """A virtual host: as it shall be, or as it stands."""

    name: str
    address: IPv4Address
    gpus: int = 1
    cpus: float | None = None
    rootless: bool = False

    @property
    def kind(self) -> Literal["plain", "rootless"]:
        """Kind of its image."""
        return "rootless" if self.rootless else "plain"

    @property
    def gpus_text(self) -> str:
        """Its GPUs in words."""
        return "1 GPU" if self.gpus == 1 else f"{self.gpus or 'no'} GPUs"


@dataclass(frozen=True)
class Standing:
    """A virtual host that exists, in whatever state."""

    host: Host
    status: str  # Docker's word: created, running, paused, restarting, removing, exited, dead
    image: str
    attached: bool  # to the lab's network


@dataclass(frozen=True)
class Context:
    """A Docker context as the client knows it."""

    name: str
    description: str
    endpoint: str

    @property
    def ours(self) -> bool:
        """True if a lab made it."""
        return self.description == spec.DESCRIPTION


@dataclass(frozen=True)
class Network:
    """The lab's network as it stands."""

    subnet: IPv4Network
    ours: bool


@dataclass(frozen=True)
class Broken:
    """What `lab break` did to a host."""

    host: str
    fault: str  # a name in the table of faults
    values: Mapping[str, str]  # what the fault is about: its port, path and so on
    since: float  # unix seconds

    @property
    def text(self) -> str:
        """The fault in words: `ssh-dropped, port 12345`."""
        return ", ".join([self.fault, *(f"{name} {value}" for name, value in self.values.items())])


@dataclass(frozen=True)
class Observed:
    """All that there is of a lab."""

    network: Network | None = None
    hosts: Mapping[str, Standing] = field(default_factory=dict)
    contexts: Mapping[str, Context] = field(default_factory=dict)
    volumes: frozenset[str] = frozenset()
    broken: Mapping[str, Broken] = field(default_factory=dict)  # by `lab break`, until `lab mend`

    @property
    def nothing(self) -> bool:
        """True if there is no trace of this lab in the engine."""
        return self.network is None and not self.hosts and not self.volumes


@dataclass(frozen=True)
class Step:
    """What is done to one host, and why."""

    host: Host
    verb: Verb
    cause: str
    connect: bool = False  # it lost its network

    def __str__(self) -> str:
        return f"{self.host.name}: {self.verb} ({self.cause}){', connect' if self.connect else ''}"


@dataclass(frozen=True)
class Plan:
    """What `lab up` does: the network first, then all hosts at once, each with its context."""

    subnet: IPv4Network
    make_network: bool
    steps: tuple[Step, ...]
    others: tuple[str, ...] = ()  # hosts beyond those asked for, left as they are
    contexts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # host -> words after `docker`
    broken: tuple[Broken, ...] = ()  # left to `lab mend`


def plan_up(lab: Lab, request: Request, observed: Observed) -> Plan:
    """Decide what is missing; refuse, before anything is made, what would change or harm what is there.

    GPUs and CPUs describe the hosts that are new. Where none is, asking for others than there are is refused.
    """
    subnet = _subnet(lab, request, observed)
    last = max((lab.number(name) or 0 for name in (*observed.hosts, *observed.broken)), default=0)
    count = request.hosts or last or spec.DEFAULT_HOSTS
    names = [lab.host(number) for number in range(1, count + 1)]
    if spec.address(subnet, count) >= subnet.broadcast_address:
        raise UsageError(f"{subnet} is too small for {count} hosts", hint=f"--subnet {spec.DEFAULT_SUBNET}")
    strangers = sorted(request.rootless - set(names))
    if strangers:
        raise UsageError(f"--rootless {strangers[0]}: the hosts are {names[0]} to {names[-1]}")
    contexts = {} if request.ssh else _contexts(lab, names, observed.contexts)
    asked_gpus = 1 if request.gpus is None else request.gpus
    steps, changes = [], []
    for number, name in enumerate(names, 1):
        standing, place = observed.hosts.get(name), spec.address(subnet, number)
        if name in observed.broken:
            continue
        if standing is None:
            new = Host(name, place, asked_gpus, request.cpus, name in request.rootless)
            steps.append(Step(new, "create", "not there"))
            continue
        changes += _changes(standing.host, request)
        if observed.network is None:
            # a container cannot move to another network of the same name; its volume keeps the images
            steps.append(Step(replace(standing.host, address=place), "recreate", "its network is gone"))
        else:
            steps.append(_revive(standing))
    if changes and not any(step.verb == "create" for step in steps):
        raise Refused(
            f"these hosts stand already, made otherwise: {'; '.join(changes)}",
            hint=f"hvdcompose lab down{lab.option}",
        )
    for step in steps:
        if step.host.name in request.rootless and not step.host.rootless:
            raise Refused(
                f"{step.host.name} stands already, and is not rootless", hint=f"hvdcompose lab down{lab.option}"
            )
    others = tuple(spec.sort_hosts(lab, [name for name in observed.hosts if name not in names]))
    broken = tuple(observed.broken[name] for name in names if name in observed.broken)
    return Plan(subnet, observed.network is None, tuple(steps), others, contexts, broken)


def _subnet(lab: Lab, request: Request, observed: Observed) -> IPv4Network:
    if observed.network is None:
        return request.subnet or IPv4Network(spec.DEFAULT_SUBNET)
    if not observed.network.ours:
        raise Refused(
            f"a Docker network {lab.network} is there that the lab did not make",
            hint="give the lab another --name, or remove that network",
        )
    if request.subnet not in (None, observed.network.subnet):
        raise Refused(
            f"the lab stands on {observed.network.subnet}, not on {request.subnet}",
            hint=f"hvdcompose lab down{lab.option}",
        )
    return observed.network.subnet


def _changes(stands: Host, request: Request) -> list[str]:
    """Say where a host differs from what was asked for in so many words."""
    changes = []
    if request.gpus not in (None, stands.gpus):
        changes.append(f"{stands.name} has {stands.gpus_text}, not {request.gpus}")
    if request.cpus not in (None, stands.cpus):
        quota = "no CPU quota" if stands.cpus is None else f"{stands.cpus:g} CPUs"
        changes.append(f"{stands.name} has {quota}, not {request.cpus:g}")
    return changes


def _revive(standing: Standing) -> Step:
    verbs: dict[str, tuple[Verb, str]] = {
        "running": ("keep", "runs"),
        "restarting": ("keep", "restarts"),
        "paused": ("unpause", "was paused"),
        "created": ("start", "was never started"),
        "exited": ("start", "was stopped"),
    }
    verb, cause = verbs.get(standing.status, ("recreate", f"was {standing.status}"))
    return Step(standing.host, verb, cause, connect=verb != "recreate" and not standing.attached)


def _contexts(lab: Lab, names: Sequence[str], contexts: Mapping[str, Context]) -> dict[str, tuple[str, ...]]:
    commands: dict[str, tuple[str, ...]] = {}
    for name in names:
        there, endpoint = contexts.get(name), f"unix://{lab.socket(name)}"
        if there is None:
            commands[name] = context_words(name, endpoint)
        elif not there.ours:
            raise Refused(
                f"a Docker context {name} is there that the lab did not make ({there.endpoint})",
                hint=f"docker context rm {name}, or give the lab another --name",
            )
        elif there.endpoint != endpoint:
            commands[name] = ("context", "update", name, "--docker", f"host={endpoint}")
    return commands


def context_words(name: str, endpoint: str) -> tuple[str, ...]:
    """Words after `docker` that make a context, marked as ours."""
    return ("context", "create", name, "--description", spec.DESCRIPTION, "--docker", f"host={endpoint}")


def network_words(lab: Lab, subnet: IPv4Network) -> list[str]:
    """Words after `docker` that make the lab's network."""
    return ["network", "create", "--label", f"{spec.LABEL}={lab.name}", "--subnet", str(subnet), lab.network]


def host_words(lab: Lab, host: Host, image: str, *, privileged: bool, socket_group: int) -> list[str]:
    """Words after `docker` that make a virtual host and start it."""
    disk = _disk_words(lab, spec.volume(host.name), rootless=host.rootless)
    return ["run", "--detach", *_host_words(lab, host, disk, privileged, socket_group), image]


def stand_in_words(
    lab: Lab, host: Host, image: str, *, rootless: bool, size: str, privileged: bool, socket_group: int
) -> list[str]:
    """Words after `docker` that make another container in the host's place, with a disk of its own.

    Its labels are the host's: a rootless stand-in is still the host that was made with root.
    """
    disk = _disk_words(lab, spec.stand_in_volume(host.name), rootless=rootless, size=size)
    return ["create", *_host_words(lab, host, disk, privileged, socket_group), image]


def _disk_words(lab: Lab, volume: str, *, rootless: bool, size: str = "") -> list[str]:
    target = "/home/lab/.local/share/docker" if rootless else "/var/lib/docker"
    mount = f"type=volume,source={volume},target={target},volume-label={spec.LABEL}={lab.name}"
    if size:
        mount += f",volume-opt=type=tmpfs,volume-opt=device=tmpfs,volume-opt=o=size={size}"
    return ["--mount", mount]


def _host_words(lab: Lab, host: Host, disk: list[str], privileged: bool, socket_group: int) -> list[str]:
    quota = [] if host.cpus is None else ["--cpus", f"{host.cpus:g}"]
    return [
        "--init", "--pull", "never",
        "--name", spec.container(host.name), "--hostname", host.name,
        "--label", f"{spec.LABEL}={lab.name}",
        "--label", f"{spec.LABEL}.host={host.name}",
        "--label", f"{spec.LABEL}.address={host.address}",
        "--label", f"{spec.LABEL}.gpus={host.gpus}",
        "--label", f"{spec.LABEL}.rootless={int(host.rootless)}",
        *(PRIVILEGED if privileged else UNPRIVILEGED),
        *quota,
        "--network", lab.network, "--ip", str(host.address), "--network-alias", host.name,
        *disk,
        "--mount", f"type=bind,source={lab.folder(host.name)},target=/lab",
        "--env", f"LAB_GPUS={host.gpus}", "--env", f"LAB_SOCKET_GID={socket_group}",
        "--log-opt", "max-size=5m", "--log-opt", "max-file=2",
    ]  # fmt: skip


def connect_words(lab: Lab, host: Host) -> list[str]:
    """Words after `docker` that give a host its network back."""
    return [
        "network",
        "connect",
        "--ip",
        str(host.address),
        "--alias",
        host.name,
        lab.network,
        spec.container(host.name),
    ]


def read_standing(lab: Lab, inspected: Mapping[str, Any]) -> Standing | None:
    """Read one object of `docker inspect`; None if its labels are not those of a host of this lab.

    Nor is it the host while a stand-in has its name.
    """
    labels = inspected["Config"]["Labels"] or {}
    name = labels.get(f"{spec.LABEL}.host", "")
    if labels.get(spec.LABEL) != lab.name or lab.number(name) is None:
        return None
    if inspected["Name"].removeprefix("/") != spec.container(name):
        return None
    nano_cpus = inspected["HostConfig"].get("NanoCpus") or 0
    host = Host(
        name,
        IPv4Address(labels[f"{spec.LABEL}.address"]),
        int(labels[f"{spec.LABEL}.gpus"]),
        nano_cpus / 1e9 if nano_cpus else None,
        labels[f"{spec.LABEL}.rootless"] == "1",
    )
    networks = inspected["NetworkSettings"]["Networks"] or {}
    return Standing(host, inspected["State"]["Status"], inspected["Config"]["Image"], lab.network in networks)


def read_network(lab: Lab, inspected: Mapping[str, Any]) -> Network | None:
    """Read one object of `docker network inspect`; None if it has no IPv4 subnet."""
    subnets = [config["Subnet"] for config in inspected["IPAM"]["Config"] or [] if ":" not in config["Subnet"]]
    ours = (inspected["Labels"] or {}).get(spec.LABEL) == lab.name
    return Network(IPv4Network(subnets[0]), ours) if subnets else None


def read_contexts(lab: Lab, listed: Sequence[Mapping[str, Any]]) -> dict[str, Context]:
    """Read `docker context ls`: the contexts that bear the names of this lab's hosts."""
    contexts = [Context(line["Name"], line["Description"], line["DockerEndpoint"]) for line in listed]
    return {context.name: context for context in contexts if lab.number(context.name) is not None}


def stale_contexts(lab: Lab, contexts: Mapping[str, Context]) -> list[str]:
    """Pick the contexts that `lab down` removes: ours only."""
    return spec.sort_hosts(lab, [context.name for context in contexts.values() if context.ours])
