#!/usr/bin/env python3
"""/hvd/prepare SPEC: run the user's `train.prepare` on this host, in a rank's environment, unless it succeeded before.

SPEC is JSON: `command`, `folder` to run it in, `run`, `output` (HVD_OUTPUT or ""), `image` and `code` (digests).
A success counts for the same command, image, code, variables and mounts, while the mounts it left filled are filled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import hvdlib
import hvdproc

PREPARED = f"{hvdlib.RUNS}/prepared"
ENDED = 143  # 128 + SIGTERM, as a shell tells it


def digest_of(spec: Mapping[str, Any], env: Mapping[str, str], mounts: Mapping[str, str]) -> str:
    """Return what identifies the work: 16 hex digits."""
    # HVD_ variables name the run, and HOSTNAME may be the container's
    variables = {name: value for name, value in env.items() if not name.startswith("HVD_") and name != "HOSTNAME"}
    decisive = [spec["command"], spec["folder"], spec["image"], spec["code"], variables, dict(mounts)]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def filled(mounts: Mapping[str, str]) -> list[str]:
    """Return the mounts that hold something."""
    return sorted(path for path in mounts if not os.path.isdir(path) or os.listdir(path))


def succeeded(path: str, mounts: Mapping[str, str]) -> bool:
    """Tell whether the work of this digest was done here, and nobody emptied a mount since."""
    try:
        with open(path, encoding="utf-8") as file:
            return set(json.load(file)["filled"]) <= set(filled(mounts))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def work(host: Mapping[str, Any], spec: Mapping[str, Any], env: dict[str, str]) -> int:
    """Run the command to its end; return its exit code, 128 + N for signal N."""
    asked, chain = hvdproc.note_signals(), hvdproc.ancestors()
    mark = env[hvdproc.MARK] = hvdproc.new_mark()
    folder = spec["folder"] if os.path.isdir(spec["folder"]) else None
    try:
        child = hvdproc.start(spec["command"], env, cwd=folder)
    except OSError as error:
        hvdlib.say(f"{host['host']}: cannot run {spec['command'][0]!r}: {error.strerror}")
        return 127
    ended = hvdproc.supervise(child, chain, asked, patience=0)
    hvdproc.end_left_behind(mark)
    if ended != "itself":
        return ENDED
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def run(spec: Mapping[str, Any], folder: str = PREPARED) -> int:
    """Do the work unless it is done; return an exit code."""
    host = hvdlib.settings()
    passed = {"HVD_RUN": spec["run"], **({"HVD_OUTPUT": spec["output"]} if spec["output"] else {})}
    env = hvdproc.rank_environment(host, hvdproc.container_environment(), passed)
    hvdproc.make_output(host, env)
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/{digest_of(spec, env, host['mounts'])}.json"
    with open(f"{folder}/lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one that another launcher left may still be ending
        if succeeded(path, host["mounts"]):
            hvdlib.say(hvdlib.PREPARED_BEFORE)
            return 0
        begin = time.time()
        code = work(host, spec, env)
        if code == 0:
            done = {"run": spec["run"], "begin": begin, "end": time.time(), "filled": filled(host["mounts"])}
            hvdlib.write_json(path, done)
        return code


if __name__ == "__main__":
    try:
        sys.exit(run(json.loads(sys.argv[1])))
    except hvdlib.Fault as fault:
        hvdlib.say(str(fault))
        sys.exit(1)
