"""CPU seconds and memory of `hvdcompose render` for many hosts, and of `hvdcompose --help`, beside a bare Python.

.venv/bin/python benchmarks/render.py --json render.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HVDCOMPOSE = str(Path(sys.executable).with_name("hvdcompose"))


def cost(words: list[str], folder: Path) -> tuple[float, float]:
    """Run a command; return its CPU seconds (user and system) and its peak memory in MB."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise SystemExit(f"{words} failed with exit {running.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def median_cost(words: list[str], folder: Path, repeats: int) -> dict[str, float]:
    """Return the medians over some runs, after one that is not counted."""
    cost(words, folder)
    costs = [cost(words, folder) for _ in range(repeats)]
    return {"cpu_s": statistics.median(cpu for cpu, _ in costs), "memory_mb": max(memory for _, memory in costs)}


def write_cluster(folder: Path, hosts: int) -> None:
    """Write a cluster.yaml of many hosts with GPUs."""
    lines = "".join(f"  h{at}: {{address: 10.1.{at // 250}.{at % 250 + 1}, gpus: [0, 1]}}\n" for at in range(hosts))
    (folder / "cluster.yaml").write_text(
        f"name: many\nimage: trainer\nhosts:\n{lines}train: {{command: python train.py}}\n"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cluster(folder, options.hosts)
        ways = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "hvdcompose --help": [HVDCOMPOSE, "--help"],
            f"render, {options.hosts} hosts": [HVDCOMPOSE, "render"],
            f"render --check, {options.hosts} hosts": [HVDCOMPOSE, "render", "--check"],
        }
        results = {}
        for title, words in ways.items():
            results[title] = measured = median_cost(words, folder, options.repeat)
            print(f"{title:<28} {measured['cpu_s']:6.2f} s of CPU  {measured['memory_mb']:6.0f} MB", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"version": 1, "cores": os.cpu_count(), "results": results}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
