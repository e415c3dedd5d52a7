"""The virtual hosts that the benchmarks run on, and the small image whose containers do nothing but stay up."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HVDCOMPOSE = str(Path(sys.executable).with_name("hvdcompose"))
STUB = "hvd-bench:stub"
# the loop needs containers that stay up, not a training: horovodrun here is a program that waits
DOCKERFILE = r"""FROM debian:bookworm-slim
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    python3-minimal libpython3-stdlib openssh-server openssh-client && rm -rf /var/lib/apt/lists/*
RUN printf '#!/bin/sh\nexec sleep infinity\n' > /usr/local/bin/horovodrun && chmod 755 /usr/local/bin/horovodrun
"""


class Lab:
    """A lab of its own name, network (`subnet`: its first three numbers) and user's folders, removed at the end."""

    def __init__(self, name: str, hosts: int, subnet: str, *, ssh: bool = False) -> None:
        self.name, self.hosts, self.subnet, self.ssh = name, hosts, subnet, ssh
        self.folder = Path(tempfile.mkdtemp(prefix="hvd-"))
        plugins = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
        (self.folder / "docker").mkdir()
        if plugins.is_dir():
            (self.folder / "docker" / "cli-plugins").symlink_to(plugins)
        dropped = ("DOCKER_HOST", "DOCKER_CONTEXT", "PYTHONDONTWRITEBYTECODE")  # a user's Python keeps its byte code
        self.env = {name: value for name, value in os.environ.items() if name not in dropped}
        self.env |= {"XDG_STATE_HOME": str(self.folder / "state"), "DOCKER_CONFIG": str(self.folder / "docker")}
        self.env["HVDCOMPOSE_LAB"] = self.name

    def __enter__(self) -> Lab:
        words = [HVDCOMPOSE, "lab", "up", "--hosts", str(self.hosts), "--gpus", "0", "--subnet", f"{self.subnet}.0/24"]
        subprocess.run([*words, *(["--ssh"] if self.ssh else [])], env=self.env, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([HVDCOMPOSE, "lab", "down"], env=self.env, check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, *words: str) -> list[str]:
        """Return a command to run where the contexts work: over ssh that is inside `lab shell`."""
        return [HVDCOMPOSE, "lab", "shell", "--", *words] if self.ssh else list(words)


def build_stub() -> None:
    """Build the small image on this machine's engine, where it is missing."""
    present = subprocess.run(["docker", "--context", "default", "image", "inspect", STUB], capture_output=True)
    if present.returncode:
        words = ["docker", "--context", "default", "build", "--network", "host", "-t", STUB, "-"]
        subprocess.run(words, input=DOCKERFILE.encode(), check=True, env={**os.environ, "DOCKER_BUILDKIT": "0"})


def alternate(
    first: Callable[[], float], second: Callable[[], float], repeats: int, between: Callable[[], None]
) -> dict[str, Any]:
    """Time two ways in turns, `between` before each; return seconds, medians and the ratio first / second."""
    seconds: dict[str, list[float]] = {"apply": [], "loop": []}
    for _ in range(repeats):
        for name, way in (("apply", first), ("loop", second)):
            between()
            seconds[name].append(way())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"seconds": seconds, "medians": medians, "ratio": medians["apply"] / medians["loop"]}
