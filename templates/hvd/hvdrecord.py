"""The record of a run: what the ranks left on their hosts, brought together; and the records of older runs.

In a record `code` is the exit code and `code_digest` the digest of the user's code.
Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import hvdlib

RUNS = "/hvd/runs"
RANK = "/hvd/rank"
COLLECT_SECONDS = 10


class Record:
    """The record of this run under RUNS, `records/<run>.json`, and the folder of its logs."""

    def __init__(self, told: dict[str, Any], runs: str = RUNS) -> None:
        self.told, self.run, self._runs = told, str(told["run"]), runs
        self.folder = f"{runs}/{self.run}"
        self.path = f"{runs}/records/{self.run}.json"
        os.makedirs(f"{runs}/records", exist_ok=True)
        os.makedirs(self.folder, exist_ok=True)
        for path in glob.glob(f"{self.folder}/rank-*.json"):
            os.unlink(path)  # of a container that is started once more
        write_json(self.path, told)

    def launched(self) -> None:
        """Note that horovodrun is started now, and which launch of the cluster's own that is."""
        write_json(self.path, self.told)
        if self.told["launch"]:
            os.makedirs(f"{self._runs}/launched", exist_ok=True)
            write_json(f"{self._runs}/launched/{self.told['launch']}", {"run": self.run})

    def finish(self, code: int, metrics: dict[str, Any] | None) -> None:
        """Write how it ended."""
        self.told.update({"end": time.time(), "code": code, "metrics": metrics})
        write_json(self.path, self.told)


def new_record(settings: dict[str, Any], words: list[str], runs: str = RUNS) -> Record:
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


def no_rank(code: int, told: str) -> dict[str, Any]:
    """Return the cause of a failure that is no rank's."""
    return {"rank": None, "host": None, "code": code, "oom": False, "told": told, "lines": []}


def write_json(path: str, value: object) -> None:
    """Write JSON whole or not at all."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.write("\n")
    os.replace(f"{path}.part", path)


def read_records(texts: Iterable[str]) -> dict[int, dict[str, Any]]:
    """Return {rank: record} from texts of one JSON record a line."""
    records = {}
    for text in texts:
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("rank") is not None:
                records[entry["rank"]] = entry
    return records


def fetch_records(settings: dict[str, Any], folder: str) -> list[str]:
    """Return the texts of the records on every host of the run; a host that does not answer gives none."""
    texts = []
    for path in glob.glob(f"{folder}/rank-*.json"):
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    remote = [
        subprocess.Popen(
            hvdlib.ssh(settings["port"], host["address"], f"cat {folder}/rank-*.json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        for host in settings["hosts"]
        if host["host"] != settings["host"]
    ]
    for process in remote:
        try:
            texts.append(process.communicate(timeout=COLLECT_SECONDS)[0])
        except subprocess.TimeoutExpired:
            process.kill()
    return texts


def collect(settings: dict[str, Any], folder: str, seconds: float) -> list[dict[str, Any]]:
    """Wait a little until every rank's end is recorded (their wrappers notice the launcher's end within a second)."""
    limit = time.monotonic() + seconds
    while True:
        records = read_records(fetch_records(settings, folder))
        if len(records) >= settings["np"] or time.monotonic() > limit:
            return [records[rank] for rank in sorted(records)]
        time.sleep(0.5)


def told_code(code: int) -> str:
    """Return how a rank ended, in words: its exit code, or the signal that killed it."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def clock(seconds: float) -> str:
    """Return seconds as bash's `time` prints them: 1m34.400s."""
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    return f"{minutes}m{milliseconds / 1000:.3f}s"


def rank_hosts(settings: dict[str, Any]) -> list[str]:
    """Return the host of each rank, in order of the ranks: hosts are filled one after the other."""
    return [host["host"] for host in settings["hosts"] for _ in range(host["slots"])][: settings["np"]]


def report(settings: dict[str, Any], result: dict[str, Any]) -> None:
    """Say how the run ended: per rank where one failed, then the times as `time` prints them."""
    ranks, hosts = {entry["rank"]: entry for entry in result["ranks"]}, rank_hosts(settings)
    if len(ranks) == settings["np"] and all(entry["code"] == 0 for entry in ranks.values()):
        hvdlib.say(f"all {settings['np']} ranks ended with exit 0")
    else:
        for rank, name in enumerate(hosts):
            entry = ranks.get(rank)
            how = "no record of its end" if entry is None else told_code(entry["code"])
            if entry is not None and entry["ended"] != "itself":
                how += f" ({entry['ended']})"
            hvdlib.say(f"rank {rank} on {name}: {how}")
    hvdlib.say(f"run {result['run']} ended with exit {result['code']}")
    for name in ("real", "user", "sys"):
        print(f"{name}\t{clock(result[name])}", file=sys.stderr, flush=True)
