"""Rules over what a host lends to the containers: folders, disk, shared memory, limits."""

from __future__ import annotations

from collections.abc import Iterator

from hvdcompose.doctor.facts import Facts
from hvdcompose.doctor.rule import At, rule
from hvdcompose.hosts.probe import Disk

TITLE = "Folders, disks, memory and limits"
MIB, GIB = 2**20, 2**30
FULL, LOW = 32 * MIB, GIB
SMALLEST_SHM = 60 * MIB  # Docker's own default is 64 MiB; Gloo and one rank's NCCL get along with it
SHM_PER_RANK = 256 * MIB
MEMORY_KINDS = ("tmpfs", "ramfs")


def size(number: int) -> str:
    """Return bytes for a person: 512 MiB, 7.5 GiB."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number // MIB} MiB"


@rule("folders", needs="container", remedy="make it on {host}, or change the volume in cluster.yaml")
def folders_exist(facts: Facts) -> Iterator[At]:
    """Every path that is mounted exists on every host: Docker would make an empty folder of root's (cases D02, H08)."""
    for name, host in facts.hosts.items():
        for refusal in host.refusals:
            if refusal.about == "folder":
                yield At(name, f"it has no folder {refusal.what}, which cluster.yaml mounts", wanted=refusal.what)


def _data(disks: tuple[Disk, ...]) -> list[Disk]:
    return [disk for disk in disks if disk.path != "/"]


@rule(
    "folders",
    needs="probe",
    remedy="on {host}: chcon -Rt container_file_t FOLDER (SELinux), or export it with no_root_squash (NFS)",
)
def folders_can_be_read(facts: Facts) -> Iterator[At]:
    """Root in a container can read what is mounted: SELinux and NFS' root_squash may forbid it (case S10)."""
    for name, host, probe in facts.probed():
        for disk in _data(probe.disks):
            if disk.error:
                why = " (SELinux is on there)" if host.engine and host.engine.selinux else f" ({disk.kind or 'folder'})"
                yield At(name, f"{disk.path} cannot be read in the container: {disk.error}{why}", found=disk.error)


@rule(
    "folders",
    needs="probe",
    remedy="let root write there on {host}, or say `read_only: true` for this volume in cluster.yaml",
)
def folders_can_be_written(facts: Facts) -> Iterator[At]:
    """What is mounted to be written can be: a read-only file system or NFS' root_squash forbids it (cases H08, S10)."""
    for name, host, probe in facts.probed():
        read_only = {mount.target for mount in (*facts.cluster.train.volumes, *host.host.volumes) if mount.read_only}
        for disk in _data(probe.disks):
            if not disk.writable and not disk.error and disk.path not in read_only:
                yield At(name, f"{disk.path} cannot be written in the container", found="read only", wanted="writable")


