"""The cluster's key: one ed25519 pair; every worker's host key is derived from it, so known_hosts is known ahead.

What fills a host's volumes is put together here: its half of the keys, and the user's secrets.

The private half lies on the client (0600, under the XDG state folder) and on the primary, nowhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from hvdcompose.config.model import Cluster, Host
from hvdcompose.errors import HvdError
from hvdcompose.hosts.tars import Entry, file_of, pack
from hvdcompose.stack.plan import HOST_TARGET, SSH_TARGET

KEY_FILE, FILLED = "id_ed25519", "filled"
GREEN = "green"  # beside it: what the last look at the hosts found, see hosts/green.py
NOTES = "claims"  # in the client's state folder: tokens of the claims it holds, see hosts/claim.py
SECRETS_TARGET = f"{HOST_TARGET}/secrets"
Secrets = Mapping[str, bytes]  # name of the file under /run/secrets -> value
NO_SECRETS: Secrets = {}


def _private_text(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def _public_text(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@dataclass(frozen=True, repr=False)
class ClusterKey:
    """The private key of a cluster; never printed."""

    private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> ClusterKey:
        """Make a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: bytes) -> ClusterKey | None:
        """Return the key in an OpenSSH private key file, or None when it is not an ed25519 key."""
        try:
            key = load_ssh_private_key(text, password=None)
        except Exception:  # cryptography raises half a dozen types for a file that is no key
            return None
        return cls(key) if isinstance(key, Ed25519PrivateKey) else None

    def text(self) -> bytes:
        """Return the OpenSSH private key file."""
        return _private_text(self.private)

    def public(self) -> str:
        """Return the public half as an authorized_keys line, without a newline."""
        return _public_text(self.private)

    def host_key(self, cluster: str, host: str) -> Ed25519PrivateKey:
        """Return the ssh host key of one worker, derived by HKDF (RFC 5869) so that it is the same after recreation."""
        return Ed25519PrivateKey.from_private_bytes(self._derived(f"hvdcompose host key/{cluster}/{host}"))

    def secrets_digest(self, cluster: str, secrets: Secrets) -> str:
        """Return 16 hex digits over secrets, fit for a label: without the key a weak one cannot be guessed from it."""
        mac = hmac.new(self._derived(f"hvdcompose secrets/{cluster}"), digestmod="sha256")
        for name, value in sorted(secrets.items()):
            mac.update(f"{name}\0{len(value)}\0".encode() + value)
        return mac.hexdigest()[:16]

    def _derived(self, info: str) -> bytes:
        return HKDF(SHA256(), 32, None, info.encode()).derive(self.private.private_bytes_raw())


def known_hosts(cluster: Cluster, key: ClusterKey) -> str:
    """Return the launcher's known_hosts: `[address]:port key`, one line per secondary (sshd(8), SSH_KNOWN_HOSTS)."""
    return "".join(
        f"[{host.address}]:{cluster.ssh.port} {_public_text(key.host_key(cluster.name, host.name))}\n"
        for host in cluster.secondaries
    )


def entries_for(cluster: Cluster, host: Host, key: ClusterKey, secrets: Secrets = NO_SECRETS) -> tuple[Entry, ...]:
    """Return what a host's volumes must hold, owner root: the launcher's or the worker's half of the keys; secrets."""
    if host.name == cluster.primary_name:
        ssh = [Entry(f"{SSH_TARGET}/{KEY_FILE}", key.text(), 0o600)]
        own = [Entry(f"{HOST_TARGET}/known_hosts", known_hosts(cluster, key).encode(), 0o644)]
    else:
        comment = f"{key.public()} hvdcompose {cluster.name}\n".encode()
        ssh = [Entry(f"{SSH_TARGET}/authorized_keys", comment, 0o600)]
        host_key = _private_text(key.host_key(cluster.name, host.name))
        own = [Entry(f"{HOST_TARGET}/ssh_host_ed25519_key", host_key, 0o600)]
    if secrets:
        own.append(Entry(SECRETS_TARGET, None, 0o700))
        own += [Entry(f"{SECRETS_TARGET}/{name}", value, 0o400) for name, value in secrets.items()]
    # the last to be unpacked: who finds it, finds all the rest whole
    own.append(Entry(f"{HOST_TARGET}/{FILLED}", f"{keys_digest(cluster, host, key, secrets)}\n".encode(), 0o644))
    folders = [Entry(HOST_TARGET, None, 0o700)]
    if not cluster.ssh.managed:
        return (*folders, *own)
    return (Entry(SSH_TARGET, None, 0o700), *ssh, *folders, *own)


def keys_tar(cluster: Cluster, host: Host, key: ClusterKey, secrets: Secrets = NO_SECRETS) -> bytes:
    """Return the tar that fills a host's volumes, to be unpacked at /."""
    return pack(entries_for(cluster, host, key, secrets))


def keys_digest(cluster: Cluster, host: Host, key: ClusterKey, secrets: Secrets = NO_SECRETS) -> str:
    """Return what identifies what a host's volumes hold, fit for a label: its keys, a dot and the secrets."""
    assert secrets.keys() == cluster.train.secrets.keys()
    own = own_keys_digest(cluster, host, key)
    return f"{own}.{key.secrets_digest(cluster.name, secrets)}" if secrets else own


def keys_in_label(label: str) -> str:
    """Return the part of a digest in a label that `own_keys_digest` makes."""
    return label.partition(".")[0]


def own_keys_digest(cluster: Cluster, host: Host, key: ClusterKey) -> str:
    """Return what identifies a host's keys: 16 hex digits over public halves only."""
    public = [key.public()] if cluster.ssh.managed else [cluster.ssh.volume]
    if host.name == cluster.primary_name:
        public.append(known_hosts(cluster, key))
    else:
        public.append(_public_text(key.host_key(cluster.name, host.name)))
    return hashlib.sha256("\n".join(public).encode()).hexdigest()[:16]


def state_folder(cluster: Cluster) -> Path:
    """Return the folder of the client's state: by name and primary, so that two clusters of one name stay apart."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "hvdcompose" / "clusters" / f"{cluster.name}@{cluster.primary.address}"


def load_key(cluster: Cluster) -> ClusterKey | None:
    """Return the client's key of a cluster, or None. Raises HvdError for a file that is there and no key."""
    path = state_folder(cluster) / KEY_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HvdError(f"cannot read the cluster's key {path}: {error.strerror}") from None
    key = ClusterKey.parse(text)
    if key is None:
        raise HvdError(
            f"{path} is not an ed25519 key",
            hint=f"remove it: a new one is made, or the primary's adopted: rm {path}",
        )
    return key


def save_key(cluster: Cluster, key: ClusterKey) -> None:
    """Write the client's key, whole or not at all, for this user only."""
    folder = state_folder(cluster)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = folder / f"{KEY_FILE}.{os.getpid()}"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - the mode from the start
            file.write(key.text())
        part.replace(folder / KEY_FILE)
    except OSError as error:
        raise HvdError(f"cannot write the cluster's key under {folder}: {error.strerror}") from None


def forget_key(cluster: Cluster) -> None:
    """Remove the client's state of a cluster, but for what is known of its hosts and claims that could not be given up.

    The next command takes such a claim; hosts stay as they were seen, whatever volumes they have.
    """
    folder = state_folder(cluster)
    for path in folder.glob("*"):
        if path.name not in (GREEN, NOTES):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def key_in_tar(tar: bytes) -> ClusterKey | None:
    """Return the key in the tar of one file, as `docker cp` gives it."""
    text = file_of(tar)
    return ClusterKey.parse(text) if text is not None else None
