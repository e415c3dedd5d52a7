"""GPUs as a container on the host sees them: the only proof that a reservation works there."""

from __future__ import annotations

from hvdcompose.config.model import Gpus
from hvdcompose.hosts.engine import Engine

TRY_SECONDS = 60.0


def gpu_words(gpus: Gpus) -> list[str]:
    """Return the `docker run` options for the same GPUs that the Compose file reserves."""
    if gpus.kind == "none":
        return []
    if gpus.kind == "cdi":
        return [word for device in gpus.ids for word in ("--device", device)]
    wanted = {"all": "all", "count": str(gpus.count), "ids": f'"device={",".join(gpus.ids)}"'}[gpus.kind]
    return ["--gpus", wanted]


def count_listed(text: str) -> int:
    """Return the number of GPUs in the output of `nvidia-smi -L`."""
    return sum(line.startswith("GPU ") for line in text.splitlines())


def try_gpus(engine: Engine, image: str, gpus: Gpus) -> int:
    """Run a short container with the reservation; return how many GPUs it lists, 0 where it has no nvidia-smi.

    Raises HostError where the engine refuses the reservation.
    """
    script = "command -v nvidia-smi >/dev/null || exit 0; nvidia-smi -L"
    words = [
        "run",
        "--rm",
        "--pull",
        "never",
        "--network",
        "none",
        *gpu_words(gpus),
        "--entrypoint",
        "sh",
        image,
        "-c",
        script,
    ]
    return count_listed(engine.call(*words, doing="trying its GPUs", deadline=TRY_SECONDS))
