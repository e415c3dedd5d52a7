"""What a container of the run finds where it stands: network, memory, disks, programs, versions, GPUs, ssh folder.

`hvdcompose doctor` asks for it from a helper container. Versions come from metadata and files: nothing of the image is
imported. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import pwd
import re
import resource
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from typing import Any

import hvdlib

SBIN = "/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin"
LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/games"  # what sshd gives a session without PAM, narrowest build
PROGRAMS = ("horovodrun", "mpirun", "nvidia-smi", "ssh")
LIMITS = ("memlock", "nofile", "nproc", "stack", "core", "as", "fsize", "data", "cpu")
GPU_FIELDS = ("index", "name", "memory.total", "driver_version", "uuid", "compute_cap")
SMI_SECONDS, VERSION_SECONDS = 15, 5
LISTED_ENTRIES, LISTED_SECONDS = 50_000, 3.0
MARKS = {"NCCL": b"ncclCommInitRank", "MPI": b"MPI_Init_thread", "Gloo": b"4gloo"}  # symbols in Horovod's library


def network(host: dict[str, Any]) -> dict[str, Any]:
    """Return every interface with its addresses and MTU, and what the host's `address` resolves to here."""
    found = {}
    for name, addresses in hvdlib.interfaces().items():
        mtu = text_of(f"/sys/class/net/{name}/mtu").strip()
        down = text_of(f"/sys/class/net/{name}/operstate").strip() == "down"  # the loopback's is "unknown"
        found[name] = {"addresses": addresses, "mtu": int(mtu) if mtu.isdigit() else 0, "up": not down}
    try:
        resolved, why = socket.gethostbyname(host["address"]), ""
    except OSError as error:
        resolved, why = "", error.strerror or str(error)
    return {"interfaces": found, "resolved": resolved, "unresolved": why}


def limits() -> dict[str, int]:
    """Return the soft limits of this container by their names in Compose; -1 is unlimited."""
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in LIMITS}


def kinds_of_mounts() -> dict[str, str]:
    """Return {mount point: file system type} (proc(5), mountinfo)."""
    found = {}
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code.group(1), 8)), before.split()[4])
                found[point] = after.split()[0]
    except OSError:
        pass
    return found


def space(path: str, kinds: dict[str, str]) -> dict[str, Any]:
    """Return the space at a path in bytes, whether it may be written and read, and its file system."""
    told: dict[str, Any] = {"path": path, "kind": kinds.get(path, ""), "folder": os.path.isdir(path)}
    try:
        found = os.statvfs(path)
    except OSError as error:
        return {**told, "error": error.strerror, "total": 0, "free": 0, "inodes": -1, "writable": False}
    told.update(total=found.f_blocks * found.f_frsize, free=found.f_bavail * found.f_frsize)
    told["inodes"] = found.f_favail if found.f_files else -1  # -1: the file system does not count them
    told["writable"] = os.access(path, os.W_OK)
    try:
        if told["folder"]:
            os.scandir(path).close()
        else:
            open(path, "rb").close()
        told["error"] = ""
    except OSError as error:
        told["error"] = error.strerror
    return told


def listing(folder: str) -> dict[str, Any]:
    """Return how many files a folder holds, and a digest of their names and sizes; "" where it is too much to list."""
    limit, entries = time.monotonic() + LISTED_SECONDS, []
    for base, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            path = os.path.join(base, name)
            try:
                size = os.lstat(path).st_size
            except OSError:
                size = -1
            entries.append(f"{os.path.relpath(path, folder)}\0{size}")
        if len(entries) > LISTED_ENTRIES or time.monotonic() > limit:
            return {"files": len(entries), "digest": ""}
    told = "\n".join(sorted(entries)).encode("utf-8", "surrogateescape")
    return {"files": len(entries), "digest": hashlib.sha256(told).hexdigest()[:12]}


def first_line(*words: str) -> str:
    """Return the first line that a program prints, "" where it does not run."""
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.decode(errors="replace").strip().splitlines() or [""])[0]


def folder_of(package: str) -> str:
    """Return the folder of an installed package, "" without one. Importing it would take seconds."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ""
    return os.path.dirname(found.origin) if found and found.origin else ""


def text_of(path: str) -> str:
    """Return the text of a file, "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def version_of(package: str, *sources: str) -> str:
    """Return a package's version: what its metadata say, else `__version__` in its sources; "" without either."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        folder = folder_of(package)
    for source in sources if folder else ():
        found = re.search(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)", text_of(f"{folder}/{source}"), re.M)
        if found:
            return found.group(1)
    return "unknown" if folder else ""


def nccl_of_wheels() -> str:
    """Return the version of NCCL that pip installed beside torch, "" without one."""
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return os.environ.get("NCCL_VERSION", "")  # NVIDIA's own images


def built_with() -> list[str]:
    """Return what Horovod's library for torch was built with; empty without such a library."""
    libraries = glob.glob(f"{folder_of('horovod') or '/nonexistent'}/torch/mpi_lib*.so")
    try:
        with open(libraries[0], "rb") as file:
            held = file.read()
    except (IndexError, OSError):
        return []
    return ["torch", *(name for name, mark in MARKS.items() if mark in held)]


