"""Rules over GPUs: given by the engine, as many as there are ranks, served by the driver and by the image's CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from hvdcompose.doctor.facts import Facts, version_of
from hvdcompose.doctor.rule import At, rule
from hvdcompose.hosts.probe import Gpu

TITLE = "GPUs"
# CUDA's release notes: the oldest driver of each major version, and the least compute capability it compiles for
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
LEAST_CAPABILITY = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
# PyTorch's own wheels of 2.8 and later for CUDA 12.8 and 12.9 leave out what is older than Turing
LEAN_TORCH, LEAN_CUDA, LEAN_CAPABILITY = (2, 8), ((12, 8), (12, 9)), (7, 5)


def number(capability: tuple[int, ...]) -> str:
    """Return a compute capability as NVIDIA writes it: 7.0."""
    return ".".join(str(part) for part in capability)


@rule("gpus", needs="container", remedy="`gpus: none` runs there without GPUs")
def gpus_are_given(facts: Facts) -> Iterator[At]:
    """The engine gives a container the GPUs that cluster.yaml reserves (cases G01, G02, G05, G08).

    No NVIDIA Container Toolkit, no CDI, no such GPU, a driver too old for the image: the engine's refusal is told.
    """
    for name, host in facts.hosts.items():
        for refusal in host.refusals:
            if refusal.about == "gpus":
                told = refusal.error.message.removeprefix("trying the run's container: ")
                yield At(name, told, remedy=refusal.error.hint)


@rule("gpus", needs="gpus", remedy="on {host}: nvidia-smi; after an update of the driver: reboot it")
def gpus_are_seen(facts: Facts) -> Iterator[At]:
    """nvidia-smi works in the container: a driver updated without a reboot fails there (the neighbours of G04)."""
    for name, host, probe in facts.probed():
        if host.reserves_gpus and probe.gpus_error:
            yield At(name, f"nvidia-smi fails in the container: {probe.gpus_error}", found=probe.gpus_error)


@rule("gpu slots", needs="gpus", remedy="hosts.{host}: slots: {count}")
def every_rank_has_a_gpu(facts: Facts) -> Iterator[At]:
    """With `gpus: all`, the GPUs that are there fit the `slots` (cases H01, G08)."""
    for name, host, probe in facts.probed():
        count = len(probe.gpus)
        if host.host.gpus.kind != "all":
            continue
        if count > 1 and not host.host.slots_given:
            message = f"`gpus: all` gives {count} GPUs, and `slots` does not say how many ranks use them"
            yield At(name, message, {"count": count}, found=str(count))
        elif 0 < count < host.host.slots:
            message = f"{host.host.slots} slots but only {count} GPU{'s' * (count > 1)} there"
            yield At(name, message, {"count": count}, found=str(count), wanted=str(host.host.slots))


@rule("gpu slots", needs="gpus", remedy="`gpus: {count}` and `slots: {count}` for {host} in cluster.yaml")
def no_gpu_is_missing(facts: Facts) -> Iterator[At]:
    """With a count or a list, the container sees as many GPUs as cluster.yaml reserves (cases G04, G08)."""
    for name, host, probe in facts.probed():
        reserved, count = host.host.gpus.reserved, len(probe.gpus)
        if host.reserves_gpus and reserved and probe.gpus_asked and not probe.gpus_error and count < reserved:
            message = f"its container sees {count} of the {reserved} GPUs that cluster.yaml reserves"
            yield At(name, message, {"count": count}, found=str(count), wanted=str(reserved))


@rule("gpu slots", needs="worker gpus", remedy="docker --context {context} rm -f {worker}; hvdcompose apply")
def workers_keep_their_gpus(facts: Facts) -> Iterator[At]:
    """A worker that has stood for long still has its GPUs: `systemctl daemon-reload` takes them away (case G04)."""
    for name, host in facts.hosts.items():
        given = len(host.probe.gpus) if host.probe else 0
        if host.worker and host.worker_gpus is not None and host.worker_gpus < given:
            yield At(
                name,
                f"its worker sees {host.worker_gpus} of {given} GPUs any more (systemctl daemon-reload?)",
                {"context": host.host.context, "worker": host.worker.name},
                found=str(host.worker_gpus),
                wanted=str(given),
            )


def _cuda(versions: dict[str, str]) -> tuple[int, ...]:
    return version_of(versions.get("cuda", ""))


@rule(
    "cuda", needs="gpus", remedy="update the driver of {host} to {driver} or later, or take an image with an older CUDA"
)
def drivers_serve_the_images_cuda(facts: Facts) -> Iterator[At]:
    """The driver is not older than the CUDA of the image's torch needs (case G05)."""
    for name, _, probe in facts.probed():
        cuda = _cuda(dict(probe.versions))
        needed = OLDEST_DRIVER.get(cuda[0]) if cuda else None
        for driver in dict.fromkeys(gpu.driver for gpu in probe.gpus):
            found = version_of(driver)
            if needed and found and found[0] < needed:
                message = f"its driver {driver} does not serve CUDA {probe.versions['cuda']} of the image"
                yield At(name, message, {"driver": needed}, found=driver, wanted=str(needed))


