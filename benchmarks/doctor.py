"""`hvdcompose doctor` against one `docker --context X info`: on hosts that are well, and with one that is frozen.

Prints seconds and the ratio to the info, which is what one question to one host costs here. `dead adds` is what a
frozen host adds to the whole; it is checked that the others are told all the same.

    .venv/bin/python benchmarks/doctor.py --json doctor.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from labs import HVDCOMPOSE, STUB, Lab, build_stub


class Doctor:
    """A cluster on all hosts of a lab, whose workers run."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.folder = lab, lab.folder / "cluster"
        self.names = [f"{lab.name}{number}" for number in range(1, lab.hosts + 1)]
        self.folder.mkdir()
        lines = "".join(f"  {name}: {{address: {lab.subnet}.{10 + at}}}\n" for at, name in enumerate(self.names, 1))
        head = f"name: bench\nimage: {STUB}\nssh: {{port: 20022}}\nhosts:\n{lines}"
        (self.folder / "cluster.yaml").write_text(f"{head}train: {{command: sleep infinity, np: 1}}\n")
        self.run(0, HVDCOMPOSE, "apply")

    def run(self, code: int, *words: str) -> tuple[float, str]:
        """Run a command in the cluster's folder; return its wall seconds and stdout. Ends the benchmark otherwise."""
        began = time.monotonic()
        done = subprocess.run(self.lab.words(*words), cwd=self.folder, env=self.lab.env, capture_output=True, text=True)
        if done.returncode != code:
            raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return time.monotonic() - began, done.stdout

    def doctor(self, *frozen: str) -> float:
        """Time `hvdcompose doctor`, which must tell of every host, and find something on the frozen ones only."""
        seconds, out = self.run(4 if frozen else 0, HVDCOMPOSE, "doctor", "--json")
        told = json.loads(out)["data"]
        if {finding["host"] for finding in told["findings"]} != set(frozen):
            raise SystemExit(f"doctor finds something on hosts that are well:\n{out}")
        if {host for host, cell in told["checks"]["address"].items() if cell == "ok"} != set(self.names) - set(frozen):
            raise SystemExit(f"doctor does not tell of every host:\n{out}")
        return seconds

    def info(self) -> float:
        """Time one question to one host."""
        return self.run(0, "docker", "--context", self.names[0], "info")[0]

    def apply(self) -> float:
        """Time `hvdcompose apply` where all is as it should be."""
        return self.run(0, HVDCOMPOSE, "apply")[0]

    def freeze(self, verb: str) -> str:
        """Pause or unpause the last host; return its name."""
        name = self.names[-1]
        words = ["docker", "--context", "default", verb, f"hvdcompose-{name}"]
        subprocess.run(words, env=self.lab.env, check=True, capture_output=True)
        return name


def measure(cluster: Doctor, repeats: int) -> dict[str, Any]:
    """Return medians in seconds, in turns, and their ratios to the info."""
    cluster.doctor()
    ways = {"doctor": cluster.doctor, "apply": cluster.apply, "info": cluster.info}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            seconds[name].append(way())
    name = cluster.freeze("pause")
    try:
        seconds["doctor, one frozen"] = [cluster.doctor(name) for _ in range(repeats)]
    finally:
        cluster.freeze("unpause")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {name: median / medians["info"] for name, median in medians.items() if name != "info"}
    adds = medians["doctor, one frozen"] - medians["doctor"]
    return {"seconds": seconds, "medians": medians, "ratios": ratios, "dead adds": adds}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--hosts", default="2,4,8,16", help="numbers of hosts, default 2,4,8,16")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--over", choices=["unix", "ssh"], action="append")
    options = parser.parse_args()
    build_stub()
    results: dict[str, dict[str, Any]] = {}
    print(f"{'over':<5} {'hosts':>5}  {'doctor':>9} {'info':>7} {'ratio':>6}  {'dead adds':>9}  {'apply, green':>12}")
    for over in options.over or ["unix", "ssh"]:
        for count in (int(number) for number in options.hosts.split(",")):
            name = f"bd{os.getpid() % 1000:03}x"
            with Lab(name, count, "10.212.79", ssh=over == "ssh") as lab:
                told = results[f"{over} {count}"] = measure(Doctor(lab), options.repeat)
            medians = told["medians"]
            line = f"{over:<5} {count:>5}  {medians['doctor']:>7.2f} s {medians['info']:>5.2f} s"
            line += f" {told['ratios']['doctor']:>6.1f}  {told['dead adds']:>7.2f} s  {medians['apply']:>10.2f} s"
            print(line, flush=True)
    if options.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.write_text(json.dumps({"version": 1, "machine": machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
