"""Bring together, when a run has ended, what its ranks and workers left on their hosts.

Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import glob
import json
import subprocess
import threading
import time
from collections.abc import Iterable
from typing import Any, Dict, List, NamedTuple

import hvdlib

COLLECT_SECONDS = 10.0
POLL_SECONDS = 0.5
SSH_FAILED = 255  # ssh(1)'s own exit code
SKEW_SECONDS = 1.0  # a difference below is that of the measurement


class Answer(NamedTuple):
    """What a host printed, and by how much its clock seems ahead of ours, where the first line is its time."""

    out: bytes
    skew: float


class Gathered(NamedTuple):
    """The records of the ranks, the hosts that did not answer, and the seconds by which clocks are ahead of ours."""

    ranks: List[Dict[str, Any]]
    silent: List[str]
    skew: Dict[str, float]


def workers_of(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the hosts of the run that are not this one."""
    return [host for host in settings["hosts"] if host["host"] != settings["host"]]


def ask(port: int, host: dict[str, Any], command: str, seconds: float) -> Answer | None:
    """Run a shell command on a worker; None where the host does not answer in time."""
    sent = time.time()
    try:
        done = subprocess.run(
            hvdlib.ssh(port, host["address"], command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == SSH_FAILED:
        return None
    first, half = done.stdout.partition(b"\n")[0], (time.time() - sent) / 2
    try:
        return Answer(done.stdout, float(first) - sent - half)
    except ValueError:
        return Answer(done.stdout, 0.0)


def ask_all(port: int, hosts: Iterable[dict[str, Any]], command: str, seconds: float) -> dict[str, Answer | None]:
    """Ask all hosts at once."""
    answers: dict[str, Answer | None] = {}

    def one(host: dict[str, Any]) -> None:
        answers[host["host"]] = ask(port, host, command, seconds)

    threads = [threading.Thread(target=one, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


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


def gather(settings: dict[str, Any], folder: str, seconds: float) -> Gathered:
    """Wait a little until every rank's end is recorded (their wrappers notice the launcher's end within a second)."""
    limit = time.monotonic() + seconds
    while True:
        texts = []
        for path in glob.glob(f"{glob.escape(folder)}/rank-*.json"):
            with open(path, encoding="utf-8") as file:
                texts.append(file.read())
        asked = ask_all(
            settings["port"], workers_of(settings), f"date +%s.%N; cat {folder}/rank-*.json", max(seconds, 1.0)
        )
        answers = {name: answer for name, answer in asked.items() if answer is not None}
        records = read_records([*texts, *(answer.out.decode("utf-8", "replace") for answer in answers.values())])
        if len(records) >= settings["np"] or time.monotonic() > limit:
            skew = {name: answer.skew for name, answer in answers.items() if abs(answer.skew) > SKEW_SECONDS}
            return Gathered([records[rank] for rank in sorted(records)], [n for n in asked if n not in answers], skew)
        time.sleep(POLL_SECONDS)


def fetch_worker_logs(
    settings: dict[str, Any], folder: str, since: float, silent: Iterable[str], seconds: float
) -> None:
    """Write `worker-<host>.log` for each worker that answers: its lines of the last `since` seconds by its clock."""
    hosts = [host for host in workers_of(settings) if host["host"] not in silent]
    answers = ask_all(settings["port"], hosts, f"/hvd/worker log {since:.1f} {settings['keep']}", seconds)
    for name, answer in answers.items():
        if answer is not None and answer.out:
            with open(f"{folder}/worker-{name}.log", "wb") as file:
                file.write(answer.out)
