"""One command of this user at a time changes a cluster."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from hvdcompose.config.model import Cluster
from hvdcompose.errors import HvdError, Refused
from hvdcompose.hosts.keys import state_folder


@contextlib.contextmanager
def working_on(cluster: Cluster) -> Iterator[None]:
    """Hold the cluster's lock on this machine. Raises Refused, with the pid, while another command holds it.

    The kernel lets go of it when the process ends, however it ends: there is no stale lock.
    """
    folder = state_folder(cluster)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise HvdError(f"cannot write under {folder}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(descriptor, 20).decode(errors="replace").strip()
            raise Refused(
                f"another hvdcompose (pid {pid or 'unknown'}) is at work on cluster {cluster.name}",
                hint="wait for its end",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
