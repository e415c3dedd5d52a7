"""`hvdcompose apply` against a plain shell loop of `docker --context X compose up -d` over the same containers.

Both run alternately on one lab of virtual hosts, with nothing to do and from nothing, at several numbers of hosts, over
unix sockets and over ssh. Prints the ratio of the medians: below 1, apply is faster.

    .venv/bin/python benchmarks/apply.py --json apply.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HVDCOMPOSE = str(Path(sys.executable).with_name("hvdcompose"))
IMAGE = "hvd-bench:stub"
# the loop needs containers that stay up, not a training: horovodrun here is a program that waits
DOCKERFILE = r"""FROM debian:bookworm-slim
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    python3-minimal libpython3-stdlib openssh-server openssh-client && rm -rf /var/lib/apt/lists/*
RUN printf '#!/bin/sh\nexec sleep infinity\n' > /usr/local/bin/horovodrun && chmod 755 /usr/local/bin/horovodrun
"""


class Lab:
    """A lab of its own name, network, Docker configuration and state, removed at the end."""

    def __init__(self, hosts: int, *, ssh: bool) -> None:
        self.hosts, self.ssh, self.name = hosts, ssh, "bssh" if ssh else "bunix"
        self.subnet = "10.212.8" if ssh else "10.212.7"
        self.folder = Path(tempfile.mkdtemp(prefix="hvd-"))
        plugins = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
        (self.folder / "docker").mkdir()
        if plugins.is_dir():
            (self.folder / "docker" / "cli-plugins").symlink_to(plugins)
        dropped = ("DOCKER_HOST", "DOCKER_CONTEXT", "PYTHONDONTWRITEBYTECODE")  # a user's Python keeps its byte code
        self.env = {name: value for name, value in os.environ.items() if name not in dropped}
        self.env |= {"XDG_STATE_HOME": str(self.folder / "state"), "DOCKER_CONFIG": str(self.folder / "docker")}
        self.env["HVDCOMPOSE_LAB"] = self.name

    def __enter__(self) -> Lab:
        words = [HVDCOMPOSE, "lab", "up", "--hosts", str(self.hosts), "--gpus", "0", "--subnet", f"{self.subnet}.0/24"]
        subprocess.run([*words, *(["--ssh"] if self.ssh else [])], env=self.env, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([HVDCOMPOSE, "lab", "down"], env=self.env, check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, *words: str) -> list[str]:
        """Return a command to run where the contexts work: over ssh that is inside `lab shell`."""
        return [HVDCOMPOSE, "lab", "shell", "--", *words] if self.ssh else list(words)


class Cluster:
    """A cluster on the first hosts of a lab, and the two ways to bring it up."""

    def __init__(self, lab: Lab, hosts: int) -> None:
        self.lab, self.folder = lab, lab.folder / f"cluster{hosts}"
        self.names = [f"{lab.name}{number}" for number in range(1, hosts + 1)]
        self.folder.mkdir()
        lines = "".join(f"  {name}: {{address: {lab.subnet}.{10 + at}}}\n" for at, name in enumerate(self.names, 1))
        head = f"name: bench{hosts}\nimage: {IMAGE}\nssh: {{port: 20022}}\nhosts:\n{lines}"
        (self.folder / "cluster.yaml").write_text(f"{head}train: {{command: sleep infinity, np: 1}}\n")
        loop = "".join(f"docker --context {name} compose -f compose/{name}/compose.yaml up -d\n" for name in self.names)
        (self.folder / "loop.sh").write_text(f"set -e\n{loop}")

    def run(self, *words: str) -> float:
        """Run a command in the cluster's folder; return its wall seconds. Stops the benchmark when it fails."""
        began = time.monotonic()
        done = subprocess.run(self.lab.words(*words), cwd=self.folder, env=self.lab.env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{words} failed:\n{done.stdout}{done.stderr}")
        return time.monotonic() - began

    def apply(self) -> float:
        """Time `hvdcompose apply`."""
        return self.run(HVDCOMPOSE, "apply")

    def loop(self) -> float:
        """Time the shell loop over the same files."""
        return self.run("sh", "loop.sh")

    def settle(self) -> None:
        """Wait until there is nothing to do: a worker that has just started is still being checked."""
        words = self.lab.words(HVDCOMPOSE, "plan", "--json")
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            done = subprocess.run(words, cwd=self.folder, env=self.lab.env, capture_output=True, text=True)
            if done.returncode == 0 and not json.loads(done.stdout)["data"]["steps"]:
                return
            time.sleep(1)
        raise SystemExit("there is something to do for longer than a minute")

    def clear(self) -> None:
        """Take everything off the hosts."""
        self.run(HVDCOMPOSE, "down", "--volumes", "--yes")


def alternate(
    first: Callable[[], float], second: Callable[[], float], repeats: int, between: Callable[[], None]
) -> dict[str, Any]:
    """Time two ways in turns, `between` before each; return seconds, medians and the ratio first / second."""
    seconds: dict[str, list[float]] = {"apply": [], "loop": []}
    for _ in range(repeats):
        for name, way in (("apply", first), ("loop", second)):
            between()
            seconds[name].append(way())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"seconds": seconds, "medians": medians, "ratio": medians["apply"] / medians["loop"]}


def measure(lab: Lab, hosts: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Return the results at one number of hosts."""
    cluster = Cluster(lab, hosts)
    cluster.apply()  # brings the image, and renders the files that the loop uses
    cluster.settle()
    idle = alternate(cluster.apply, cluster.loop, repeats, lambda: None)
    nothing = alternate(cluster.apply, cluster.loop, repeats, cluster.clear)
    cluster.clear()
    return {"nothing to do": idle, "from nothing": nothing}


def build_image() -> None:
    """Build the small image on this machine's engine, where it is missing."""
    present = subprocess.run(["docker", "--context", "default", "image", "inspect", IMAGE], capture_output=True)
    if present.returncode:
        words = ["docker", "--context", "default", "build", "--network", "host", "-t", IMAGE, "-"]
        subprocess.run(words, input=DOCKERFILE.encode(), check=True, env={**os.environ, "DOCKER_BUILDKIT": "0"})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--hosts", default="1,4,8", help="numbers of hosts, default 1,4,8")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--over", choices=["unix", "ssh"], action="append")
    options = parser.parse_args()
    counts = [int(count) for count in options.hosts.split(",")]
    build_image()
    results: dict[str, dict[str, dict[str, Any]]] = {}
    print(f"{'over':<5} {'hosts':>5}  {'state':<14} {'apply':>8} {'loop':>8}  ratio")
    for over in options.over or ["unix", "ssh"]:
        with Lab(max(counts), ssh=over == "ssh") as lab:
            for count in counts:
                results[f"{over} {count}"] = measured = measure(lab, count, options.repeat)
                for state, result in measured.items():
                    apply, loop = result["medians"]["apply"], result["medians"]["loop"]
                    print(
                        f"{over:<5} {count:>5}  {state:<14} {apply:>6.2f} s {loop:>6.2f} s  {result['ratio']:.2f}",
                        flush=True,
                    )
    if options.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.write_text(json.dumps({"version": 1, "machine": machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
