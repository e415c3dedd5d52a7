"""The rules that compare values with each other; each works on whatever parts could be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvdcompose.config.cursor import Found
from hvdcompose.config.hosts import HostDraft
from hvdcompose.config.sections import TrainDraft
from hvdcompose.config.words import is_loopback


def check_hosts(hosts: Sequence[HostDraft]) -> None:
    """Note what is wrong between hosts, and between the settings of one host."""
    _check_names(hosts)
    _check_unique(hosts, "address", lambda host: host.address, str.lower)
    _check_unique(hosts, "Docker context", lambda host: host.context, str)
    _check_primary(hosts)
    for host in hosts:
        _check_slots(host)
        if len(hosts) > 1 and host.address and is_loopback(host.address.value):
            host.address.at.error(f"{host.address.value} is this host only to itself; the others cannot reach it")


def check_train(train: TrainDraft, hosts: Sequence[HostDraft]) -> None:
    """Note what the run asks for and the hosts do not give."""
    _check_np(train, hosts)
    for target, mount in train.volumes.items():
        for host in hosts:
            if target in host.settings.volumes:
                other = host.settings.volumes[target].at
                mount.at.key_error(f"{other.path} on line {other.key.line} mounts at the same path")


def check_own_volumes(name: str, ssh: Found[str] | None, train: TrainDraft, hosts: Sequence[HostDraft]) -> None:
    """Note uses of what hvdcompose keeps for itself: the ranks would get the keys."""

    def is_own(volume: str) -> bool:
        return volume in (f"{name}-host", f"{name}-runs") or volume.startswith(f"{name}-code-")

    if ssh and is_own(ssh.value):
        ssh.at.error(f"{ssh.value} is a volume of hvdcompose's own; take another name")
    keys = ssh.value if ssh else f"{name}-ssh"
    mounts = [found for host in hosts for found in host.settings.volumes.values()] + list(train.volumes.values())
    sources = [(found.value.source, found.at) for found in {id(found): found for found in mounts}.values()]
    sources += [(train.output.value, train.output.at)] if train.output else []
    for source, at in ((source.rstrip("/"), at) for source, at in sources):
        if source in (keys.rstrip("/"), f"{name}-ssh"):
            at.error(f"{source} holds the cluster's ssh keys, which are no business of the ranks")
        elif is_own(source):
            at.error(f"{source} is a volume of hvdcompose's own; take another name")


def primary_name(hosts: Sequence[HostDraft]) -> str:
    """Return the name of the host that says `primary: true`, else that of the first."""
    return next((host.name for host in hosts if host.primary and host.primary.value), hosts[0].name)


def _check_names(hosts: Sequence[HostDraft]) -> None:
    seen: dict[str, HostDraft] = {}
    for host in hosts:
        first = seen.setdefault(host.name.lower(), host)
        if first is not host:
            host.at.key_error(f"differs from {first.name} on line {first.at.key.line} in upper and lower case only")


def _check_unique(
    hosts: Sequence[HostDraft],
    what: str,
    value: Callable[[HostDraft], Found[str] | None],
    key: Callable[[str], str],
) -> None:
    seen: dict[str, HostDraft] = {}
    for host in hosts:
        found = value(host)
        if found is None:
            continue
        first = seen.setdefault(key(found.value), host)
        if first is not host:
            message = f"the same {what} as {first.at.path} on line {first.at.key.line}"
            is_derived = found.at is host.at
            (found.at.key_error if is_derived else found.at.error)(message)


def _check_primary(hosts: Sequence[HostDraft]) -> None:
    first: HostDraft | None = None
    for host in hosts:
        if host.primary is None or not host.primary.value:
            continue
        if first is None:
            first = host
        else:
            host.primary.at.error(f"{first.at.path} on line {first.at.key.line} is the primary already")


def _check_slots(host: HostDraft) -> None:
    slots, gpus = host.settings.single.get("slots"), host.settings.single.get("gpus")
    if slots is None or gpus is None or gpus.value.kind == "none" or gpus.value.reserved is None:
        return
    if slots.value > gpus.value.reserved:
        # where the host says one of the two and defaults the other, the host's line is the one to look at
        own = (found.at for found in (slots, gpus) if found.at.path.startswith(f"{host.at.path}."))
        message = f"{_count(slots.value, 'slot')} but only {_count(gpus.value.reserved, 'GPU')} reserved"
        next(own, slots.at).error(message)


def _check_np(train: TrainDraft, hosts: Sequence[HostDraft]) -> None:
    slots = [host.slots for host in hosts]
    known = [number for number in slots if number is not None]
    if train.np is None or not hosts or len(known) < len(slots) or train.np.value <= sum(known):
        return
    message = f"{_count(train.np.value, 'process')} but only {_count(sum(known), 'slot')}"
    if any(host.gpus and host.gpus.kind == "all" and "slots" not in host.settings.single for host in hosts):
        message += "; a host with gpus: all counts as 1 until it says slots"
    train.np.at.error(message)


def _count(number: int, thing: str) -> str:
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number} {thing}{ending}"
