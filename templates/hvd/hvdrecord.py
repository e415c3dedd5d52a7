"""The record of a run, how it is told, and the records of older runs.

In a record `code` is the exit code and `code_digest` the digest of the user's code.
Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
import time
from typing import Any

import hvdcause
import hvdlib
import hvdlog

RANK = "/hvd/rank"


class Record:
    """The record of this run under /hvd/runs, `records/<run>.json`, and the folder of its logs."""

    def __init__(self, told: dict[str, Any], runs: str = hvdlib.RUNS) -> None:
        self.told, self.run, self._runs = told, str(told["run"]), runs
        self.folder = f"{runs}/{self.run}"
        self.path = f"{runs}/records/{self.run}.json"
        os.makedirs(f"{runs}/records", exist_ok=True)
        os.makedirs(self.folder, exist_ok=True)
        for path in glob.glob(f"{self.folder}/rank-*.json"):
            os.unlink(path)  # of a container that is started once more
        hvdlib.write_json(self.path, told)

    def launched(self) -> None:
        """Note that horovodrun is started now, and which launch of the cluster's own that is."""
        hvdlib.write_json(self.path, self.told)
        if self.told["launch"]:
            os.makedirs(f"{self._runs}/launched", exist_ok=True)
            hvdlib.write_json(f"{self._runs}/launched/{self.told['launch']}", {"run": self.run})

    def finish(self, code: int, metrics: dict[str, Any] | None) -> None:
        """Write how it ended."""
        self.told.update({"end": time.time(), "code": code, "metrics": metrics})
        hvdlib.write_json(self.path, self.told)


def new_record(settings: dict[str, Any], words: list[str], runs: str = hvdlib.RUNS) -> Record:
    """Begin the record of a run of `words`, horovodrun's; the oldest runs beyond `keep` are removed."""
    run = os.environ.get("HVD_RUN") or time.strftime("by-hand-%Y%m%d-%H%M%S", time.gmtime())
    prune(runs, settings["keep"] - 1, run)
    return Record(
        {
            "version": 1,
            "run": run,
            "launch": os.environ.get("HVD_LAUNCH", ""),
            "command": words,
            "train_command": words[words.index(RANK) + 1 :] if RANK in words else [],
            "np": settings["np"],
            "hosts": rank_hosts(settings),
            "image": os.environ.get("HVD_IMAGE", ""),
            "code_digest": os.environ.get("HVD_CODE", ""),
            "begin": time.time(),
            "end": None,
            "code": None,
            "real": None,
            "user": None,
            "sys": None,
            "ranks": [],
            "metrics": None,
            "cause": None,
            "prepare": {},
        },
        runs,
    )


def prune(runs: str, keep: int, run: str) -> None:
    """Remove the records and logs of all but the newest `keep` runs, `run` not counted."""
    aged = []
    for path in glob.glob(f"{glob.escape(runs)}/records/*.json"):
        name = os.path.basename(path)[: -len(".json")]
        if name != run:
            aged.append((begin_of(path), name))
    for _, name in sorted(aged, reverse=True)[keep:]:
        shutil.rmtree(f"{runs}/{name}", ignore_errors=True)
        os.unlink(f"{runs}/records/{name}.json")


def begin_of(path: str) -> float:
    """Return when a record's run began, in seconds since the epoch; 0 for a file that is no record."""
    try:
        with open(path, encoding="utf-8") as file:
            return float(json.load(file)["begin"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def clock(seconds: float) -> str:
    """Return seconds as bash's `time` prints them: 1m34.400s."""
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    return f"{minutes}m{milliseconds / 1000:.3f}s"


def rank_hosts(settings: dict[str, Any]) -> list[str]:
    """Return the host of each rank, in order of the ranks: hosts are filled one after the other."""
    return [host["host"] for host in settings["hosts"] for _ in range(host["slots"])][: settings["np"]]


def report(told: dict[str, Any], tails: hvdlog.Tails) -> None:
    """Say how the run of a record ended: its first cause, then the times as `time` prints them."""
    for line in hvdcause.summary(told["cause"], told["hosts"], told["ranks"], tails):
        hvdlib.say(line)
    hvdlib.say(f"run {told['run']} ended with exit {told['code']}")
    for name in ("real", "user", "sys"):
        print(f"{name}\t{clock(told[name])}", file=sys.stderr, flush=True)
