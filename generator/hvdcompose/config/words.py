"""What a single word may be: names, addresses, images, paths. Each check returns a complaint or None."""

from __future__ import annotations

import ipaddress
import posixpath
import re

from hvdcompose.config.scalars import shown

_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CONTEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_HOSTNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:[kmg]?b|[kmg])|([0-9]+)", re.IGNORECASE)
_GPU_ID = re.compile(r"(0|[1-9][0-9]*)(:[0-9]+)?|GPU-[A-Za-z0-9-]+|MIG-[A-Za-z0-9/-]+")
_CDI_DEVICE = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*=[A-Za-z0-9][\w.:-]*", re.ASCII)
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:")
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = rf"(?:localhost(?::[0-9]+)?|{_LABEL}(?:\.{_LABEL})+(?::[0-9]+)?|{_LABEL}:[0-9]+)"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG_AND_DIGEST = r"(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
_IMAGE = re.compile(rf"(?:{_REGISTRY}/)?{_PART}(?:/{_PART})*{_TAG_AND_DIGEST}", re.ASCII)
_IMAGE_LENGTH = 255

_TAKEN_TARGETS = ("/hvd", "/root/.ssh", "/run/secrets", "/proc", "/sys", "/dev")
_SET_BY_HOROVOD = re.compile(
    r"HOROVOD_(RANK|SIZE|(LOCAL|CROSS)_(RANK|SIZE)|HOSTNAME|CONTROLLER|CPU_OPERATIONS|GLOO_RENDEZVOUS_(ADDR|PORT))"
)


def project_complaint(name: str) -> str | None:
    """Complain about a cluster's name, which is a Compose project name."""
    if _PROJECT.fullmatch(name):
        return None
    return f'"{shown(name)}" must begin with a-z or 0-9 and go on with a-z, 0-9, - and _, 40 characters at most'


def host_complaint(name: str) -> str | None:
    """Complain about a host's name, which becomes the name of a folder."""
    if _HOST.fullmatch(name):
        return None
    return "a host's name begins with a letter or digit and goes on with these, _ . and -, 63 characters at most"


def context_complaint(name: str) -> str | None:
    """Complain about what cannot be the name of a Docker context."""
    return None if _CONTEXT.fullmatch(name) else f'"{shown(name)}" is not the name of a Docker context'


def address_complaint(address: str) -> str | None:
    """Complain about what horovodrun's -H cannot hold or the hosts cannot reach."""
    seen = f'"{shown(address)}"'
    if "://" in address:
        return f"{seen} is a URL; write the bare address"
    if "@" in address:
        return f"{seen} names a user; the user belongs to the Docker context"
    if address.count(":") > 1 or address.startswith("["):
        return f"{seen} is an IPv6 address; Horovod's launcher is IPv4 only"
    if ":" in address:
        return f"{seen} names a port; the port is ssh.port, one for all hosts"
    if not _HOSTNAME.fullmatch(address):
        return f"{seen} is neither an IPv4 address nor a host name"
    return _ipv4_complaint(address) if re.fullmatch(r"[0-9.]+", address) else None


def _ipv4_complaint(address: str) -> str | None:
    try:
        number = ipaddress.IPv4Address(address)
    except ValueError:
        return f"{address} is not an IPv4 address: four numbers from 0 to 255, without leading zeros"
    return "0.0.0.0 is no host's address" if number.is_unspecified else None


def is_loopback(address: str) -> bool:
    """True for an address that every host takes for itself."""
    name = address.lower()
    return (
        name.startswith("127.") or name == "localhost" or name.startswith("localhost.") or name.endswith(".localhost")
    )


def image_complaint(name: str) -> str | None:
    """Complain about what is no image reference."""
    if len(name) <= _IMAGE_LENGTH and _IMAGE.fullmatch(name):
        return None
    if len(name) <= _IMAGE_LENGTH and _IMAGE.fullmatch(name.lower()):
        return f'"{shown(name)}" must be lower case up to the tag'
    return f'"{shown(name)}" is not an image name such as registry:5000/team/image:tag'


def interface_complaint(name: str) -> str | None:
    """Complain about what Linux does not take for the name of a network interface."""
    return None if _INTERFACE.fullmatch(name) else f'"{shown(name)}" is not an interface name such as eth0'


def size_complaint(size: str) -> str | None:
    """Complain about what Docker does not take for an amount of memory."""
    match = _SIZE.fullmatch(size)
    if match and float(match[1] or match[2]) > 0:
        return None
    return f'"{shown(size)}" is not an amount of memory such as 512m or 1g'


