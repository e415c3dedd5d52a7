"""The cluster as the user described it: frozen, complete, validated. No I/O, no default left to guess."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of every part of a cluster.yaml: frozen, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Gpus(Model):
    """Which GPUs of a host the containers get.

    `count` is used by kind "count"; `ids` by "ids" (indices or GPU-/MIG- UUIDs) and "cdi" (device names).
    """

    kind: Literal["none", "all", "count", "ids", "cdi"] = "none"
    count: int = 0
    ids: tuple[str, ...] = ()

    @property
    def reserved(self) -> int | None:
        """The number of GPUs given, or None for "all" and CDI's "...=all", which only the host knows."""
        if self.kind == "all" or any(device.endswith("=all") for device in self.ids):
            return None
        return self.count if self.kind == "count" else len(self.ids)


class Image(Model):
    """The image of every container: a name, and where it comes from when a host lacks it."""

    name: str
    build: str | None = None  # folder on the client, as written
    args: dict[str, str] = Field(default_factory=dict)  # build arguments
    pull: Literal["missing", "always", "never"] = "missing"


class Ssh(Model):
    """How the launcher reaches the workers: one port for all hosts, one volume that holds /root/.ssh."""

    port: int = 12345
    volume: str  # a volume name that hvdcompose fills, or an absolute path on every host, used as it is

    @property
    def managed(self) -> bool:
        """True where hvdcompose fills the volume with its own key, False for a path of the user's."""
        return not self.volume.startswith("/")


class Mount(Model):
    """One mount of a container: an absolute path in it, and a host path or a named volume behind it."""

    target: str
    source: str
    read_only: bool = False

    @property
    def is_path(self) -> bool:
        """True for a path on the host, False for a named volume."""
        return self.source.startswith("/")


class Ulimit(Model):
    """Soft and hard limit of one resource; -1 is unlimited."""

    soft: int
    hard: int


class Host(Model):
    """One machine: how Docker reaches it (context), how the other hosts do (address), what it gives."""

    name: str
    context: str
    address: str
    gpus: Gpus = Gpus()
    slots: int  # processes Horovod places here
    slots_given: bool = False  # False: taken from the GPUs, and 1 for `gpus: all` until the host is asked
    interface: str | None = None  # NIC that owns the address; None: found at run time
    shm_size: str | None = None
    ulimits: dict[str, Ulimit] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    volumes: tuple[Mount, ...] = ()


class Secret(Model):
    """Where the client finds the value of a secret: a variable of its environment, or a file; one of the two."""

    env: str | None = None
    file: str | None = None  # path on the client, as written


class Train(Model):
    """The run: the command of every rank and what it needs."""

    command: tuple[str, ...]
    np: int
    code: str | None = None  # folder on the client, as written
    prepare: tuple[str, ...] | None = None  # command, once per host before the launch
    output: str | None = None  # where the ranks write: a volume on every host, or a path on the primary
    env: dict[str, str] = Field(default_factory=dict)
    volumes: tuple[Mount, ...] = ()
    secrets: dict[str, Secret] = Field(default_factory=dict)  # by the name of the file under /run/secrets


class Runs(Model):
    """What is kept of past runs."""

    keep: int = 50  # records and logs of that many


class Horovod(Model):
    """Settings of horovodrun that differ from its own defaults; None leaves Horovod's."""

    controller: Literal["auto", "gloo", "mpi"] = "auto"
    fusion_threshold_mb: int | None = None  # horovodrun takes whole numbers only
    cycle_time_ms: float | None = None
    timeline: str | None = None  # absolute path in the containers
    start_timeout: int = 120  # seconds the launcher waits for the workers, and horovodrun for the ranks
    stall_shutdown: int | None = None  # seconds
    args: tuple[str, ...] = ()  # further words for horovodrun, before the command


class Cluster(Model):
    """A whole cluster.yaml. `hosts` keeps the order of the file; `primary` names one of them."""

    name: str
    image: Image
    ssh: Ssh
    hosts: tuple[Host, ...]
    primary_name: str
    train: Train
    horovod: Horovod = Horovod()
    runs: Runs = Runs()

    @property
    def primary(self) -> Host:
        """The host that runs the launcher."""
        return next(host for host in self.hosts if host.name == self.primary_name)

    @property
    def secondaries(self) -> tuple[Host, ...]:
        """The hosts that run a worker."""
        return tuple(host for host in self.hosts if host.name != self.primary_name)

    @property
    def launch_order(self) -> tuple[Host, ...]:
        """The hosts as horovodrun lists them: the primary first, so that rank 0 runs beside the launcher."""
        return (self.primary, *self.secondaries)

    @property
    def slots(self) -> int:
        """Processes that fit on all hosts."""
        return sum(host.slots for host in self.hosts)
