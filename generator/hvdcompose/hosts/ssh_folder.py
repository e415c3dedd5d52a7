"""An ssh folder (a user's own on NFS, or ours) as the run will see it: what about it keeps logins out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SshFile:
    """One entry of an ssh folder; "." is the folder itself. `public` holds `type base64` of the keys in it."""

    name: str
    uid: int
    mode: int
    private: bool
    public: tuple[str, ...]
    readable: bool

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> SshFile:
        """Return the entry that a helper container printed."""
        return cls(row["name"], row["uid"], row["mode"], row["private"], tuple(row["public"]), row["readable"])


def faults(folder: str, files: tuple[SshFile, ...], *, launches: bool) -> list[str]:
    """Return a sentence for each thing that makes ssh or sshd refuse this folder (sshd_config(5), StrictModes)."""
    found, by_name = [], {file.name: file for file in files}
    for file in files:
        path = folder if file.name == "." else f"{folder}/{file.name}"
        if file.name in (".", "authorized_keys"):
            if file.uid != 0:
                found.append(
                    f"{path} belongs to uid {file.uid}, sshd wants root: chown 0 {path} (NFS: root_squash hides root)"
                )
            if file.mode & 0o022:
                found.append(f"{path} has mode {file.mode:04o}, sshd refuses what others may write: chmod go-w {path}")
        if file.private and launches and file.mode & 0o077:
            found.append(
                f"{path} has mode {file.mode:04o}, ssh ignores a private key others may read: chmod 600 {path}"
            )
        if not file.readable:
            found.append(f"{path} cannot be read by root in a container (NFS: root_squash)")
    if "." in by_name and not by_name["."].readable:
        return found  # what is in it is not known
    private = [file for file in files if file.private]
    if launches and not private:
        found.append(f"{folder} holds no private key: the launcher needs one")
    if launches and private and not any(file.public for file in private):
        found.append(f"{folder}: every private key wants a passphrase, and there is nobody to type it")
    if not launches and "authorized_keys" not in by_name:
        found.append(f"{folder}/authorized_keys is missing: nobody can log in")
    return found


def strangers(primary: tuple[SshFile, ...], secondary: tuple[SshFile, ...]) -> bool:
    """Tell whether none of the primary's keys is in the authorized_keys that the secondary has."""
    if not any(file.name == "authorized_keys" for file in secondary):
        return False
    offered = {public for file in primary if file.private for public in file.public}
    accepted = {public for file in secondary if file.name == "authorized_keys" for public in file.public}
    return bool(offered) and not offered & accepted
