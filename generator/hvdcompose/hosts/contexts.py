"""Docker contexts: where they lead, and whether anybody is there, asked quickly and before Docker's long waits."""

from __future__ import annotations

import errno
import json
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from hvdcompose.errors import HvdError
from hvdcompose.hosts import process
from hvdcompose.hosts.explain import explain
from hvdcompose.hosts.logins import destination

PING = b"GET /_ping HTTP/1.0\r\n\r\n"  # Docker Engine API
CONNECT_SECONDS = 5.0  # docker itself waits 15 to 35 s for a dead ssh host


def endpoints() -> dict[str, str]:
    """Return {context: endpoint URL} of this machine. Raises HvdError where there is no docker CLI."""
    try:
        listed = process.run(["docker", "context", "ls", "--format", "{{json .}}"], deadline=20)
    except FileNotFoundError:
        raise HvdError(
            "there is no docker command on this machine", hint="install the Docker CLI and Compose"
        ) from None
    if not listed.ok:
        raise HvdError(f"docker cannot list its contexts: {explain(listed.err)[0]}")
    rows = [json.loads(line) for line in listed.out.splitlines() if line.startswith("{")]
    return {str(row["Name"]): str(row.get("DockerEndpoint", "")) for row in rows}


@dataclass(frozen=True)
class Route:
    """Where an ssh:// endpoint really leads, after ~/.ssh/config; `proxied` when it goes through another host."""

    address: str
    port: int
    proxied: bool


def ssh_route(url: str) -> Route:
    """Return the route of an ssh:// endpoint, as `ssh -G` resolves it. Raises FileNotFoundError without ssh."""
    end = destination(url)
    answer = process.run(["ssh", "-G", *end], deadline=5)
    fields = dict(line.split(" ", 1) for line in answer.out.splitlines() if " " in line)
    proxied = any(fields.get(name, "none") != "none" for name in ("proxyjump", "proxycommand"))
    return Route(fields.get("hostname", end[-1]), int(fields.get("port", urlsplit(url).port or 22)), proxied)


def unreachable(url: str, seconds: float = CONNECT_SECONDS) -> str | None:
    """Return why nobody answers at an endpoint, or None when somebody does or when it cannot be told from here."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _try_unix(parts.path, seconds)
    if parts.scheme == "tcp":
        return _try_tcp(parts.hostname or "", parts.port or 2375, seconds, banner=False)
    if parts.scheme == "ssh":
        try:
            route = ssh_route(url)
        except FileNotFoundError:
            return "its Docker context leads over ssh, and this machine has no ssh command"
        return None if route.proxied else _try_tcp(route.address, route.port, seconds, banner=True)
    return None


def _try_unix(path: str, seconds: float) -> str | None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(seconds)
        try:
            probe.connect(path)
            probe.sendall(PING)
            if not probe.recv(64):
                return f"its Docker engine closes the connection at {path}"
        except TimeoutError:
            return f"its Docker engine does not answer within {seconds:.0f} s: frozen, or overloaded"
        except PermissionError:
            return explain(f"dial unix {path}: connect: permission denied")[0]  # as docker itself would be understood
        except OSError as error:
            return f"its Docker engine does not answer at {path}: {error.strerror or error}"
    return None


def _try_tcp(address: str, port: int, seconds: float, *, banner: bool) -> str | None:
    try:
        with socket.create_connection((address, port), timeout=seconds) as probe:
            if banner and not probe.recv(64):
                return f"{address}:{port} closes the connection before it says it is ssh"
    except TimeoutError:
        return f"no answer from {address}:{port} within {seconds:.0f} s: it is off, frozen, or cut off"
    except socket.gaierror:
        return f"the name {address} of its Docker context does not resolve"
    except ConnectionRefusedError:
        what = "sshd" if banner else "Docker engine"
        return f"nothing listens at {address}:{port}: the machine is up, its {what} is not"
    except OSError as error:
        if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return f"no route to {address}:{port}: it is off, or on another network"
        return f"{address}:{port}: {error.strerror or error}"
    return None