def gpu_id_complaint(identifier: str) -> str | None:
    """Complain about what names no GPU of a host."""
    if _GPU_ID.fullmatch(identifier):
        return None
    return f'"{shown(identifier)}" is neither a GPU\'s number nor its GPU-... or MIG-... name'


def cdi_complaint(device: str) -> str | None:
    """Complain about what is no CDI device name."""
    return None if _CDI_DEVICE.fullmatch(device) else f'"{shown(device)}" is not a CDI device such as nvidia.com/gpu=0'


def env_name_complaint(name: str) -> str | None:
    """Complain about names that a shell cannot hold, and those that hvdcompose or Horovod sets itself."""
    if not _ENV_NAME.fullmatch(name):
        return "a variable's name has letters, digits and _ only, and no digit first"
    if name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        return "GPUs are chosen with gpus; inside a container they are numbered from 0 again"
    if name.startswith("HVD_"):
        return "names that begin with HVD_ are hvdcompose's own"
    return "horovodrun sets this itself" if _SET_BY_HOROVOD.fullmatch(name) else None


def build_argument_complaint(name: str) -> str | None:
    """Complain about what cannot be the name of a build argument."""
    return (
        None if _ENV_NAME.fullmatch(name) else "an argument's name has letters, digits and _ only, and no digit first"
    )


def secret_complaint(name: str) -> str | None:
    """Complain about what cannot be the name of a secret, which becomes a file's."""
    if _SECRET.fullmatch(name):
        return None
    return "a secret's name begins with a letter, digit or _ and goes on with these, . and -, 64 characters at most"


def env_variable_complaint(name: str) -> str | None:
    """Complain about what is no name of a variable on the client; it is not shown, it may be the secret itself."""
    if _ENV_NAME.fullmatch(name):
        return None
    return "must be the name of a variable: letters, digits and _ only, and no digit first"


def client_file_complaint(path: str) -> str | None:
    """Complain about what cannot be the path of a file on the client."""
    if not path or path.endswith("/") or _CONTROL.search(path):
        return f'"{shown(path)}" is not the path of a file'
    return None


def output_complaint(output: str) -> str | None:
    """Complain about what the ranks cannot write to: neither a folder on the primary nor a named volume."""
    if output.startswith("/") and clean_path(output) == "/":
        return "must name a folder, not /"
    return source_complaint(output)


def ssh_volume_complaint(volume: str) -> str | None:
    """Complain about what cannot hold the keys: neither a folder on every host nor a named volume."""
    if volume.startswith("/") and clean_path(volume) == "/":
        return "must name a folder, not /"
    return source_complaint(volume)


def source_complaint(source: str) -> str | None:
    """Complain about what is neither a path on a host nor a named volume."""
    if source.startswith("/"):
        return _path_complaint(source)
    if source.startswith((".", "~")) or "/" in source or "\\" in source or _WINDOWS_DRIVE.match(source):
        return f'"{shown(source)}" would be on this machine; the mount is on the host, where paths begin with /'
    if _VOLUME.fullmatch(source):
        return None
    return f'"{shown(source)}" is neither a path on the host, which begins with /, nor the name of a volume'


def target_complaint(path: str) -> str | None:
    """Complain about a path at which a container cannot get a mount of the user's."""
    complaint = _path_complaint(path)
    if complaint:
        return complaint
    clean = clean_path(path)
    if clean == "/":
        return "a mount at / would hide the image"
    for taken in _TAKEN_TARGETS:
        if clean == taken or clean.startswith(f"{taken}/"):
            return f"{taken} is taken in every container"
    return None


def file_complaint(path: str) -> str | None:
    """Complain about a path in a container that cannot be a file's."""
    return _path_complaint(path) or ("must name a file, not a folder" if path.endswith("/") else None)


def folder_complaint(folder: str) -> str | None:
    """Complain about a folder of the client that has no name to be mounted under."""
    name = posixpath.basename(folder.rstrip("/"))
    if name in ("", ".", ".."):
        return f'"{shown(folder)}" has no name to be mounted under; name a folder, such as ./trainer'
    if not _FOLDER.fullmatch(name):
        return f'"{shown(name)}" cannot be mounted under its name; use letters, digits, _ . and -'
    return None


def clean_path(path: str) -> str:
    """Return an absolute path without doubled and trailing slashes, so that equal paths are equal text."""
    return "/" + posixpath.normpath(path).lstrip("/")


def _path_complaint(path: str) -> str | None:
    if not path.startswith("/"):
        return f'"{shown(path)}" must be an absolute path'
    if ".." in path.split("/"):
        return f'"{shown(path)}" must not contain ..'
    if ":" in path or _CONTROL.search(path):
        return f'"{shown(path)}" must not contain a colon or a control character'
    return None
