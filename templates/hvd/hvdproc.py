"""A process for the user, a rank or what prepares a host: its environment, and its end with all that it started.

Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any

import hvdlib

RUNTIME_PREFIXES = ("HOROVOD_", "HVD_", "OMPI_", "OPAL_", "ORTE_", "PMI_", "PMIX_", "PRTE_")
POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0
GONE_SECONDS = 3.0  # a launcher that is gone was noticed late: 15 s after its end no rank is left
LEFT_SECONDS = 2.0  # the others of a run that failed wait as long
MARK = "HVD_RANK_OF"  # in the environment of a process and of all it starts: the wrapper's pid and its start
PR_SET_PDEATHSIG = 1  # linux/prctl.h
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")  # cgroup v2, v1


def container_environment() -> dict[str, str]:
    """Return the environment this container was started with: the image's ENV and the host's `env`."""
    try:
        with open("/proc/1/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


def rank_environment(host: dict[str, Any], own: Mapping[str, str], passed: Mapping[str, str]) -> dict[str, str]:
    """Return the rank's environment: `own` (container), what the runtime passed, and the interface by name.

    What cluster.yaml sets for this very host wins over all of it.
    """
    env = dict(own)
    env.update({name: value for name, value in passed.items() if name.startswith(RUNTIME_PREFIXES)})
    interface = hvdlib.interface_of(host)
    env["HOROVOD_GLOO_IFACE"] = interface
    env["OMPI_MCA_btl_tcp_if_include"] = interface
    env.setdefault("GLOO_SOCKET_IFNAME", interface)
    env.setdefault("NCCL_SOCKET_IFNAME", "=" + interface)
    env.setdefault("NCCL_SOCKET_FAMILY", "AF_INET")
    env.update({name: own[name] for name in host["own_env"] if name in own})
    return env


def started_at(pid: int) -> str | None:
    """Return when a process started, in clock ticks, or None when it is gone (a zombie is gone)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def parent_of(pid: int) -> int:
    """Return the parent's pid, 0 when it is unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ancestors() -> list[tuple[int, str | None]]:
    """Return [(pid, start)] of the processes between this one and the container's init: the way to the launcher."""
    chain, pid = [], os.getppid()
    while pid > 1:
        chain.append((pid, started_at(pid)))
        pid = parent_of(pid)
    return chain


def launcher_gone(chain: list[tuple[int, str | None]]) -> bool:
    """Tell whether a process on the way to the launcher has ended."""
    return any(started_at(pid) != start for pid, start in chain)


def die_with_parent() -> None:
    """Let the kernel kill the rank should this wrapper be killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(child: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """End the rank and all it started: SIGTERM, then SIGKILL."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def new_mark() -> str:
    """Return what marks the processes that this wrapper starts."""
    return f"{os.getpid()}-{time.time():.6f}"


def left_behind(mark: str) -> list[int]:
    """Return the pids of what a rank started and did not take along, in whatever process group."""
    entry, found = f"{MARK}={mark}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = entry in file.read().split(b"\0")
        except OSError:
            continue
        if marked and started_at(int(name)) is not None:
            found.append(int(name))
    return found


def end_left_behind(mark: str) -> None:
    """End what a rank left behind, for it would hold GPUs and ports: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left_behind(mark):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        limit = time.monotonic() + LEFT_SECONDS
        while left_behind(mark):
            if time.monotonic() > limit:
                break
            time.sleep(0.1)
        else:
            return


def note_signals() -> list[bool]:
    """Return a list that is no longer empty once this wrapper is asked to end."""
    asked: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: asked.append(True))
    return asked


def supervise(
    child: subprocess.Popen[bytes], chain: list[tuple[int, str | None]], asked: list[bool], patience: float
) -> str:
    """Wait for the process; return who ended it: "itself", "signal" (to this wrapper) or "launcher gone".

    patience: seconds for it to end by itself, once it should. A rank that failed first may still be on its way out,
    Horovod's shutdown and Python's, when the others have noticed: its own exit code is the one that tells.
    """
    while True:
        try:
            child.wait(POLL_SECONDS)
            return "itself"
        except subprocess.TimeoutExpired:
            pass
        if asked or launcher_gone(chain):
            who = "signal" if asked else "launcher gone"
            try:
                child.wait(patience)
                return "itself"
            except subprocess.TimeoutExpired:
                end(child, GRACE_SECONDS if asked else max(1.0, GONE_SECONDS - patience))
                return who


def start(words: list[str], env: Mapping[str, str], **pipes: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, to be ended by `supervise`. Raises OSError."""
    return subprocess.Popen(words, env=dict(env), start_new_session=True, preexec_fn=die_with_parent, **pipes)


def make_output(host: dict[str, Any], env: Mapping[str, str]) -> None:
    """Make the folder for results, HVD_OUTPUT. Raises Fault."""
    folder = env.get("HVD_OUTPUT")
    if folder:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise hvdlib.Fault(f"{host['host']}: cannot make {folder}, for train.output: {error.strerror}") from None


def oom_kills(paths: tuple[str, ...] = OOM_COUNTERS) -> int:
    """Return how many processes of this container the kernel killed for want of memory; 0 where it does not tell."""
    for path in paths:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                counted = dict(line.split(None, 1) for line in file if " " in line)
            return int(counted["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return 0
