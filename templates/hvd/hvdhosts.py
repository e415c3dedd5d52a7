"""The launcher's side of `train.prepare`: /hvd/prepare on every host of the run at once, told line by line.

Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import collections
import json
import os
import shlex
import subprocess
import threading
import time
from typing import Any

import hvdcause
import hvdlib
import hvdlog

PREPARE = "/hvd/prepare"
SHOWN_LINES = 10
END_SECONDS = 8.0
SKIPPED = f"hvdcompose: {hvdlib.PREPARED_BEFORE}".encode()


class PrepareFault(hvdlib.Fault):
    """What prepares the hosts failed on some of them; `cause` is for the record of the run."""

    def __init__(self, message: str, cause: dict[str, Any]) -> None:
        super().__init__(message)
        self.cause = cause


class Job:
    """The preparation of one host."""

    def __init__(self, host: str, words: list[str], path: str) -> None:
        self.host, self.code, self.seconds, self.skipped = host, -1, 0.0, False
        self.lines: collections.deque[str] = collections.deque(maxlen=SHOWN_LINES)
        self._log, self._begin = hvdlog.LogFile(path), time.monotonic()
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def told(self) -> dict[str, Any]:
        """Return what the record of the run says of it."""
        return {"code": self.code, "seconds": round(self.seconds, 3), "skipped": self.skipped}

    def _follow(self) -> None:
        assert self.process.stdout is not None
        cutter = hvdlog.Cutter()
        while True:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            self._take(cutter.feed(data) if data else cutter.rest())
            if not data:
                break
        self.code = self.process.wait()
        self.seconds = time.monotonic() - self._begin
        self._log.close()

    def _take(self, lines: list[bytes]) -> None:
        self._log.write(lines)
        for line in lines:
            if line == SKIPPED:
                self.skipped = True
                continue
            self.lines.append(line.decode("utf-8", "replace").rstrip("\r"))
            hvdlog.pass_on(1, f"prepare {self.host} | ".encode() + line + b"\n")


def prepare(settings: dict[str, Any], record: dict[str, Any], folder: str) -> None:
    """Prepare every host of the run, and note in its record how that went. Raises PrepareFault.

    An exception in this thread, a signal's, ends what is going on everywhere.
    """
    spec = {
        **{"command": settings["prepare"], "folder": os.getcwd(), "run": record["run"]},
        **{"output": os.environ.get("HVD_OUTPUT", ""), "image": record["image"], "code": record["code_digest"]},
    }
    text = json.dumps(spec)
    told = " ".join(settings["prepare"])
    hvdlib.say(f"prepare, once per host: {told if len(told) <= 100 else told[:97] + '...'}")
    jobs = []
    try:
        for host in settings["hosts"]:
            words = [PREPARE, text]
            if host["host"] != settings["host"]:
                words = hvdlib.ssh(settings["port"], host["address"], PREPARE, shlex.quote(text))
            jobs.append(Job(host["host"], words, f"{folder}/prepare-{host['host']}.log"))
        for job in jobs:
            while job.thread.is_alive():
                job.thread.join(0.2)
    finally:
        end([job.process for job in jobs if job.process.poll() is None])
    record["prepare"] = {job.host: job.told() for job in jobs}
    tell(jobs)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what still runs: a worker's side ends by itself when its login does."""
    for process in processes:
        process.terminate()
    limit = time.monotonic() + END_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def tell(jobs: list[Job]) -> None:
    """Say how it went. Raises PrepareFault that names every host where it failed."""
    failed = [job for job in jobs if job.code != 0]
    if failed:
        names = ", ".join(f"{job.host} ({how_it_failed(job.code)})" for job in failed)
        message = [f"not launched: train.prepare failed on {len(failed)} of {len(jobs)} hosts: {names}"]
        for job in failed:
            message += [f"  {job.host}, its last lines:", *(f"    | {line}" for line in job.lines)]
        told = f"train.prepare failed on {names}"
        first = failed[0]
        cause = hvdcause.as_cause(told, first.code, host=first.host, lines=list(first.lines))
        raise PrepareFault("\n".join(message), cause)
    skipped = sum(job.skipped for job in jobs)
    done = f"prepared {len(jobs) - skipped} of {len(jobs)} hosts"
    hvdlib.say(done + (f"; {skipped} were prepared before" if skipped else ""))


def how_it_failed(code: int) -> str:
    """Return in words how /hvd/prepare ended, or the login it ran in."""
    return "the connection was lost" if code == 255 else hvdcause.told_code(code)
