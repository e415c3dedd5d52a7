"""The words of the `horovodrun` call. Lists only; nothing here runs anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from hvdcompose.config.model import Cluster, Horovod, Host

RANK = "/hvd/rank"


def hosts_of_run(cluster: Cluster) -> tuple[tuple[Host, int], ...]:
    """Return (host, processes) for each host that gets ranks, filled one after the other as Horovod does."""
    left, used = cluster.train.np, []
    for host in cluster.launch_order:
        count = min(left, host.slots)
        if count:
            used.append((host, count))
        left -= count
    return tuple(used)


def controller_of(horovod: Horovod) -> str:
    """Return "gloo" or "mpi"; `auto` is Gloo, which every build of Horovod for PyTorch can have."""
    return "gloo" if horovod.controller == "auto" else horovod.controller


def horovodrun(cluster: Cluster) -> tuple[str, ...]:
    """Return the launcher's command, `horovodrun` and its options, /hvd/rank and the user's command.

    The launcher adds `--network-interfaces`: only it can see the name of its own.
    """
    horovod = cluster.horovod
    slots = ",".join(f"{host.address}:{count}" for host, count in hosts_of_run(cluster))
    words = ["horovodrun", "-np", str(cluster.train.np), "-H", slots, "-p", str(cluster.ssh.port)]
    words += [f"--{controller_of(horovod)}", "--disable-cache", "--start-timeout", str(horovod.start_timeout)]
    options = {
        "--fusion-threshold-mb": horovod.fusion_threshold_mb,
        "--cycle-time-ms": horovod.cycle_time_ms,
        "--timeline-filename": horovod.timeline,
        "--stall-check-shutdown-time-seconds": horovod.stall_shutdown,
    }
    for option, value in options.items():
        if value is not None:
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return (*words, *horovod.args, RANK, *cluster.train.command)


def rank_hosts(cluster: Cluster) -> tuple[str, ...]:
    """Return the host of each rank, as cluster.yaml places them."""
    return tuple(host.name for host, count in hosts_of_run(cluster) for _ in range(count))


def rank_hosts_in(words: Sequence[str], cluster: Cluster) -> tuple[str, ...]:
    """Return the host of each rank as horovodrun's words place them, by address; () for words that name no hosts.

    A launch by hand, of an older cluster.yaml or of another np may differ from what the cluster says now.
    """
    names = {host.address: host.name for host in cluster.hosts}
    slots = words[words.index("-H") + 1] if "-H" in words[:-1] else ""
    ranks: list[str] = []
    for entry in slots.split(","):
        address, _, count = entry.partition(":")
        ranks += [names.get(address, address)] * int(count or 0)
    np = words[words.index("-np") + 1] if "-np" in words[:-1] else ""
    return tuple(ranks[: int(np)] if np.isdigit() else ranks)


def launch_digest(cluster: Cluster, *, image: str, code: str) -> str:
    """Return the identity of a launch: 16 hex digits over what decides its outcome.

    `image` is the identity of the image on the hosts, `code` the digest of the code folder ("" where there is none).
    """
    decisive: dict[str, object] = {
        "command": cluster.train.command,
        "np": cluster.train.np,
        "horovod": cluster.horovod.model_dump(exclude={"start_timeout"}),
        "env": cluster.train.env,
        "volumes": [mount.model_dump() for mount in cluster.train.volumes],
        "hosts": [
            {**host.model_dump(include={"name", "address", "gpus", "env", "volumes"}), "count": count}
            for host, count in hosts_of_run(cluster)
        ],
        "image": [cluster.image.name, image],
        "code": code,
    }
    train = cluster.train
    # only where they are set: a digest from before there were these keys stays the same
    optional = {"prepare": train.prepare, "output": train.output, "secrets": sorted(train.secrets)}
    decisive |= {name: value for name, value in optional.items() if value}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
