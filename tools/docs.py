#!/usr/bin/env python3
"""Refresh what is generated in docs/: `python tools/docs.py`; with `--check`, fail where something is stale.

What the pages show as printed is kept by tests/e2e/test_docs.py, which types their commands on the hosts of a lab.

The pages are written by hand; between `<!-- generated: NAME ARGUMENTS -->` and `<!-- end -->` stands what this makes
from the program itself: keys, options, failures that are known, the envelope.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main

from hvdcompose.cli.main import app
from hvdcompose.config.keys import REQUIRED, SECTIONS, Key
from hvdcompose.config.source import parse_cluster
from hvdcompose.console import envelope
from hvdcompose.errors import ConfigError, HostError, HostsFailed
from hvdcompose.hosts.explain import recognise
from hvdcompose.lab.faults import FAULTS

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"(<!-- generated: ([a-z]+)(?: ([^>]+?))? -->\n).*?(<!-- end -->)", re.S)

# what docker, Compose and ssh wrote when something was wrong; a test holds that all that hosts/explain.py knows is here
SYMPTOMS = (
    'context "rack": context not found: open /root/.docker/contexts/meta/7ac9/meta.json: no such file or directory',
    'Error response from daemon: Get "https://ghcr.io/v2/": dial tcp: lookup ghcr.io: no such host',
    "Error response from daemon: manifest unknown: manifest unknown",
    "toomanyrequests: You have reached your pull rate limit",
    "Host key verification failed.",
    "user@10.0.0.2: Permission denied (publickey).",
    "ssh: Could not resolve hostname rack: Name or service not known",
    "kex_exchange_identification: Connection closed by remote host",
    "ssh: connect to host 10.0.0.2 port 22: Connection refused",
    "ssh: connect to host 10.0.0.2 port 22: No route to host",
    "ssh: connect to host 10.0.0.2 port 22: Connection timed out",
    "sh: 1: docker: not found",
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    'could not select device driver "nvidia" with capabilities: [[gpu]]',
    'could not select device driver "cdi" with capabilities: [[gpu]]',
    "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=9",
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver",
    "nvidia-container-cli: device error: 7: unknown device: unknown",
    "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
    "nvidia-container-cli: mount error: file creation failed: /x/merged/usr/lib/libcuda.so.1: file exists: unknown",
    "nvidia-container-cli: container error: cgroup subsystem devices not found: unknown",
    "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory: unknown",
    "client version 1.42 is too old. Minimum supported API version is 1.44, please upgrade your client",
    "client version 1.53 is too new. Maximum supported API version is 1.41",
    "cannot stop container: 0a1b: permission denied",
    "unsupported shim version (3): not implemented",
    "error while creating mount source path '/opt/data': mkdir /opt/data: read-only file system",
    "write /var/lib/docker/tmp/layer.tar: no space left on device",
    "Error response from daemon: No such image: hvd-trainer:cpu",
    'invalid mount config for type "bind": bind source path does not exist: /srv/mnist',
    "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted",
    "pull access denied for team/trainer, repository does not exist or may require 'docker login'",
    "no matching manifest for linux/arm64/v8 in the manifest list entries",
    "exec /usr/bin/python3: exec format error",
    "exec /hvd/worker failed: No such file or directory",
    "Container 3f2a is restarting, wait until the container is running",
    'exec: "sshd": executable file not found in $PATH',
)
# a good file, and what is often written in the place of a line of it, or at its end
FILE = """\
name: demo
image: trainer:1
ssh: {port: 12345}
hosts:
  alpha: {address: 10.0.0.1}
  beta: {address: 10.0.0.2}
train:
  command: python train.py
"""
MISTAKES = (
    ("ssh: {port: 12345}", "ssh: {port: 22}"),
    ("ssh: {port: 12345}", "shh: {port: 12345}"),
    ("beta: {address: 10.0.0.2}", "beta: {adress: 10.0.0.2}"),
    ("beta: {address: 10.0.0.2}", "beta: {address: beta:12345}"),
    ("beta: {address: 10.0.0.2}", "beta: {address: 10.0.0.1}"),
    ("beta: {address: 10.0.0.2}", "beta: {address: 127.0.0.1}"),
    ("beta: {address: 10.0.0.2}", "beta: {address: 10.0.0.2, gpus: 2, slots: 4}"),
    ("command: python train.py", "command: cd /data && python train.py"),
    ("", "np: 64"),
    ("", "volumes: {/data: ./mnist}"),
    ("", "volumes: {/data: /srv/mnist, /data/: cache}"),
    ("", "env: {VERBOSE: yes}"),
    ("", "env: {START: 22:30}"),
    ("", "env: {CUDA_VISIBLE_DEVICES: 0}"),
    ("", "secrets: {TOKEN: abc}"),
)
# the pages whose commands are one session, in this order, in one folder, on the hosts lab1 to lab4
SESSION = ("commands-cluster.md", "commands-runs.md", "commands-hosts.md")
FENCE = re.compile(r"^```(console|python)\n(.*?)^```$", re.S | re.M)


def refreshed(text: str) -> str:
    """Return a page with every generated block made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{MAKERS[found[2]](found[3] or '')}\n{found[4]}", text)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *([cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(text: str) -> str:
    """Return text that stays in its cell and is shown as it is."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def keys(_: str) -> str:
    """Return all keys of cluster.yaml, section by section."""
    parts = []
    for section in SECTIONS:
        parts.append(f"## {f'`{section.path}`' if section.path else 'At the top'}\n\n{section.about}\n")
        rows = [(f"`{key.name}`", key.form, default_of(key), key.about, f"`{key.example}`") for key in section.keys]
        parts.append(table(["key", "type", "default", "what it does", "example"], rows))
    return "\n".join(parts)


def default_of(key: Key) -> str:
    """Return a key's default for people."""
    return "**required**" if key.default == REQUIRED else key.default


