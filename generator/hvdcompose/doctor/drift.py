"""What the hosts are and have, side by side: unequal machines are shown as such; what breaks a run has a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hvdcompose.doctor.facts import Facts, HostFacts
from hvdcompose.doctor.rules_data import size
from hvdcompose.doctor.rules_gpu import number
from hvdcompose.hosts.probe import Gpu, ProbeFacts

VERSIONS = ("python", "horovod", "torch", "torchvision", "cuda", "nccl", "mpi")


@dataclass(frozen=True)
class Row:
    """One thing, and what it is on each host that told it."""

    name: str
    values: Mapping[str, str]

    @property
    def groups(self) -> list[tuple[str, tuple[str, ...]]]:
        """[(value, hosts)], the most frequent first; of equals, the first host's."""
        found: dict[str, list[str]] = {}
        for host, value in self.values.items():
            found.setdefault(value, []).append(host)
        groups = [(value, tuple(hosts)) for value, hosts in found.items()]
        return sorted(groups, key=lambda group: -len(group[1]))


def _of_engine(read: Callable[[HostFacts], str]) -> Callable[[HostFacts], str | None]:
    return lambda host: read(host) if host.engine is not None else None


def _of_probe(read: Callable[[ProbeFacts], str]) -> Callable[[HostFacts], str | None]:
    return lambda host: read(host.probe) if host.probe is not None else None


def _version(name: str) -> Callable[[HostFacts], str | None]:
    return _of_probe(lambda probe: probe.versions.get(name) or "none")


def _limit(number: int, unit: int = 1) -> str:
    return "unlimited" if number == -1 else str(number // unit)


def gpus_text(gpus: tuple[Gpu, ...]) -> str:
    """Return the GPUs of a host in words: 2 x TITAN V, 12 GiB, 7.0."""
    found: dict[tuple[str, int, tuple[int, ...]], int] = {}
    for gpu in gpus:
        kind = (gpu.name, gpu.memory, gpu.capability)
        found[kind] = found.get(kind, 0) + 1
    told = [
        f"{count} x {name}, {round(memory / 1024)} GiB" + (f", {number(capability)}" if capability else "")
        for (name, memory, capability), count in found.items()
    ]
    return "; ".join(told) or "none"


READERS: dict[str, Callable[[HostFacts], str | None]] = {
    "image": lambda host: (host.image.digest if host.image else "none") if host.image_asked else None,
    "engine": _of_engine(lambda host: host.engine.version if host.engine else ""),
    "architecture": _of_engine(lambda host: host.engine.architecture if host.engine else ""),
    **{name: _version(name) for name in VERSIONS},
    "Horovod for": _of_probe(lambda probe: ", ".join(probe.built_with) or "unknown"),
    "GPUs": _of_probe(lambda probe: gpus_text(probe.gpus)),
    "driver": _of_probe(lambda probe: ", ".join(dict.fromkeys(gpu.driver for gpu in probe.gpus)) or "none"),
    "interface": _of_probe(lambda probe: probe.owner or "none"),
    "MTU": _of_probe(lambda probe: str(probe.interfaces[probe.owner].mtu) if probe.owner else "none"),
    "/dev/shm": _of_probe(lambda probe: size(probe.shm.total)),
    "memlock, KiB": _of_probe(lambda probe: _limit(probe.limits.get("memlock", -1), 1024)),
    "nofile": _of_probe(lambda probe: _limit(probe.limits.get("nofile", -1))),
    "CPU cores": _of_probe(lambda probe: str(probe.cores)),
    "memory": _of_probe(lambda probe: size(probe.memory)),
    "free disk": _of_probe(lambda probe: next((size(d.free) for d in probe.disks if d.path == "/"), "unknown")),
    "clock": lambda host: f"{host.skew:+.0f} s" if host.skew is not None else None,
}  # fmt: skip


def drift(facts: Facts) -> list[Row]:
    """Return the table: a row for each thing that a host told, the data folders last."""
    rows = [Row(name, _told(facts, read)) for name, read in READERS.items()]
    targets = dict.fromkeys(target for _, _, probe in facts.probed() for target in probe.listings)
    for target in targets:
        rows.append(Row(target, _told(facts, _of_listing(target))))
    return [row for row in rows if row.values]


def _of_listing(target: str) -> Callable[[HostFacts], str | None]:
    def read(host: HostFacts) -> str | None:
        held = host.probe.listings.get(target) if host.probe else None
        return f"{held.files} files {held.digest or '(too many to compare)'}" if held else None

    return read


def _told(facts: Facts, read: Callable[[HostFacts], str | None]) -> dict[str, str]:
    found = {name: read(host) for name, host in facts.hosts.items()}
    return {name: value.replace("+0 s", "0 s").replace("-0 s", "0 s") for name, value in found.items() if value}


def slowest(facts: Facts) -> tuple[str, Gpu] | None:
    """Return (host, GPU) of the one that the others will wait for, None where all are of one model."""
    gpus = [(name, gpu) for name, _, probe in facts.probed() for gpu in probe.gpus]
    if len({gpu.name for _, gpu in gpus}) < 2:
        return None
    return min(gpus, key=lambda entry: (entry[1].capability, entry[1].memory))
