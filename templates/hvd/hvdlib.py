"""What the scripts under /hvd share. Standard library only: it runs inside the user's image, Python 3.8 or later."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
from typing import Any

SETTINGS_FILE = os.environ.get("HVD_SETTINGS", "/hvd/host.json")
FILLED_FILE = "/hvd/host/filled"
FILL_SECONDS = 30.0
SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


class Fault(Exception):
    """Something the user has to know; printed as one line."""


def settings() -> dict[str, Any]:
    """Return this container's part of the cluster, as rendered into /hvd/host.json."""
    with open(SETTINGS_FILE, encoding="utf-8") as file:
        return dict(json.load(file))


def say(text: str) -> None:
    """Print one line of ours; `docker compose logs` shows it at once."""
    print(f"hvdcompose: {text}", file=sys.stderr, flush=True)


def await_keys(wanted: str | None = None, path: str = FILLED_FILE, seconds: float = FILL_SECONDS) -> None:
    """Wait until the volumes hold this container's keys: apply sends them once the container is there.

    wanted: their digest; default: what the container was started with. Raises Fault when they do not come.
    """
    wanted = os.environ.get("HVD_KEYS", "") if wanted is None else wanted
    limit, told = time.monotonic() + seconds, False
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                found = file.read().strip()
        except OSError:
            found = ""
        if found and found == (wanted or found):
            return
        if time.monotonic() > limit:
            raise Fault(
                f"{settings()['host']}: its keys have not come within {seconds:.0f} s: `hvdcompose apply` brings them"
            )
        if not told and time.monotonic() > limit - seconds + 2:
            say("waiting for the keys, which `hvdcompose apply` brings")
            told = True
        time.sleep(0.05)


def interfaces() -> dict[str, str]:
    """Return {name: IPv4 address} of the interfaces seen here; those without IPv4 are left out."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def interface_of(host: dict[str, Any]) -> str:
    """Return the name of the interface that owns a host's `address`, or its `interface:` once that is seen to exist.

    Raises Fault where no interface has the address: then Docker's host network is not the machine's.
    """
    seen = interfaces()
    listed = ", ".join(f"{name} {address}" for name, address in sorted(seen.items()))
    if host["interface"]:
        if host["interface"] not in seen:
            raise Fault(f"{host['host']}: no interface {host['interface']} with an IPv4 address here; found {listed}")
        return str(host["interface"])
    try:
        address = socket.gethostbyname(host["address"])
    except OSError as error:
        raise Fault(f"{host['host']}: address {host['address']} does not resolve: {error}") from None
    for name, owned in seen.items():
        if owned == address:
            return name
    raise Fault(
        f"{host['host']}: address {address} is on no interface of this container; found {listed}. "
        "A rootless Docker, or the address of another machine?"
    )
