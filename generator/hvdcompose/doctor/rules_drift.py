"""Rules over what differs between hosts and should not: versions in the container, clocks, data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from hvdcompose.doctor.facts import Facts, version_of
from hvdcompose.doctor.rule import At, rule
from hvdcompose.stack.launch import controller_of

TITLE = "Hosts that differ"
SKEW_SECONDS = 5.0
DECISIVE = ("python", "horovod", "torch", "cuda", "nccl")


def odd_ones(values: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return {host: (its value, the usual one)} of the hosts that differ from most, or from the first."""
    counted = Counter(values.values())
    usual = max(values.values(), key=lambda value: counted[value], default="")  # of equals, the first host's
    return {host: (value, usual) for host, value in values.items() if value != usual}


@rule(
    "versions", needs="probe", remedy="one image everywhere: hvdcompose apply; or take what hides it out of `volumes`"
)
def versions_are_the_same(facts: Facts) -> Iterator[At]:
    """Python, Horovod, torch, CUDA, NCCL and, with MPI, Open MPI are the same in all containers (case H03).

    The image may be the same and a volume or a variable hide what is in it.
    """
    mpi = controller_of(facts.cluster.horovod) == "mpi"
    for what in (*DECISIVE, *(["mpi"] if mpi else [])):
        values = {name: probe.versions.get(what, "") for name, _, probe in facts.probed()}
        if what == "python":
            values = {name: ".".join(str(part) for part in version_of(value)[:2]) for name, value in values.items()}
        for name, (found, usual) in odd_ones(values).items():
            message = f"its {what} is {found or 'missing'}, the others' {usual or 'missing'}"
            yield At(name, message, found=found or "none", wanted=usual or "none")


@rule("clock", level="note", needs="probe", remedy="on {host}: timedatectl set-ntp true")
def clocks_agree(facts: Facts) -> Iterator[At]:
    """Clocks agree within 5 s: logs of all hosts are merged by time, and make takes older files for newer ones."""
    skews = {name: host.skew for name, host in facts.hosts.items() if host.skew is not None}
    middle = sorted(skews.values())[len(skews) // 2] if skews else 0.0
    for name, skew in skews.items():
        if abs(skew - middle) > SKEW_SECONDS:
            way = "ahead of" if skew > middle else "behind"
            yield At(
                name, f"its clock is {abs(skew - middle):.0f} s {way} the others'", found=f"{skew - middle:+.0f} s"
            )


@rule("data", level="note", needs="probe", remedy="copy the data there, unless each host is to have its own part")
def data_is_the_same(facts: Facts) -> Iterator[At]:
    """A folder or volume that is mounted at one path holds the same files on all hosts: names and sizes (case H08)."""
    targets = dict.fromkeys(target for _, _, probe in facts.probed() for target in probe.listings)
    for target in targets:
        held = {name: probe.listings[target] for name, _, probe in facts.probed() if target in probe.listings}
        odd = odd_ones({name: listing.digest for name, listing in held.items() if listing.digest})
        for name in odd:
            usual = next(listing for listing in held.values() if listing.digest == odd[name][1])
            files, others = held[name].files, usual.files
            amount = f"{files} files, the others {others}" if files != others else f"{files} other files"
            yield At(name, f"its {target} holds {amount}", found=f"{files} files", wanted=f"{others} files")


RULES = (versions_are_the_same, clocks_agree, data_is_the_same)
