"""What one host has to run: Cluster -> HostPlan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from hvdcompose.config.model import Cluster, Gpus, Host, Mount, Ulimit
from hvdcompose.stack.launch import controller_of, horovodrun, hosts_of_run

Role = Literal["launcher", "worker"]

LABEL = "hvdcompose"
SSH_TARGET, HOST_TARGET, RUNS_TARGET, CODE_TARGET = "/root/.ssh", "/hvd/host", "/hvd/runs", "/hvd/code"
OUTPUT_TARGET = "/hvd/output"


@dataclass(frozen=True)
class HostPlan:
    """Everything that is rendered for one host; a function of cluster.yaml alone."""

    cluster: str
    host: str
    context: str
    role: Role
    image: str
    pull: str
    ssh_port: int
    ssh_volume: str
    gpus: Gpus
    shm_size: str | None
    ulimits: Mapping[str, Ulimit]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    code: str | None  # name of the folder under /hvd/code
    command: tuple[str, ...]  # of the launcher; empty for a worker
    settings: Mapping[str, object]  # /hvd/host.json

    @property
    def container(self) -> str:
        """The name Compose gives the container."""
        return f"{self.cluster}-{self.role}-1"

    @property
    def ssh_managed(self) -> bool:
        """True where hvdcompose fills the ssh volume."""
        return not self.ssh_volume.startswith("/")

    @property
    def gpus_label(self) -> str:
        """The GPUs given, as another cluster's client reads them from a label: all, "any 2", ids with commas, or ""."""
        if self.gpus.kind in ("none", "all"):
            return "" if self.gpus.kind == "none" else "all"
        return f"any {self.gpus.count}" if self.gpus.kind == "count" else ",".join(self.gpus.ids)

    @property
    def named_volumes(self) -> tuple[str, ...]:
        """The user's named volumes, sorted, each once."""
        return tuple(sorted({mount.source for mount in self.mounts if not mount.is_path}))


def plan_hosts(cluster: Cluster) -> tuple[HostPlan, ...]:
    """Return one plan per host, in the order of cluster.yaml."""
    return tuple(plan_host(cluster, host) for host in cluster.hosts)


def plan_host(cluster: Cluster, host: Host) -> HostPlan:
    """Return the plan of one host."""
    launches = host.name == cluster.primary_name
    code = PurePosixPath(cluster.train.code).name if cluster.train.code else None
    return HostPlan(
        cluster=cluster.name,
        host=host.name,
        context=host.context,
        role="launcher" if launches else "worker",
        image=cluster.image.name,
        pull=cluster.image.pull,
        ssh_port=cluster.ssh.port,
        ssh_volume=cluster.ssh.volume,
        gpus=host.gpus,
        shm_size=host.shm_size,
        ulimits=host.ulimits,
        environment={"PYTHONUNBUFFERED": "1", **cluster.train.env, **host.env},
        mounts=_mounts(cluster, host),
        code=code,
        command=horovodrun(cluster) if launches else (),
        settings=_settings(cluster, host),
    )


def _mounts(cluster: Cluster, host: Host) -> tuple[Mount, ...]:
    """Return the user's mounts on a host; an output that is a path is the primary's alone."""
    output = cluster.train.output
    mounts = (*cluster.train.volumes, *host.volumes)
    if output is None or (output.startswith("/") and host.name != cluster.primary_name):
        return mounts
    return (*mounts, Mount(target=OUTPUT_TARGET, source=output))


def _settings(cluster: Cluster, host: Host) -> dict[str, object]:
    """Return what the scripts under /hvd need; a worker's says nothing of the run, so that it outlives it."""
    own: dict[str, object] = {
        "cluster": cluster.name,
        "host": host.name,
        "address": host.address,
        "interface": host.interface,
        "port": cluster.ssh.port,
        "own_env": sorted(host.env),
        "mounts": {mount.target: mount.source for mount in (*cluster.train.volumes, *host.volumes)},
        "secrets": sorted(cluster.train.secrets),
    }
    if host.name != cluster.primary_name:
        return own
    run = [{"host": used.name, "address": used.address, "slots": count} for used, count in hosts_of_run(cluster)]
    return own | {
        "controller": controller_of(cluster.horovod),
        "np": cluster.train.np,
        "start_timeout": cluster.horovod.start_timeout,
        "hosts": run,
        "output": OUTPUT_TARGET if cluster.train.output else None,
        "prepare": cluster.train.prepare,
        "keep": cluster.runs.keep,
    }