def versions() -> dict[str, Any]:
    """Return the versions that all hosts of a run should share."""
    torch = folder_of("torch")
    cuda = re.search(r"^cuda\s*(?::[^=]+)?=\s*['\"]([^'\"]+)", text_of(f"{torch}/version.py"), re.M) if torch else None
    mpi = re.search(r"\d+(?:\.\d+)+\S*", first_line("mpirun", "--version")) if shutil.which("mpirun") else None
    return {
        "python": platform.python_version(),
        "horovod": version_of("horovod", "__init__.py"),
        "torch": version_of("torch", "version.py"),
        "torchvision": version_of("torchvision", "version.py"),
        "cuda": cuda.group(1) if cuda else "",
        "nccl": nccl_of_wheels(),
        "mpi": mpi.group(0) if mpi else "",
    }


def programs() -> dict[str, str]:
    """Return where the programs are that a run needs; `orted` as an ssh session would find it."""
    found = {name: shutil.which(name) or "" for name in PROGRAMS}
    found["sshd"] = shutil.which("sshd", path=SBIN) or ""
    found["orted"] = shutil.which("orted") or ""
    found["orted over ssh"] = shutil.which("orted", path=LOGIN_PATH) or ""
    return found


def account() -> dict[str, str]:
    """Return root's home and shell, which sshd uses for every login."""
    try:
        root = pwd.getpwuid(0)
    except KeyError:
        return {"home": "", "shell": ""}
    shell = root.pw_shell or "/bin/sh"
    return {"home": root.pw_dir, "shell": shell if os.access(shell, os.X_OK) else f"{shell} (missing)"}


def query_gpus(fields: tuple[str, ...]) -> tuple[list[list[str]], str]:
    """Return (rows, "") of `nvidia-smi --query-gpu`, or ([], why) where it fails."""
    words = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SMI_SECONDS, universal_newlines=True
        )
    except subprocess.TimeoutExpired:
        return [], f"nvidia-smi says nothing for {SMI_SECONDS} s"
    except OSError as error:
        return [], f"nvidia-smi cannot be run: {error.strerror}"
    if done.returncode:
        return [], (done.stdout.strip().splitlines() or [f"nvidia-smi ends with exit {done.returncode}"])[-1]
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()], ""


def gpus() -> dict[str, Any]:
    """Return the GPUs that this container was given; `error` says why nvidia-smi does not tell."""
    driver = os.path.exists("/proc/driver/nvidia/version")
    if not shutil.which("nvidia-smi"):
        return {"rows": [], "error": "", "asked": False, "driver": driver}
    rows, error = query_gpus(GPU_FIELDS)
    if error and "compute_cap" in error:  # drivers before 510 do not know it
        rows, error = query_gpus(GPU_FIELDS[:-1])
    named = [{name: cell for name, cell in zip(GPU_FIELDS, row)} for row in rows]  # noqa: B905, C416 - Python 3.8
    return {"rows": named, "error": error, "asked": True, "driver": driver}


def rdma() -> dict[str, Any]:
    """Return the RDMA cards of the machine, and whether this container may use them."""
    try:
        cards = sorted(os.listdir("/sys/class/infiniband"))
    except OSError:
        cards = []
    return {"cards": cards, "device": os.path.isdir("/dev/infiniband")}


def public_halves(path: str, text: str) -> list[str]:
    """Return `type base64` of the private key in a file, none where it wants a passphrase.

    Of a copy of mode 0600, because ssh-keygen refuses a key that others may read; -P "" makes it fail, not ask.
    """
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm") as copy:
        copy.write(text)
        copy.flush()
        try:
            made = subprocess.run(
                ["ssh-keygen", "-y", "-P", "", "-f", copy.name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return []
    return [" ".join(made.stdout.decode(errors="replace").split()[:2])] if made.returncode == 0 else []


def accepted(text: str) -> list[str]:
    """Return `type base64` of every key in an authorized_keys file."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    kinds = ("ssh-", "ecdsa-", "sk-")
    return [" ".join(line[i : i + 2]) for line in lines for i in range(len(line) - 1) if line[i].startswith(kinds)]


def ssh_folder(folder: str) -> list[dict[str, Any]]:
    """Return the entries of an ssh folder, "." for itself: owner, mode, whether it can be read, the keys in it."""
    found: list[dict[str, Any]] = []
    try:
        names, listed = sorted(os.listdir(folder)), True
    except OSError:
        names, listed = [], False
    for name in [".", *names]:
        path = os.path.join(folder, name)
        try:
            told = os.stat(path)
        except OSError:
            continue
        entry: dict[str, Any] = {"name": name, "uid": told.st_uid, "mode": stat.S_IMODE(told.st_mode)}
        entry.update(private=False, public=[], readable=listed)
        if os.path.isfile(path):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read(1_000_000)
            except OSError:
                text, entry["readable"] = "", False
            if "PRIVATE KEY-----" in text:
                entry.update(private=True, public=public_halves(path, text))
            elif name == "authorized_keys":
                entry["public"] = accepted(text)
        found.append(entry)
    return found


def facts(task: dict[str, Any]) -> dict[str, Any]:
    """Return everything; `task` says which paths to look at and where the ssh folder is, "" for none."""
    kinds = kinds_of_mounts()
    return {
        **network(task["host"]),
        "shm": space("/dev/shm", kinds),
        "limits": limits(),
        "disks": [space(path, kinds) for path in ["/", *task["paths"]]],
        "listings": {path: listing(path) for path in task["listed"] if os.path.isdir(path)},
        "programs": programs(),
        "versions": versions(),
        "built_with": built_with(),
        "account": account(),
        "gpus": gpus(),
        "rdma": rdma(),
        "ssh_folder": ssh_folder(task["ssh_folder"]) if task["ssh_folder"] else [],
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }
