"""What every trainer here needs to run as one of several processes: start, speak, end, share out, keep.

Comments that begin with `Horovod:` mark what distribution adds to a training for one process.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import horovod.torch as hvd
import torch
from torch import Tensor

from trainer.data import DataError


def start() -> None:
    """Meet the other processes; without a launcher this process is the only one."""
    if "HOROVOD_RANK" not in os.environ and "OMPI_COMM_WORLD_RANK" not in os.environ:
        # Without a launcher a build with MPI would go looking for one.
        os.environ.setdefault("HOROVOD_CONTROLLER", "gloo")
        os.environ.setdefault("HOROVOD_CPU_OPERATIONS", "gloo")
    # Horovod: meet the other processes.
    hvd.init()


def say(line: str) -> None:
    """Print a line, from one of the processes only and at once: the launcher passes lines on as they come."""
    if hvd.rank() == 0:
        print(line, flush=True)


def end_together(problem: str | None) -> None:
    """Go on if no process has a problem; otherwise end all of them with one message and exit code 1.

    A process that ended by itself would leave the others waiting in their next collective.
    """
    # Horovod: every process learns of every problem. Unnamed, objects are matched by the names of their types, and
    # a process with a text would wait for ever for those with None.
    problems: list[str | None] = hvd.allgather_object(problem, name="problems")
    if not any(problems):
        return
    if hvd.rank() == 0:
        first = next(text for text in problems if text)
        own = [rank for rank, text in enumerate(problems) if text]
        whose = "" if len(own) == len(problems) else f"rank {', '.join(map(str, own))}: "
        print(f"error: {whose}{first}", file=sys.stderr, flush=True)
    # The launcher ends everybody when the first one ends, so nobody leaves before the message is out.
    hvd.barrier()
    hvd.shutdown()
    sys.exit(1)


def keep_memory() -> None:
    """Keep freed memory in the process instead of giving it back after every step.

    Otherwise each step's larger tensors are mapped anew from the kernel, which clears every page: a fifth of the
    CPU time of a training.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3  # from malloc.h
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_threshold, 32 << 20)
        libc.mallopt(m_trim_threshold, 512 << 20)
    except (OSError, AttributeError):
        pass  # a C library without mallopt trains as well, only slower


def choose_device(cuda: bool, seed: int) -> torch.device:
    """Choose this process's device and how many threads it computes with; a GPU only where `cuda` allows it.

    Raises DataError where the host runs more processes than it has GPUs.
    """
    if cuda and torch.cuda.is_available():
        # Horovod: one GPU per process, by the process's number on its host.
        index, gpus = hvd.local_rank(), torch.cuda.device_count()
        if index >= gpus:
            raise DataError(f"{socket.gethostname()} runs {hvd.local_size()} processes but has {gpus} GPUs")
        torch.cuda.set_device(index)
        torch.cuda.manual_seed(seed)
        return torch.device("cuda", index)
    if "OMP_NUM_THREADS" not in os.environ:
        # Several processes share a host's cores, and one that waits for others gains nothing from more threads.
        torch.set_num_threads(1)
    keep_memory()
    return torch.device("cpu")


def shard(count: int, epoch: int, seed: int, rank: int, size: int) -> Tensor:
    """Return the indices one process trains on in one epoch.

    All processes draw the same order and take every size-th index, so that the shares are disjoint. It wraps
    around at its end to give everybody as many steps, without which the collectives would not match.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch))
    padded = -(-count // size) * size
    return order[torch.arange(rank, padded, size) % count]


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file in one step, so that a crash leaves the old one or the new one.

    Raises OSError, or what `write` raises: torch.save reports a full disk as RuntimeError.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        write(file)
        file.flush()
        # Without it a power cut may leave the new name on an empty file.
        os.fsync(file.fileno())
    temporary.replace(path)
