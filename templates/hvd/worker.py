#!/usr/bin/env python3
"""/hvd/worker: check what sshd needs, say plainly what is missing, then become `sshd -D -e` on the cluster's port.

`/hvd/worker ready` waits until that sshd listens, 20 s at most.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import hvdlib

SSH_FOLDER, HOST_KEY, CONFIG, PID_FILE = (
    "/root/.ssh",
    "/hvd/host/ssh_host_ed25519_key",
    "/hvd/sshd_config",
    "/run/hvd-sshd.pid",
)
READY_SECONDS = 20.0


def find_sshd() -> str:
    """Return sshd's absolute path, which it needs to start its own sessions."""
    path = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        raise hvdlib.Fault("this image has no sshd: install openssh-server in it")
    return path


def modes_at_fault(paths: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each path whose owner or mode makes sshd refuse keys (sshd_config(5), StrictModes)."""
    for path in paths:
        try:
            found = os.stat(path)
        except OSError as error:
            yield f"{path}: {error.strerror}"
            continue
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != 0:
            yield f"{path}: belongs to uid {found.st_uid}, sshd wants root (uid 0): chown 0 it"
        if mode & 0o022:
            yield f"{path}: mode {mode:04o} lets others write, sshd refuses that: chmod go-w it"


def unlock_root(path: str = "/etc/shadow") -> None:
    """Let root log in by key where the image locked the account ('!'): without PAM, sshd refuses locked accounts."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except OSError:
        return
    fixed = ["root:*" + line[len("root:!") :].lstrip("!*") if line.startswith("root:!") else line for line in lines]
    if fixed != lines:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(fixed))


def check(host: dict[str, Any]) -> None:
    """Raise Fault with everything that would keep logins out."""
    faults = list(modes_at_fault(["/root", SSH_FOLDER, f"{SSH_FOLDER}/authorized_keys"]))
    if not os.path.exists(HOST_KEY):
        faults.append(f"{HOST_KEY}: missing")
    remedy = ". `hvdcompose apply` fills the volumes" if faults else ""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", host["port"]))
        except OSError as error:
            faults.append(f"port {host['port']}: {error.strerror}: another program of {host['host']} listens on it")
    if faults:
        raise hvdlib.Fault(f"{host['host']}: cannot serve ssh: " + "; ".join(faults) + remedy)


def serve(host: dict[str, Any]) -> NoReturn:
    """Become sshd."""
    hvdlib.await_keys()
    check(host)
    sshd = find_sshd()
    unlock_root()
    os.makedirs("/run/sshd", exist_ok=True)
    if os.path.exists(PID_FILE):
        os.unlink(PID_FILE)  # of the sshd before a restart of this container
    words = [sshd, "-D", "-e", "-f", CONFIG, "-p", str(host["port"])]
    # OpenSSH 9.8 and later hold a grudge against an address that connects often; older ones do not know the option
    penalties = ["-o", "PerSourcePenalties=no"]
    if subprocess.run([*words, *penalties, "-t"], capture_output=True).returncode == 0:
        words += penalties
    hvdlib.say(f"{host['host']}: worker of cluster {host['cluster']}, sshd on port {host['port']}")
    os.execv(sshd, words)


def listening(port: int) -> bool:
    """Tell whether our own sshd holds the port: sshd writes its pid once it is bound."""
    if not os.path.exists(PID_FILE):
        return False
    with open("/proc/net/tcp", encoding="ascii") as file:
        return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in list(file)[1:])


def ready(host: dict[str, Any]) -> int:
    """Wait until the worker serves ssh; return an exit code."""
    limit = time.monotonic() + READY_SECONDS
    while time.monotonic() < limit:
        if listening(host["port"]):
            return 0
        time.sleep(0.05)
    hvdlib.say(f"{host['host']}: sshd does not listen on port {host['port']} after {READY_SECONDS:.0f} s")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(ready(hvdlib.settings()) if sys.argv[1:] == ["ready"] else serve(hvdlib.settings()))
    except hvdlib.Fault as fault:
        hvdlib.say(str(fault))
        sys.exit(1)
