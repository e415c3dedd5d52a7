#!/usr/bin/env python3
"""/hvd/rank COMMAND...: one rank. Sets what differs per host, runs COMMAND, records how it ended.

Horovod hands every rank the launcher's environment over ssh, and an ssh session has none of the image's own. So the
environment is put together anew: this container's, plus what the runtime passes. The rank is ended when the processes
that started it are gone: with Gloo, Horovod leaves such ranks running.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import hvdlib

RUNTIME_PREFIXES = ("HOROVOD_", "HVD_", "OMPI_", "OPAL_", "ORTE_", "PMI_", "PMIX_", "PRTE_")
RUNS = "/hvd/runs"
POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0
GONE_GRACE_SECONDS = 3.0  # a launcher that is gone was noticed late: 15 s after its end no rank is left
LEFT_SECONDS = 2.0  # the others of a run that failed wait as long
MARK = "HVD_RANK_OF"  # in the environment of a rank and of all it starts: the wrapper's pid and its start
PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def supervise(child: subprocess.Popen[bytes], chain: list[tuple[int, str | None]], asked: list[bool]) -> str:
    """Wait for the rank; return who ended it: "itself", "signal" (to this wrapper) or "launcher gone"."""
    while True:
        try:
            child.wait(POLL_SECONDS)
            return "itself"
        except subprocess.TimeoutExpired:
            pass
        if asked or launcher_gone(chain):
            end(child, GRACE_SECONDS if asked else GONE_GRACE_SECONDS)
            return "signal" if asked else "launcher gone"


def record(host: dict[str, Any], entry: dict[str, Any]) -> None:
    """Write how the rank ended where the launcher collects it, whole or not at all."""
    run, rank = os.environ.get("HVD_RUN", "by-hand"), entry["rank"]
    if rank is None:
        return  # started by hand: no launcher asks for it
    folder = f"{RUNS}/{run}"
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/rank-{rank}.json"
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(json.dumps({"host": host["host"], **entry}) + "\n")
    os.replace(f"{path}.part", path)


def rank_number(env: Mapping[str, str]) -> int | None:
    """Return this process's rank as the runtime says it, or None outside of one."""
    number = env.get("HOROVOD_RANK", env.get("OMPI_COMM_WORLD_RANK"))
    return None if number is None else int(number)


def make_output(host: dict[str, Any], env: Mapping[str, str]) -> None:
    """Make the folder the rank writes its results to. Raises Fault."""
    folder = env.get("HVD_OUTPUT")
    if folder:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise hvdlib.Fault(f"{host['host']}: cannot make {folder}, for train.output: {error.strerror}") from None


def run(words: list[str]) -> int:
    """Run one rank; return its exit code, 128 + N for signal N as a shell would."""
    host, begin = hvdlib.settings(), time.time()
    env = rank_environment(host, container_environment(), os.environ)
    mark = env[MARK] = f"{os.getpid()}-{begin:.6f}"
    make_output(host, env)
    entry = {"rank": rank_number(env), "begin": begin, "command": words}
    asked, chain = note_signals(), ancestors()  # before there is a rank: it must not be left behind
    try:
        child = subprocess.Popen(words, env=env, start_new_session=True, preexec_fn=die_with_parent)
    except OSError as error:
        hvdlib.say(f"{host['host']}: cannot run {words[0]!r}: {error.strerror}")
        record(host, {**entry, "code": 127, "ended": "itself", "end": time.time(), "user": 0.0, "sys": 0.0})
        return 127
    ended = supervise(child, chain, asked)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = {"end": time.time(), "user": used.ru_utime, "sys": used.ru_stime}
    record(host, {**entry, "code": child.returncode, "ended": ended, **times})
    end_left_behind(mark)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except hvdlib.Fault as fault:
        hvdlib.say(str(fault))
        sys.exit(1)