def commands(group: Any, *above: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, command) of all commands, those in groups under both their names."""
    for name, command in group.commands.items():
        if getattr(command, "invoke_without_command", True):
            yield " ".join((*above, name)), command
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)


def options(name: str) -> str:
    """Return a command's line, what it does, and its options."""
    command = dict(commands(typer.main.get_command(app)))[name]
    shown = [param for param in command.params if param.name != "help" and not getattr(param, "hidden", False)]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    given = [param.metavar or f"[{str(param.name).upper()}]" for param in arguments]
    line = " ".join(["hvdcompose", name, *([command.options_metavar] if len(shown) > len(arguments) else []), *given])
    rows = [
        (", ".join(f"`{option}`" for option in _words(param)), _about(param))
        for param in shown
        if param.param_type_name != "argument"
    ]
    told = table(["option", "what it does"], rows) if rows else ""
    return f"`{line}`\n\n{command.help}\n\n{told}"


def _words(param: Any) -> list[str]:
    takes = "" if param.is_flag else f" {param.metavar or str(param.name).upper()}"
    return [f"{option}{takes}" for option in param.opts]


def _about(param: Any) -> str:
    given = param.default not in (None, False) and not param.is_flag
    default = f" Default: {param.default}." if given and "efault" not in (param.help or "") else ""
    return f"{param.help or ''}{default}{f' Also ${param.envvar}.' if param.envvar else ''}"


def symptoms(_: str) -> str:
    """Return the failures of docker, Compose and ssh that are known."""
    rows = []
    for text in SYMPTOMS:
        cause, remedy = recognise(text) or ("", None)
        rows.append((f"`{text}`", cause, remedy or ""))
    return table(["what was written", "cause", "remedy"], rows)


def faults(_: str) -> str:
    """Return the ways in which `lab break` breaks a host."""
    rows = [(f"`{fault.name}`", f"`--{fault.value}`" if fault.value else "", fault.shown) for fault in FAULTS]
    return table(["fault", "option", "what is wrong then"], rows)


def mistakes(_: str) -> str:
    """Return what our reader says to files that are wrong."""
    rows = []
    for old, new in MISTAKES:
        try:
            text = FILE.replace(old, new) if old else f"{FILE}  {new}\n"
            parse_cluster(text, source="cluster.yaml", is_folder=lambda _: True)
        except ConfigError as error:
            told = "\n".join(f"{problem.path}: {problem.message}" for problem in error.problems)
            rows.append((f"`{new}`", told))
    return table(["in cluster.yaml", "what is said"], rows)


def answer(which: str) -> str:
    """Return an envelope: `good` or `bad`."""
    step = {"host": "lab2", "action": "start", "cause": "it has no worker"}
    good = envelope("plan", {"steps": [step], "live_run": ""}, 0, None)
    off = HostError("lab2", "nothing listens at 10.213.77.12:22", hint="docker --context lab2 version")
    bad = envelope("plan", None, 1, HostsFailed("asking the hosts: 1 of 4 hosts failed; nothing was launched", [off]))
    return f"```json\n{json.dumps(good if which == 'good' else bad, indent=2)}\n```\n"


MAKERS: dict[str, Callable[[str], str]] = {
    "answer": answer,
    "faults": faults,
    "keys": keys,
    "mistakes": mistakes,
    "options": options,
    "symptoms": symptoms,
}


def played(text: str, run: Callable[[str], str], folder: Path) -> str:
    """Return a page with its session played anew: each `$ command` with what `run` says it printed.

    A Python file that the page shows, its path in the first line, is written into `folder`.
    """

    def replay(found: re.Match[str]) -> str:
        kind, body = found.groups()
        if kind == "python":
            path = folder / body.partition("\n")[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
            return found[0]
        typed = [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
        told = "".join(f"$ {command}\n{run(command)}" for command in typed)
        return f"```console\n{told}```"

    return FENCE.sub(replay, text)


def main() -> int:
    """Refresh the pages, or tell which are stale."""
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = refreshed(text)
        if new != text:
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    print(f"{', '.join(stale) or 'nothing'} {'stale' if '--check' in sys.argv[1:] else 'refreshed'}", file=sys.stderr)
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
