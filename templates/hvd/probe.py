"""The helper container of `hvdcompose doctor`: tells what it finds, listens for the other hosts' helpers, calls them.

One JSON object a line: facts first, then an answer to each line on stdin, until that ends. It never outlives `life`.
Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict

import hvdlib
import launcher
import probefacts

GREETING = b"hvdcompose doctor "
PAYLOAD = b"." * 65536  # more than fits into one packet of any MTU: a path that loses large ones stalls
CONNECT_SECONDS, ANSWER_SECONDS = 4.0, 4.0
RETRY_SECONDS = (0.0, 0.4, 1.2)  # a busy sshd drops connections, OpenSSH 10 those that come too close
PORT_RANGES = ((1024, 20000), (20001, 40000), (40001, 65535))  # Horovod, Gloo, NCCL and MPI draw from all of them
OTHERS_SECONDS = 8.0  # so long another doctor may hold the ssh port
AT_ONCE = 64
NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES, errno.EPERM)  # the last two: a firewall of this host
WRAPPER = "/hvd/bin/ssh"


def tell(answer: dict[str, Any]) -> None:
    """Print one answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def listen(port: int) -> socket.socket:
    """Return a socket that listens on all addresses, as sshd and Horovod do. Raises OSError."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("0.0.0.0", port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def greet(connection: socket.socket, token: str) -> None:
    """Tell a caller who this is, then send more than one packet."""
    with connection:
        try:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(GREETING + token.encode() + b"\n" + PAYLOAD)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        except OSError:
            pass


def serve(listener: socket.socket, token: str) -> None:
    """Greet whoever calls, until this process ends."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=greet, args=(connection, token), daemon=True).start()


def listen_for_others(port: int, token: str) -> dict[str, Any]:
    """Listen on the ssh port where it is free and on three random ports; return which, and who holds the ssh port."""
    limit, holder = time.monotonic() + OTHERS_SECONDS, ""
    listeners: Dict[str, socket.socket] = {}
    while not listeners:
        try:
            listeners["ssh"] = listen(port)
            break
        except OSError:
            result = call("127.0.0.1", port, "")
            holder = result["detail"] or "it says nothing by itself"
            if not result["detail"].startswith(GREETING.decode()) or time.monotonic() > limit:
                break
            time.sleep(0.3)  # another doctor asks these hosts too
    for low, high in PORT_RANGES:
        for _ in range(20):
            number = random.randint(low, high)
            try:
                listeners[str(number)] = listen(number)
                break
            except OSError:
                continue
    for listener in listeners.values():
        threading.Thread(target=serve, args=(listener, token), daemon=True).start()
    return {
        "ssh_free": "ssh" in listeners,
        "holder": holder,
        "ports": [int(name) for name in listeners if name != "ssh"],
    }


def call(address: str, port: int, token: str) -> dict[str, Any]:
    """Connect once; return what came of it, and in `detail` the line that answered.

    ok: a helper with this token; ssh: an sshd; else refused, timeout, no route, closed (before a word), silent, stalled
    (after the first words), other (something else answers).
    """
    try:
        connection = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
    except socket.timeout:
        return {"result": "timeout", "detail": ""}
    except ConnectionRefusedError:
        return {"result": "refused", "detail": ""}
    except OSError as error:
        return {"result": "no route" if error.errno in NO_ROUTE else "refused", "detail": error.strerror or str(error)}
    with connection:
        connection.settimeout(ANSWER_SECONDS)
        return hear(connection, token)


def hear(connection: socket.socket, token: str) -> dict[str, Any]:
    """Read who answers, and all that one of our helpers sends."""
    said = b""
    try:
        while b"\n" not in said and len(said) < 255:
            more = connection.recv(256)
            if not more:
                return {"result": "other" if said else "closed", "detail": said[:80].decode(errors="replace")}
            said += more
        greeting, _, rest = said.partition(b"\n")
        line = greeting.strip().decode(errors="replace")
        if line.startswith("SSH-"):
            return {"result": "ssh", "detail": line}
        if line != GREETING.decode() + token:
            return {"result": "other", "detail": line[:80]}
        left = len(PAYLOAD) - len(rest)
        while left > 0:
            more = connection.recv(65536)
            if not more:
                return {"result": "stalled", "detail": line}
            left -= len(more)
        return {"result": "ok", "detail": line}
    except socket.timeout:
        return {"result": "stalled" if said else "silent", "detail": ""}
    except OSError:  # reset by the peer, or by what stands between
        return {"result": "stalled" if said else "closed", "detail": ""}


def patiently(once: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call again, later each time, where a busy peer may have dropped the call."""
    told: dict[str, Any] = {}
    for seconds in RETRY_SECONDS:
        time.sleep(seconds)
        told = once()
        if told["result"] not in ("closed", "refused"):
            return told
    return told


def connect(peers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Call every peer on its ssh port and its random ports, all at once."""
    calls = [(peer, port) for peer in peers for port in [peer["ssh"], *peer["ports"]]]

    def one(entry: tuple[dict[str, Any], int]) -> dict[str, Any]:
        peer, port = entry
        told = patiently(lambda: call(peer["address"], port, peer["token"]))
        return {"host": peer["host"], "port": port, **told}

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(calls) or 1)) as pool:
        return list(pool.map(one, calls))


def login(task: dict[str, Any], workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Log in to every worker exactly as the launcher does, with its own code, keys and known_hosts."""
    os.makedirs(os.path.dirname(WRAPPER), exist_ok=True)
    with open(WRAPPER, "w", encoding="utf-8") as file:
        file.write(task["wrapper"])
    os.chmod(WRAPPER, 0o755)
    try:
        launcher.write_ssh_config()
    except hvdlib.Fault as fault:
        return [{"host": worker["host"], "ok": False, "reason": str(fault)} for worker in workers]

    def one(worker: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for seconds in RETRY_SECONDS:
            time.sleep(seconds)
            ok, final, reason = launcher.prove(task["cluster"], task["host"]["port"], worker)
            told = {"host": worker["host"], "ok": ok, "reason": reason}
            if final:
                break
        return told

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(workers) or 1)) as pool:
        return list(pool.map(one, workers))


def obey(task: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    """Do what one line asks for; return the answer."""
    if order["do"] == "clock":
        return {"time": time.time()}
    if order["do"] == "connect":
        return {"calls": connect(order["peers"])}
    return {"logins": login(task, order["workers"])}


def main(task: dict[str, Any]) -> None:
    """Tell the facts, then obey until stdin ends."""
    # a handler, because the first process of a container is spared what signals do by default
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(1))
    signal.alarm(task["life"])  # nobody has to clear up after a client that vanished
    listening = listen_for_others(task["host"]["port"], task["token"]) if task["listens"] else {}
    tell({**probefacts.facts(task), **listening})
    for line in sys.stdin:
        if line.strip():
            tell(obey(task, json.loads(line)))
    os._exit(0)  # without waiting for whoever still holds a connection
