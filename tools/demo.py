#!/usr/bin/env python3
"""`make demo`: bring up four virtual hosts and train the shipped cluster.yaml on them, the second time too.

Standard library only; types the commands a person would type, shows them, and sums up what came of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HVDCOMPOSE = str(Path(sys.executable).with_name("hvdcompose"))
HOSTS = 4


def call(*words: str) -> int:
    """Show a command and run it; return its exit code."""
    print(f"\n$ hvdcompose {' '.join(words)}", flush=True)
    return subprocess.run([HVDCOMPOSE, *words], cwd=ROOT, check=False).returncode


def apply_has_a_run() -> bool:
    """Tell whether apply would launch or finds a live run: it launches only what never ran."""
    planned = subprocess.run([HVDCOMPOSE, "plan", "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    if planned.returncode:
        return True  # apply says what is in the way
    data = json.loads(planned.stdout)["data"]
    return bool(data["live_run"]) or any(step["action"] == "launch" for step in data["steps"])


def train(*words: str) -> tuple[int, list[str]]:
    """Show a command that follows a run, run it; return its exit code and the lines of the run."""
    print(f"\n$ hvdcompose {' '.join(words)}", flush=True)
    lines = []
    with subprocess.Popen([HVDCOMPOSE, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line.rstrip("\n"))
            print(lines[-1], flush=True)
    return running.returncode, lines


def summary(lines: list[str]) -> str:
    """Return the accuracy and the times that the run printed last, and what to type next."""
    text = "\n".join(lines)
    accuracy = re.findall(r"Accuracy: (\d+\.\d+)%", text)
    real = re.findall(r"real\t(\S+)", text)
    told = f"accuracy {accuracy[-1]} %" if accuracy else "no accuracy was printed"
    return f"""
{told}, real time {real[-1] if real else "unknown"}: {HOSTS} virtual hosts sharing this machine's cores.

Next, in this folder:
  source .venv/bin/activate
  hvdcompose status                                what stands on each host
  hvdcompose logs                                  what happened there
  docker --context lab2 compose -p mnist logs      the same for one host, by Docker alone
  hvdcompose run                                   train again, after an edit in trainer/ for example
  hvdcompose down && hvdcompose lab down           everything off
Your own machines: README.md, "Your own machines"."""


def main() -> int:
    """Run the demo; return its exit code."""
    code = call("lab", "up", "--hosts", str(HOSTS))
    if code:
        return code
    code, lines = train(*(["apply", "--follow"] if apply_has_a_run() else ["run"]))
    if code == 0:
        print(summary(lines), flush=True)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted: `make demo` goes on from there", file=sys.stderr)
        sys.exit(130)