@rule(
    "disk",
    needs="container",
    remedy="on {host}: docker system df shows what takes the space, docker system prune frees it",
)
def disks_are_not_full(facts: Facts) -> Iterator[At]:
    """There is space for a container and on every volume: 32 MiB at least, and inodes (the neighbours of G06)."""
    for name, host in facts.hosts.items():
        for refusal in host.refusals:
            if refusal.about == "disk":
                what = "the image" if host.image_asked and host.image is None else "a container"
                yield At(name, f"its disk is full: there is no room for {what}")
        for disk in host.probe.disks if host.probe else ():
            if disk.error or not disk.writable:
                continue
            if disk.total and disk.free < min(FULL, disk.total // 10):
                what = "its disk" if disk.path == "/" else f"the volume at {disk.path}"
                yield At(name, f"{what} is full: {size(disk.free)} of {size(disk.total)} left", found=size(disk.free))
            elif disk.inodes == 0:
                yield At(
                    name, f"no file can be made at {disk.path}: the file system has no inode left", found="0 inodes"
                )


@rule("disk", level="note", needs="probe", remedy="docker --context {context} system df shows what takes the space")
def disks_have_space(facts: Facts) -> Iterator[At]:
    """A host's disk with less than 1 GiB left will not take the next image."""
    for name, host, probe in facts.probed():
        for disk in probe.disks:
            if disk.path == "/" and min(FULL, disk.total // 10) <= disk.free < LOW and disk.total > LOW:
                message = f"its disk has {size(disk.free)} of {size(disk.total)} left"
                yield At(name, message, {"context": host.host.context}, found=size(disk.free), wanted=size(LOW))


@rule("shm", needs="probe", remedy="`shm_size: 1g` for {host} in cluster.yaml, or under `defaults`")
def shared_memory_is_there(facts: Facts) -> Iterator[At]:
    """The container's /dev/shm is no smaller than Docker's own 64 MiB, and not used up (case G06)."""
    for name, _, probe in facts.probed():
        if probe.shm.kind and probe.shm.total < SMALLEST_SHM:
            message = f"its /dev/shm is {size(probe.shm.total)}: NCCL and data loaders fail in it"
            yield At(name, message, found=size(probe.shm.total), wanted="1 GiB")


@rule("shm", level="note", needs="probe", remedy="`shm_size: 1g` for {host} in cluster.yaml, or under `defaults`")
def shared_memory_is_enough(facts: Facts) -> Iterator[At]:
    """Ranks that share a host with GPUs have 256 MiB of /dev/shm each: NCCL exchanges through it (case G06)."""
    for name, host, probe in facts.probed():
        ranks = facts.ranks(name)
        if host.reserves_gpus and ranks > 1 and SMALLEST_SHM <= probe.shm.total < SHM_PER_RANK * ranks:
            message = f"its /dev/shm is {size(probe.shm.total)} for {ranks} ranks with GPUs"
            yield At(name, message, found=size(probe.shm.total), wanted=size(SHM_PER_RANK * ranks))


@rule("limits", needs="container", remedy="lower or drop `ulimits` for {host} in cluster.yaml")
def ulimits_can_be_set(facts: Facts) -> Iterator[At]:
    """The engine may set the `ulimits` of cluster.yaml (case G07): a machine's own hard limits hold for it as well."""
    for name, host in facts.hosts.items():
        for refusal in host.refusals:
            if refusal.about == "ulimits":
                yield At(name, "its engine may not set the ulimits of cluster.yaml")


@rule("limits", needs="probe", remedy="`ulimits: {{memlock: -1}}` for {host} in cluster.yaml, or under `defaults`")
def memory_can_be_locked(facts: Facts) -> Iterator[At]:
    """Where the container may use an RDMA card, it may lock all the memory that takes (case G07)."""
    for name, _, probe in facts.probed():
        limit = probe.limits.get("memlock", -1)
        if probe.rdma_cards and probe.rdma_device and limit != -1:
            message = f"its container may lock {size(limit)} of memory, and RDMA pins far more"
            yield At(name, message, found=size(limit), wanted="unlimited")


@rule("limits", level="note", needs="probe", remedy="`ulimits: {{nofile: 65536}}` for {host} in cluster.yaml")
def enough_files_can_be_open(facts: Facts) -> Iterator[At]:
    """A container may open 1024 files at least: every rank holds sockets to its neighbours, every data loader files."""
    for name, _, probe in facts.probed():
        limit = probe.limits.get("nofile", -1)
        if 0 <= limit < 1024:
            yield At(name, f"its container may open {limit} files", found=str(limit), wanted="65536")


@rule("container", needs="container", remedy="docker --context {context} info shows the engine's own warnings")
def containers_can_be_made(facts: Facts) -> Iterator[At]:
    """The run's container can be made and started; what else an engine refuses is told in its own words (case G02)."""
    for name, host in facts.hosts.items():
        for refusal in host.refusals:
            if not refusal.about:
                told = refusal.error.message.removeprefix("trying the run's container: ")
                yield At(name, told, {"context": host.host.context}, remedy=refusal.error.hint)


RULES = (
    containers_can_be_made,
    folders_exist,
    folders_can_be_read,
    folders_can_be_written,
    disks_are_not_full,
    shared_memory_is_there,
    ulimits_can_be_set,
    memory_can_be_locked,
    disks_have_space,
    shared_memory_is_enough,
    enough_files_can_be_open,
)
