"""What a lab is asked to be, and every name that follows from it. Touches nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from hvdcompose.errors import UsageError

DEFAULT_NAME = "lab"
DEFAULT_HOSTS = 4
DEFAULT_SUBNET = "10.213.77.0/24"
MOST_HOSTS = 64
FIRST_ADDRESS = 10  # host N has the address base + 10 + N: below are the gateway and room for a user's own
LONGEST_SOCKET = 100  # the kernel takes 107 bytes
LABEL = "hvdcompose.lab"
DESCRIPTION = "hvdcompose lab"  # how a Docker context of ours is known
_NAME = r"[a-z](?:[a-z0-9-]{0,18}[a-z])?"


@dataclass(frozen=True)
class Request:
    """What `lab up` was asked for; None means: as it stands, else the default."""

    hosts: int | None = None
    subnet: IPv4Network | None = None
    gpus: int | None = None
    cpus: float | None = None
    rootless: frozenset[str] = frozenset()
    ssh: bool = False


@dataclass(frozen=True)
class Lab:
    """The names and paths of one lab; several can stand side by side under different names."""

    name: str
    state: Path

    @property
    def option(self) -> str:
        """What to add to a `hvdcompose lab` command so that it means this lab."""
        return "" if self.name == DEFAULT_NAME else f" --name {self.name}"

    @property
    def network(self) -> str:
        """Docker network of its own."""
        return f"hvdcompose-{self.name}"

    @property
    def lock(self) -> Path:
        """Held while a lab is made or removed; beside the state folder, which `down` deletes."""
        return self.state.with_suffix(".lock")

    @property
    def docker_config(self) -> Path:
        """DOCKER_CONFIG of `lab shell`, with the ssh contexts; the user's own is left alone."""
        return self.state / "docker"

    @property
    def ssh_folder(self) -> Path:
        """Key, known hosts and configuration of the lab's own ssh."""
        return self.state / "ssh"

    @property
    def bin_folder(self) -> Path:
        """First on the PATH of `lab shell`: the ssh wrapper."""
        return self.state / "bin"

    def host(self, number: int) -> str:
        """Name of host `number`, which is also its Docker context's name."""
        return f"{self.name}{number}"

    def number(self, host: str) -> int | None:
        """Number of a host of this lab; None for any other name."""
        found = re.fullmatch(re.escape(self.name) + r"([1-9]\d*)", host)
        return int(found.group(1)) if found else None

    def folder(self, host: str) -> Path:
        """Folder that the host sees as /lab: its socket, its key, who may log in."""
        return self.state / host

    def broken(self, host: str) -> Path:
        """Folder that is there while the host is broken, with what `lab mend` has to know."""
        return self.state / "broken" / host

    def socket(self, host: str) -> Path:
        """Unix socket of the host's engine."""
        return self.folder(host) / "docker.sock"


def container(host: str) -> str:
    """Container that is the virtual host."""
    return f"hvdcompose-{host}"


def volume(host: str) -> str:
    """Volume with the inner engine's data, so that its images outlive the container."""
    return f"hvdcompose-{host}-docker"


def stand_in_volume(host: str) -> str:
    """Volume of the container that has the host's place while `lab break` keeps the host's own aside."""
    return f"hvdcompose-{host}-docker-fault"


def address(subnet: IPv4Network, number: int) -> IPv4Address:
    """Fixed address of host `number`."""
    return subnet.network_address + FIRST_ADDRESS + number


def parse_name(text: str) -> str:
    """Check a lab's name; its hosts are called NAME1, NAME2 and so on."""
    if not re.fullmatch(_NAME, text):
        raise UsageError(
            f"--name {text}: a lab's name has 1 to 20 of a-z, 0-9 and -, and begins and ends with a letter",
            hint="its hosts get a number behind it: lab1, lab2",
        )
    return text


def parse_subnet(text: str) -> IPv4Network:
    """Read a subnet such as 10.213.77.0/24."""
    try:
        subnet = IPv4Network(text)
    except ValueError as problem:
        raise UsageError(f"--subnet {text}: {problem}", hint=f"for example {DEFAULT_SUBNET}") from None
    if not subnet.is_private:
        raise UsageError(f"--subnet {text}: not a private network", hint=f"for example {DEFAULT_SUBNET}")
    if subnet.prefixlen > 28:
        raise UsageError(f"--subnet {text}: too small for a lab", hint="a /24 has room for all 64 hosts")
    return subnet


def new_lab(name: str, state_home: Path) -> Lab:
    """Make the names of a lab whose state lives below `state_home`."""
    lab = Lab(parse_name(name), state_home / "hvdcompose" / "lab" / name)
    longest = lab.socket(lab.host(MOST_HOSTS))
    if len(str(longest).encode()) > LONGEST_SOCKET:
        raise UsageError(f"{longest}: too long a path for a unix socket", hint="set XDG_STATE_HOME to a shorter folder")
    return lab


def lab_of_socket(path: str) -> str | None:
    """Return the name of the lab whose host's engine listens there, as `Lab.socket` names it; None for other paths."""
    found = re.search(rf"/hvdcompose/lab/({_NAME})/[^/]+/docker\.sock$", path)
    return found.group(1) if found else None


def sort_hosts(lab: Lab, hosts: Sequence[str]) -> list[str]:
    """Order host names by their numbers: lab2 before lab10."""
    return sorted(hosts, key=lambda host: (lab.number(host) or 0, host))
