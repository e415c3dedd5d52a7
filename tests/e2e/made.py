"""One cluster.yaml on the hosts of a lab, as a person works with it: for the end-to-end tests."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from desk import Desk

IMAGE = "hvd-trainer:cpu"
_ports = itertools.count(20100)


@dataclass
class Made:
    """One cluster.yaml in a folder of its own, with the commands a person types there."""

    desk: Desk
    folder: Path
    name: str
    port: int
    env: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "cluster.yaml"

    def write(self, text: str) -> None:
        """Write cluster.yaml; <name>, <port>, <image> and <h1>..<h4> (host lines) are filled in."""
        hosts = {f"h{n}": f"{self.desk.host(n)}: {{address: {self.desk.address(n)}" for n in range(1, 5)}
        for key, value in {"name": self.name, "port": self.port, "image": IMAGE, **hosts}.items():
            text = text.replace(f"<{key}>", str(value))
        self.file.write_text(text)

    def edit(self, old: str, new: str) -> None:
        """Change cluster.yaml as a person would."""
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def hvd(
        self, *words: str, code: int | None = 0, timeout: float = 400, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run hvdcompose in the folder; check its exit code, and that no traceback of ours is shown."""
        done = subprocess.run(
            self.desk.hvd_words(*words), cwd=self.folder, env={**self.desk.env, **self.env, **env},
            capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told = f"{words}: exit code {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        assert code is None or done.returncode == code, told
        assert "Traceback" not in done.stderr, told
        return done

    def settled(self, **env: str) -> None:
        """Apply once more, and check that there is nothing to do but to look at workers that have just started."""
        calm = "nothing to do: .*|this launch ran before.*|run .* is live|.* worker is ready"
        calm += "|.* check +its worker has just started"
        told = self.hvd("apply", **env).stderr
        assert not [line for line in told.splitlines() if not re.fullmatch(calm, line)], told

    def calm(self) -> None:
        """Wait until there is nothing to do, not even to look at a worker that has just started."""
        self.wait_for(lambda: "nothing to do" in self.hvd("plan").stderr, 40, "nothing is to be done")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start hvdcompose and do not wait for it."""
        return subprocess.Popen(
            self.desk.hvd_words(*words), cwd=self.folder, env={**self.desk.env, **self.env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def container(self, number: int) -> str:
        """Return the name of the container on host N."""
        return f"{self.name}-{'launcher' if number == 1 else 'worker'}-1"

    def containers(self, number: int) -> list[str]:
        """Return the names of the cluster's containers on host N, helpers too, in whatever state."""
        label = f"label=com.docker.compose.project={self.name}"
        return self.docker(number, "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()

    def docker(self, number: int, *words: str, code: int | None = 0) -> str:
        """Run docker through host N's context."""
        return self.desk.docker("--context", self.desk.host(number), *words, code=code)

    def inspect(self, number: int) -> dict:
        """Return `docker inspect` of the container on host N."""
        return json.loads(self.docker(number, "inspect", self.container(number)))[0]

    def ids(self, *numbers: int) -> dict[int, tuple[str, str]]:
        """Return {host: (container id, start)}: what a recreation or a restart changes."""
        told = {n: self.inspect(n) for n in numbers}
        return {n: (told[n]["Id"], told[n]["State"]["StartedAt"]) for n in numbers}

    def processes(self, number: int, text: str) -> list[str]:
        """Return the command lines on host N, of any container there, that hold a text."""
        listed = self.desk.engine("exec", f"hvdcompose-{self.desk.host(number)}", "ps", "-eo", "args")
        return [line for line in listed.splitlines() if text in line and "ps -eo" not in line]

    def wait_for(self, what: Callable[[], object], seconds: float, why: str) -> None:
        """Wait until something holds."""
        limit = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < limit, f"not within {seconds} s: {why}"
            time.sleep(0.3)

    def wait_for_log(self, text: str, seconds: float = 90) -> None:
        """Wait until the launcher's log holds a text."""

        def found() -> bool:
            return text in self.docker(1, "logs", self.container(1), code=None)

        self.wait_for(found, seconds, f"{text!r} in the launcher's log")

    def clear(self) -> None:
        """Remove whatever the cluster left on its hosts."""
        if self.file.exists():
            self.hvd("down", "--volumes", "--yes")


def new_made(desk: Desk, folder: Path) -> Made:
    """Return a cluster without a cluster.yaml yet, with a name and a port that no other has."""
    port = next(_ports)
    return Made(desk, folder, f"c{port}", port)


def errors_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines that begin an error, in the order in which they were shown."""
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C: the terminal sends it to the whole foreground group."""
    os.killpg(process.pid, signal.SIGINT)


def times_of(text: str) -> dict[str, float]:
    """Return {real, user, sys: seconds} as `time` prints them."""
    found = re.findall(r"(real|user|sys)\t(\d+)m(\d+\.\d+)s", text)
    return {name: int(minutes) * 60 + float(seconds) for name, minutes, seconds in found}
