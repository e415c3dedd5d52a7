"""`hvdcompose apply` against a plain shell loop of `docker --context X compose up -d` over the same containers.

Both run alternately on one lab of virtual hosts, with nothing to do and from nothing, at several numbers of hosts, over
unix sockets and over ssh. Prints the ratio of the medians: below 1, apply is faster.

    .venv/bin/python benchmarks/apply.py --json apply.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from labs import HVDCOMPOSE, STUB, Lab, alternate, build_stub


class Cluster:
    """A cluster on the first hosts of a lab, and the two ways to bring it up."""

    def __init__(self, lab: Lab, hosts: int) -> None:
        self.lab, self.folder = lab, lab.folder / f"cluster{hosts}"
        self.names = [f"{lab.name}{number}" for number in range(1, hosts + 1)]
        self.folder.mkdir()
        lines = "".join(f"  {name}: {{address: {lab.subnet}.{10 + at}}}\n" for at, name in enumerate(self.names, 1))
        head = f"name: bench{hosts}\nimage: {STUB}\nssh: {{port: 20022}}\nhosts:\n{lines}"
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


def measure(lab: Lab, hosts: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Return the results at one number of hosts."""
    cluster = Cluster(lab, hosts)
    cluster.apply()  # brings the image, and renders the files that the loop uses
    cluster.settle()
    idle = alternate(cluster.apply, cluster.loop, repeats, lambda: None)
    nothing = alternate(cluster.apply, cluster.loop, repeats, cluster.clear)
    cluster.clear()
    return {"nothing to do": idle, "from nothing": nothing}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--hosts", default="1,4,8", help="numbers of hosts, default 1,4,8")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--over", choices=["unix", "ssh"], action="append")
    options = parser.parse_args()
    counts = [int(count) for count in options.hosts.split(",")]
    build_stub()
    results: dict[str, dict[str, dict[str, Any]]] = {}
    print(f"{'over':<5} {'hosts':>5}  {'state':<14} {'apply':>8} {'loop':>8}  ratio")
    for over in options.over or ["unix", "ssh"]:
        name, subnet = ("bssh", "10.212.8") if over == "ssh" else ("bunix", "10.212.7")
        with Lab(name, max(counts), subnet, ssh=over == "ssh") as lab:
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
