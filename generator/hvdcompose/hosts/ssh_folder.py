"""A user's own ssh folder (NFS) as the run will see it: what is in it, and what about it keeps logins out."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hvdcompose.hosts.engine import Engine
from hvdcompose.stack.plan import SSH_TARGET

LOOK_SECONDS = 60.0
# runs in the image; -P "" makes ssh-keygen fail rather than ask for a passphrase, and a copy of mode 0600 is read
# because ssh-keygen, too, refuses a key that others may read
LOOK = """
import json, os, subprocess, sys, tempfile
folder, found, listed = sys.argv[1], [], True
try:
    names = sorted(os.listdir(folder))
except OSError:
    names, listed = [], False
for name in [".", *names]:
    path = os.path.join(folder, name)
    try:
        stat = os.stat(path)
    except OSError:
        continue
    entry = {"name": name, "uid": stat.st_uid, "mode": stat.st_mode & 0o7777}
    entry.update({"private": False, "public": [], "readable": listed})
    if os.path.isfile(path):
        try:
            text = open(path, errors="replace").read(1000000)
        except OSError:
            text, entry["readable"] = "", False
        if "PRIVATE KEY-----" in text:
            entry["private"] = True
            with tempfile.NamedTemporaryFile("w") as copy:
                copy.write(text)
                copy.flush()
                made = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", copy.name], capture_output=True, text=True)
            entry["public"] = [" ".join(made.stdout.split()[:2])] if made.returncode == 0 else []
        elif name == "authorized_keys":
            words = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
            entry["public"] = [" ".join(line[i:i + 2]) for line in words for i in range(len(line) - 1)
                               if line[i].startswith(("ssh-", "ecdsa-", "sk-"))]
    found.append(entry)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class SshFile:
    """One entry of an ssh folder; "." is the folder itself. `public` holds `type base64` of the keys in it."""

    name: str
    uid: int
    mode: int
    private: bool
    public: tuple[str, ...]
    readable: bool


def look(engine: Engine, image: str, folder: str) -> tuple[SshFile, ...]:
    """List a host's ssh folder from inside a container. Raises HostError, also when the folder is not there."""
    source = f"source={folder}".replace('"', '""')  # quoted as CSV wants it: a path may hold a comma
    mount = f'type=bind,"{source}",target={SSH_TARGET},readonly'
    words = ["run", "--rm", "--pull", "never", "--network", "none", "--user", "0:0", "--mount", mount]
    words += ["--entrypoint", "python3", image, "-c", LOOK, SSH_TARGET]
    told = json.loads(engine.call(*words, doing=f"looking into {folder}", deadline=LOOK_SECONDS))
    return tuple(
        SshFile(row["name"], row["uid"], row["mode"], row["private"], tuple(row["public"]), row["readable"])
        for row in told
    )


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
