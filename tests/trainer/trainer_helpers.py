"""Helpers of the trainer's tests: tiny data sets, and commands in containers of the trainer's image."""

from __future__ import annotations

import gzip
import struct
import subprocess
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "hvd-trainer:cpu"


def write_idx(folder: Path, train: int = 12, test: int = 6, packed: bool = False) -> Path:
    """Write a tiny data set: image i has all pixels i, and label i modulo 10."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("t10k", test)):
        pixels = b"".join(bytes([index % 256]) * 784 for index in range(count))
        labels = bytes(index % 10 for index in range(count))
        files = {
            f"{split}-images-idx3-ubyte": struct.pack(">IIII", 2051, count, 28, 28) + pixels,
            f"{split}-labels-idx1-ubyte": struct.pack(">II", 2049, count) + labels,
        }
        for name, data in files.items():
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
            else:
                (folder / name).write_bytes(data)
    return folder


class Container:
    """Runs commands in fresh containers of the trainer's image, with this checkout's code mounted."""

    def __init__(self, image: str) -> None:
        self.image = image

    def run(
        self, *words: str, timeout: float = 150, volumes: tuple[str, ...] = (), code: bool = True
    ) -> subprocess.CompletedProcess[str]:
        name = f"hvd-trainer-test-{uuid.uuid4().hex[:12]}"
        command = ["docker", "run", "--rm", "--init", "--name", name, "--tmpfs", "/data"]
        # Open MPI as root, on fewer cores than ranks, in a container without ptrace.
        for variable in (
            "OMPI_ALLOW_RUN_AS_ROOT=1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            "OMPI_MCA_mpi_yield_when_idle=1",
            "OMPI_MCA_btl_vader_single_copy_mechanism=none",
        ):
            command += ["--env", variable]
        for volume in volumes:
            command += ["--volume", volume]
        if code:
            command += ["--volume", f"{ROOT / 'trainer'}:/hvd/code/trainer:ro", "--workdir", "/hvd/code"]
        try:
            return subprocess.run([*command, self.image, *words], capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            subprocess.run(["docker", "rm", "--force", name], capture_output=True)
            pytest.fail(f"still running after {timeout} s: {' '.join(words)}")

    def horovodrun(
        self, controller: str, *words: str, timeout: float = 150, volumes: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        launch = ["horovodrun", "-np", "2", "-H", "localhost:2", f"--{controller}", "python", "-m"]
        return self.run(*launch, *words, timeout=timeout, volumes=volumes)
