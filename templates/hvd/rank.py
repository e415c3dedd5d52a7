#!/usr/bin/env python3
"""/hvd/rank COMMAND...: one rank. Sets what differs per host, runs COMMAND, records how it ended.

Horovod hands every rank the launcher's environment over ssh, and an ssh session has none of the image's own. So the
environment is put together anew: this container's, plus what the runtime passes. The rank is ended when the processes
that started it are gone: with Gloo, Horovod leaves such ranks running.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import hvdlib
import hvdproc

PATIENCE, MPI_PATIENCE = 2.0, 0.3  # mpirun kills this wrapper a second after it asked it to end
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the second is how a shell tells it of the program it ran


def record(host: dict[str, Any], entry: dict[str, Any]) -> None:
    """Write how the rank ended where the launcher collects it, whole or not at all."""
    run, rank = os.environ.get("HVD_RUN", "by-hand"), entry["rank"]
    if rank is None:
        return  # started by hand: no launcher asks for it
    folder = f"{hvdlib.RUNS}/{run}"
    os.makedirs(folder, exist_ok=True)
    hvdlib.write_json(f"{folder}/rank-{rank}.json", {"host": host["host"], **entry})


def rank_number(env: Mapping[str, str]) -> int | None:
    """Return this process's rank as the runtime says it, or None outside of one."""
    number = env.get("HOROVOD_RANK", env.get("OMPI_COMM_WORLD_RANK"))
    return None if number is None else int(number)


def run(words: list[str]) -> int:
    """Run one rank; return its exit code, 128 + N for signal N as a shell would."""
    host, begin = hvdlib.settings(), time.time()
    env = hvdproc.rank_environment(host, hvdproc.container_environment(), os.environ)
    mark = env[hvdproc.MARK] = hvdproc.new_mark()
    hvdproc.make_output(host, env)
    entry: dict[str, Any] = {"rank": rank_number(env), "begin": begin, "command": words, "oom": False}
    # before there is a rank: it must not be left behind
    asked, chain, killed = hvdproc.note_signals(), hvdproc.ancestors(), hvdproc.oom_kills()
    try:
        child = hvdproc.start(words, env)
    except OSError as error:
        hvdlib.say(f"{host['host']}: cannot run {words[0]!r}: {error.strerror}")
        record(host, {**entry, "code": 127, "ended": "itself", "end": time.time(), "user": 0.0, "sys": 0.0})
        return 127
    ended = hvdproc.supervise(child, chain, asked, MPI_PATIENCE if "OMPI_COMM_WORLD_RANK" in env else PATIENCE)
    end, used = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    entry.update({"code": child.returncode, "ended": ended, "end": end, "user": used.ru_utime, "sys": used.ru_stime})
    if ended == "itself" and child.returncode in KILLED:
        entry["oom"] = hvdproc.oom_kills() > killed
    record(host, entry)
    hvdproc.end_left_behind(mark)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except hvdlib.Fault as fault:
        hvdlib.say(str(fault))
        sys.exit(1)
