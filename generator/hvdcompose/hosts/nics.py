"""A host's own IPv4 addresses, from what its kernel says in /proc/net: no program and no agent is needed there."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

from hvdcompose.config.first import Nic
from hvdcompose.hosts.engine import Engine

FILES = ("/proc/net/fib_trie", "/proc/net/route")
TRY_SECONDS = 60.0
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
_ROUTE = re.compile(r"^(\S+)\t([0-9A-F]{8})\t([0-9A-F]{8})\t[0-9A-F]{4}\t(?:\S+\t){3}([0-9A-F]{8})\t", re.M)


def parse_nics(text: str) -> tuple[Nic, ...]:
    """Return the addresses in the text of FILES, one file after the other, without loopback and link-local ones."""
    local = sorted({ipaddress.IPv4Address(found) for found in _LOCAL.findall(text)})
    networks = [
        (ipaddress.IPv4Network((_number(target), str(_number(mask)))), interface)
        for interface, target, gateway, mask in _ROUTE.findall(text)
        if int(gateway, 16) == 0 and int(mask, 16) != 0
    ]
    nics = []
    for address in local:
        if address.is_loopback or address.is_link_local:
            continue
        own = [(network, interface) for network, interface in networks if address in network]
        network, interface = max(own, key=lambda pair: pair[0].prefixlen, default=(None, ""))
        nics.append(Nic(str(address), interface, str(network or "")))
    return tuple(nics)


def _number(text: str) -> ipaddress.IPv4Address:
    """Return an address of /proc/net/route, which is a number in the byte order of x86 and ARM."""
    return ipaddress.IPv4Address(bytes.fromhex(text)[::-1])


def own_nics() -> tuple[Nic, ...]:
    """Return the addresses of this very machine."""
    return parse_nics("".join(Path(name).read_text(encoding="ascii") for name in FILES))


def nics_through(engine: Engine, image: str) -> tuple[Nic, ...]:
    """Return a host's addresses as a short container on its network sees them; none where the image has no `cat`.

    Raises HostError where the host gives no answer in time.
    """
    words = ("run", "--rm", "--pull", "never", "--network", "host", "--entrypoint", "cat", image, *FILES)
    completed = engine.ask(*words, deadline=TRY_SECONDS)
    return parse_nics(completed.out) if completed.ok else ()
