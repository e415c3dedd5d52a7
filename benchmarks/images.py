"""An image of 500 MB to eight virtual hosts: `hvdcompose apply` against eight `docker save | docker load` at once.

Both run alternately from hosts without the image: ours from the start of the command until every host is proved to have
it, the shell's until the last `docker load` ended. Then apply once more with a host that takes 8 MB/s: what the others
wait for it. Prints ratios: below 1, apply is faster.

    .venv/bin/python benchmarks/images.py --json images.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from labs import HVDCOMPOSE, STUB, Lab, alternate, build_stub

IMAGE = "hvd-bench:big"
RANDOM_BYTES = 300_000_000  # on top of the 214 MB of the small image, whose programs apply needs; they do not compress
SLOW_BYTES_PER_SECOND = 8_000_000
# docker, with the input of `load` on one host throttled
THROTTLED = """#!/bin/sh
case "$*" in
"--context {host} load"*) {python} -c '
import sys, time
while chunk := sys.stdin.buffer.read({chunk}):
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    time.sleep(0.1)
' | {docker} "$@" ;;
*) exec {docker} "$@" ;;
esac
"""


class Cluster:
    """A cluster on all hosts of a lab, and the two ways by which they get the image."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.folder = lab, lab.folder / "cluster"
        self.names = [f"{lab.name}{number}" for number in range(1, lab.hosts + 1)]
        self.folder.mkdir()
        lines = "".join(f"  {name}: {{address: {lab.subnet}.{10 + at}}}\n" for at, name in enumerate(self.names, 1))
        head = f"name: bench\nimage: {IMAGE}\nssh: {{port: 20022}}\nhosts:\n{lines}"
        (self.folder / "cluster.yaml").write_text(f"{head}train: {{command: sleep infinity, np: 1}}\n")
        loads = "".join(f"docker save {IMAGE} | docker --context {name} load --quiet &\n" for name in self.names)
        (self.folder / "loop.sh").write_text(f"{loads}wait\n")

    def apply(self, env: dict[str, str] | None = None) -> dict[str, float]:
        """Run `hvdcompose apply`; return the seconds after which each host had the image."""
        began, there = time.monotonic(), {}
        with subprocess.Popen(
            [HVDCOMPOSE, "apply"], cwd=self.folder, env=env or self.lab.env, stderr=subprocess.PIPE, text=True
        ) as running:
            assert running.stderr is not None
            told = []
            for line in running.stderr:
                told.append(line)
                found = re.match(r"(\S+) +image is there$", line)
                if found:
                    there[found.group(1)] = time.monotonic() - began
        if running.returncode or set(there) != set(self.names):
            raise SystemExit(f"apply failed:\n{''.join(told)}")
        print(f"apply: {', '.join(f'{host} {seconds:.1f} s' for host, seconds in there.items())}", flush=True)
        return there

    def loop(self) -> float:
        """Time the shell's way."""
        began = time.monotonic()
        subprocess.run(["sh", "loop.sh"], cwd=self.folder, env=self.lab.env, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        self.on_all("image", "inspect", IMAGE)
        print(f"shell: {seconds:.1f} s", flush=True)
        return seconds

    def clear(self) -> None:
        """Take the image and all containers off the hosts, and let the disk come to rest."""
        words = [HVDCOMPOSE, "down", "--volumes", "--yes"]
        subprocess.run(words, cwd=self.folder, env=self.lab.env, check=True, capture_output=True)
        self.on_all("image", "rm", "--force", IMAGE, check=False)
        os.sync()

    def on_all(self, *words: str, check: bool = True) -> None:
        """Run docker on all hosts at once."""
        commands = [["docker", "--context", name, *words] for name in self.names]
        nothing = subprocess.DEVNULL
        running = [subprocess.Popen(words, env=self.lab.env, stdout=nothing, stderr=nothing) for words in commands]
        codes = [process.wait() for process in running]
        if check and any(codes):
            raise SystemExit(f"docker {' '.join(words)}: exit codes {codes}")

    def throttled(self, host: str) -> dict[str, str]:
        """Return the environment in which one host takes an image slowly."""
        folder = self.lab.folder / "bin"
        folder.mkdir()
        script = THROTTLED.format(
            host=host, python=shutil.which("python3"), docker=shutil.which("docker"), chunk=SLOW_BYTES_PER_SECOND // 10
        )
        (folder / "docker").write_text(script)
        (folder / "docker").chmod(0o755)
        return {**self.lab.env, "PATH": f"{folder}:{self.lab.env['PATH']}"}


def build_big() -> int:
    """Build the image on this machine's engine; return its bytes."""
    build_stub()
    docker = ["docker", "--context", "default"]
    with tempfile.TemporaryDirectory(prefix="hvd-") as name:
        folder = Path(name)
        with (folder / "random").open("wb") as file:
            for _ in range(RANDOM_BYTES // 1_000_000):
                file.write(os.urandom(1_000_000))
        (folder / "Dockerfile").write_text(f"FROM {STUB}\nCOPY random /random\n")
        subprocess.run([*docker, "build", "--quiet", "-t", IMAGE, name], check=True, stdout=subprocess.DEVNULL)
    told = subprocess.run(
        [*docker, "image", "inspect", "--format", "{{.Size}}", IMAGE], check=True, capture_output=True, text=True
    )
    return int(told.stdout)


def measure(cluster: Cluster, repeats: int) -> dict[str, Any]:
    """Return the seconds of both ways, and of apply with a slow host."""
    each: list[dict[str, float]] = []

    def apply() -> float:
        each.append(cluster.apply())
        return max(each[-1].values())

    result = alternate(apply, cluster.loop, repeats, cluster.clear)
    cluster.clear()
    slow = cluster.names[2]
    seconds = cluster.apply(cluster.throttled(slow))
    cluster.clear()
    others = max(value for name, value in seconds.items() if name != slow)
    usual = statistics.median(max(there[name] for name in there if name != slow) for there in each)
    return {
        **result,
        "slow": {"seconds": seconds, "host": slow, "others": others, "usual": usual, "ratio": others / usual},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the lab goes all the same
    if options.hosts < 3:
        parser.error("it takes 3 hosts: one of them is slow")
    try:
        size = build_big()
        with Lab("bimg", options.hosts, "10.212.9") as lab:
            result = measure(Cluster(lab), options.repeat)
    finally:
        subprocess.run(["docker", "--context", "default", "image", "rm", "--force", IMAGE], capture_output=True)
    medians, slow = result["medians"], result["slow"]
    print(f"{size / 1e6:.0f} MB to {options.hosts} hosts: apply, shell, ratio, seconds of each")
    print(f"{medians['apply']:.1f} s  {medians['loop']:.1f} s  {result['ratio']:.2f}  {result['seconds']}")
    print(f"with {slow['host']} at {SLOW_BYTES_PER_SECOND / 1e6:.0f} MB/s: the others have it after")
    print(f"{slow['others']:.1f} s, without {slow['usual']:.1f} s, ratio {slow['ratio']:.2f}")
    if options.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.write_text(
            json.dumps({"version": 1, "machine": machine, "bytes": size, "results": result}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
