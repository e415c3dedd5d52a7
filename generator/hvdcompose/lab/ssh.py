"""The lab's own ssh: a key, known hosts, a wrapper. Nothing of the user's ~/.ssh is read or written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from hvdcompose.errors import HvdError
from hvdcompose.lab.plan import Host
from hvdcompose.lab.spec import Lab


def endpoint(host: Host) -> str:
    """Docker endpoint of a host over ssh; on a rootless one sshd points the session to lab's engine."""
    return f"ssh://{'lab' if host.rootless else 'root'}@{host.address}"


def config_text(folder: Path) -> str:
    """Configuration that uses the lab's key and no other, and pins every host key."""
    return "\n".join(
        [
            "Host *",
            f'  IdentityFile "{folder / "id_ed25519"}"',
            "  IdentitiesOnly yes",
            "  IdentityAgent none",
            f'  UserKnownHostsFile "{folder / "known_hosts"}"',
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
            "  ConnectTimeout 5",
            "  LogLevel ERROR",
            "",
        ]
    )


def wrapper_text(real: str, config: Path) -> str:
    """Script that stands before the real ssh on the PATH of `lab shell` (OpenSSH ignores $HOME)."""
    return f'#!/bin/sh\nexec {real} -F "{config}" "$@"\n'


def known_hosts_text(keys: Mapping[str, str]) -> str:
    """Lines of known_hosts: address -> public host key."""
    return "".join(f"{address} {' '.join(key.split()[:2])}\n" for address, key in keys.items())


def ensure_key(lab: Lab) -> str:
    """Make the lab's key pair unless it is there; the public half."""
    private, public = lab.ssh_folder / "id_ed25519", lab.ssh_folder / "id_ed25519.pub"
    if private.exists() and public.exists():
        return public.read_text()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate()
    lab.ssh_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    text = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    public.write_text(f"{text.decode()} hvdcompose-{lab.name}\n")
    return public.read_text()


def write_client(lab: Lab, hosts: Iterable[Host], docker_config: Path) -> None:
    """Write what `lab shell` needs to reach the hosts over ssh; `docker_config` has the user's plugins."""
    # not the wrapper itself, which comes first inside `lab shell`
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(":") if folder != str(lab.bin_folder)]
    real = shutil.which("ssh", path=":".join(folders))
    if real is None:
        raise HvdError("there is no ssh command on this machine", hint="apt install openssh-client")
    for folder in (lab.ssh_folder, lab.bin_folder, lab.docker_config):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    config = lab.ssh_folder / "config"
    config.write_text(config_text(lab.ssh_folder))
    keys = {str(host.address): (lab.folder(host.name) / "host_key.pub").read_text() for host in hosts}
    (lab.ssh_folder / "known_hosts").write_text(known_hosts_text(keys))
    wrapper = lab.bin_folder / "ssh"
    wrapper.write_text(wrapper_text(real, config))
    wrapper.chmod(0o700)
    plugins = lab.docker_config / "cli-plugins"
    if not plugins.exists() and (docker_config / "cli-plugins").is_dir():
        plugins.unlink(missing_ok=True)
        plugins.symlink_to(docker_config / "cli-plugins")
