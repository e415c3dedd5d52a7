"""What the scripts under /hvd share. Standard library only: it runs inside the user's image, Python 3.8 or later."""

from __future__ import annotations

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
SECRETS = "/run/secrets"
SECRETS_HELD = "/hvd/host/secrets"
RUNS = "/hvd/runs"
PREPARED_BEFORE = "prepared before"  # what /hvd/prepare says when it has nothing to do
# linux/rtnetlink.h, netlink.h, if_addr.h
RTM_GETADDR, NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE, IFA_LOCAL = 22, 0x1, 0x300, 2, 3, 2


class Fault(Exception):
    """Something the user has to know; printed as one line."""


def settings() -> dict[str, Any]:
    """Return this container's part of the cluster, as rendered into /hvd/host.json."""
    with open(SETTINGS_FILE, encoding="utf-8") as file:
        return dict(json.load(file))


def ssh(port: int, address: str, *words: str) -> list[str]:
    """Return the words of an ssh call from the launcher to a worker."""
    return ["/hvd/bin/ssh", "-p", str(port), f"root@{address}", *words]


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


def link_secrets(names: list[str], held: str = SECRETS_HELD, folder: str = SECRETS) -> None:
    """Let every secret be found under /run/secrets; those that are no longer wanted are removed from the volume.

    Raises Fault for one that apply has not brought.
    """
    for name in os.listdir(held) if os.path.isdir(held) else ():
        if name not in names:
            os.unlink(f"{held}/{name}")
    missing = [name for name in names if not os.path.isfile(f"{held}/{name}")]
    if missing:
        raise Fault(f"{settings()['host']}: no secret {', '.join(missing)} here: `hvdcompose apply` brings them")
    if names:
        os.makedirs(folder, exist_ok=True)
    for name in names:
        if os.path.lexists(f"{folder}/{name}"):
            os.unlink(f"{folder}/{name}")
        os.symlink(f"{held}/{name}", f"{folder}/{name}")


def write_json(path: str, value: object) -> None:
    """Write JSON whole or not at all."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.write("\n")
    os.replace(f"{path}.part", path)


def interfaces() -> dict[str, list[str]]:
    """Return {name: all its IPv4 addresses} of the interfaces seen here, as the kernel lists them (rtnetlink(7))."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
        kernel.bind((0, 0))
        # a header (length, type, flags, number, sender), then the family and what is not asked for
        kernel.send(struct.pack("=IHHIIB7x", 24, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 1, 0, socket.AF_INET))
        while True:
            data = kernel.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    return found
                (index,) = struct.unpack_from("=I", data, 20)
                attributes = data[24:length]
                while attributes:
                    size, what = struct.unpack_from("=HH", attributes)
                    if what == IFA_LOCAL:
                        name = socket.if_indextoname(index)
                        found.setdefault(name, []).append(socket.inet_ntoa(attributes[4:8]))
                    attributes = attributes[(size + 3) & ~3 :]
                data = data[(length + 3) & ~3 :]


def interface_of(host: dict[str, Any]) -> str:
    """Return the name of the interface that owns a host's `address`, or its `interface:` once that is seen to exist.

    Raises Fault where no interface has the address: then Docker's host network is not the machine's.
    """
    seen, written = interfaces(), host["address"]
    listed = ", ".join(f"{name} {' '.join(addresses)}" for name, addresses in sorted(seen.items()))
    if host["interface"]:
        if host["interface"] not in seen:
            raise Fault(f"{host['host']}: no interface {host['interface']} with an IPv4 address here; found {listed}")
        return str(host["interface"])
    try:
        address = socket.gethostbyname(written)
    except OSError as error:
        raise Fault(f"{host['host']}: address {written} does not resolve: {error}") from None
    alone = len(host.get("hosts", ())) == 1
    if address != written and address.startswith("127.") and not alone:
        raise Fault(
            f"{host['host']}: address {written} resolves to {address} here (/etc/hosts?), where no other host reaches "
            "it: write the IP address in cluster.yaml, or name the NIC of this host there (`interface: eth0`)"
        )
    for name, addresses in seen.items():
        if address in addresses:
            return name
    told = written if address == written else f"{written}, here {address},"
    raise Fault(
        f"{host['host']}: address {told} is on no interface of this container; found {listed}. A rootless Docker, or "
        "the address of another machine? If it is forwarded to this one, name the NIC (`interface: eth0`)"
    )