def least_capability(versions: dict[str, str]) -> tuple[int, ...]:
    """Return the least compute capability that the image's torch was compiled for, () where that is not known."""
    cuda = _cuda(versions)
    if not cuda:
        return ()
    lean = version_of(versions.get("torch", "")) >= LEAN_TORCH and cuda[:2] in LEAN_CUDA
    return LEAN_CAPABILITY if lean and "+cu" in versions.get("torch", "") else LEAST_CAPABILITY.get(cuda[0], ())


def _too_old(gpus: tuple[Gpu, ...], least: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {gpu.name: gpu.capability for gpu in gpus if least and gpu.capability and gpu.capability < least}


@rule("cuda", needs="gpus", remedy="take an image whose torch is built for CUDA 12.6: it still serves 5.0 to 9.0")
def cuda_serves_the_gpus(facts: Facts) -> Iterator[At]:
    """The image's CUDA still compiles for the GPUs that are there: CUDA 13 dropped the TITAN V, 7.0 (case G05)."""
    for name, _, probe in facts.probed():
        least = least_capability(dict(probe.versions))
        for model, capability in _too_old(probe.gpus, least).items():
            told = f"{model} (compute capability {number(capability)})"
            message = f"torch {probe.versions['torch']} with CUDA {probe.versions['cuda']} has no code for its {told}"
            yield At(name, message, found=number(capability), wanted=f"{number(least)} or later")


@rule("cuda", needs="gpus", remedy="build the image with a CUDA build of torch, or say `gpus: none`")
def torch_can_use_gpus(facts: Facts) -> Iterator[At]:
    """A host that gives GPUs has an image whose torch was built with CUDA (the neighbours of G05)."""
    for name, host, probe in facts.probed():
        real = probe.gpus and probe.gpu_driver  # the lab's have no driver in the kernel, and serve any image
        if host.reserves_gpus and real and probe.versions.get("torch") and not probe.versions.get("cuda"):
            message = f"the image's torch {probe.versions['torch']} is built without CUDA: its GPUs would stay idle"
            yield At(name, message, found="CPU", wanted="CUDA")


@rule("gpu slots", level="note", needs="gpus", remedy="one rank there: hosts.{host}: slots: 1")
def slices_are_not_shared(facts: Facts) -> Iterator[At]:
    """NCCL serves slices of one GPU (MIG) only partly: several ranks on them may not find each other (case G08)."""
    for name, host, probe in facts.probed():
        ids = (*host.host.gpus.ids, *(gpu.uuid for gpu in probe.gpus))
        if facts.ranks(name) > 1 and any("MIG-" in device for device in ids):
            yield At(name, f"{facts.ranks(name)} ranks on slices of a GPU (MIG)")


@rule(
    "gpus",
    level="note",
    needs="gpus",
    remedy="use CDI: `gpus: {{driver: cdi, ids: [nvidia.com/gpu=all]}}`; or hvdcompose doctor before long runs",
)
def reservations_outlive_a_reload(facts: Facts) -> Iterator[At]:
    """With systemd's cgroups on cgroup v1 a daemon-reload takes GPUs from containers that run; CDI keeps them (G04)."""
    for name, host, probe in facts.probed():
        legacy = host.engine and (host.engine.cgroup_driver, host.engine.cgroup_version) == ("systemd", "1")
        if legacy and probe.gpus and host.host.gpus.kind not in ("none", "cdi"):
            yield At(name, "`systemctl daemon-reload` there would take the GPUs from a worker that runs")


RULES = (
    gpus_are_given,
    gpus_are_seen,
    every_rank_has_a_gpu,
    no_gpu_is_missing,
    workers_keep_their_gpus,
    drivers_serve_the_images_cuda,
    cuda_serves_the_gpus,
    torch_can_use_gpus,
    slices_are_not_shared,
    reservations_outlive_a_reload,
)
