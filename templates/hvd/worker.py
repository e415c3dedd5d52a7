#!/usr/bin/env python3
"""/hvd/worker: check what sshd needs, say plainly what is missing, then run `sshd -D -e` on the cluster's port.

What sshd says goes to the container's log, and to a file of bounded size for the records of the runs.
`/hvd/worker ready` waits until that sshd listens, 20 s at most. `/hvd/worker log SECONDS KEEP` prints what was said in
the last SECONDS, and removes what older runs than the newest KEEP left on this host.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import hvdlib
import hvdlog

SSH_FOLDER, HOST_KEY, CONFIG, PID_FILE = (
    "/root/.ssh",
    "/hvd/host/ssh_host_ed25519_key",
    "/hvd/sshd_config",
    "/run/hvd-sshd.pid",
)
READY_SECONDS = 20.0
LOG = f"{hvdlib.RUNS}/worker.log"
LOG_BYTES, SHOWN_BYTES = 4 << 20, 1 << 20


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


def serve(host: dict[str, Any]) -> int:
    """Run sshd to its end, which SIGTERM brings about; return its exit code."""
    hvdlib.await_keys()
    hvdlib.link_secrets(host["secrets"])
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
    return supervise(words)


def supervise(words: list[str]) -> int:
    """Run sshd, as a child that is told to end when this process is; return its exit code as a shell tells it."""
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def pass_on(number: int, _: object) -> None:
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    code = child.wait()
    return code if code >= 0 else 128 - code


def recent(path: str, since: str) -> bytes:
    """Return the lines of a log, and of the file it was before it was full, whose stamp is `since` or later."""
    data = b""
    for name in (f"{path}.1", path):
        if os.path.exists(name):
            with open(name, "rb") as file:
                data += file.read()
    return b"".join(line for line in data.splitlines(keepends=True) if line[: len(since)] >= since.encode())


def forget_runs(runs: str, keep: int) -> None:
    """Remove what all but the newest runs left on this host."""
    folders = [os.path.dirname(path) for path in glob.glob(f"{glob.escape(runs)}/*/rank-*.json")]
    for folder in sorted(set(folders), key=os.path.getmtime, reverse=True)[keep:]:
        shutil.rmtree(folder, ignore_errors=True)


def show_log(seconds: float, keep: int) -> int:
    """Print what sshd said in the last `seconds`, the end of it where it is long; return an exit code."""
    since = hvdlog.stamp(max(0, time.time_ns() - int(seconds * 1e9)))
    shown = recent(LOG, since)[-SHOWN_BYTES:]
    sys.stdout.buffer.write(shown)
    sys.stdout.flush()
    forget_runs(hvdlib.RUNS, keep)
    return 0


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


def main(words: list[str]) -> int:
    """Do what the words say; return an exit code."""
    if words[:1] == ["log"]:
        return show_log(float(words[1]), int(words[2]))
    if words == ["ready"]:
        return ready(hvdlib.settings())
    with hvdlog.Capture(hvdlog.RollingFile(LOG, LOG_BYTES)):
        try:
            return serve(hvdlib.settings())
        except hvdlib.Fault as fault:
            hvdlib.say(str(fault))
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
