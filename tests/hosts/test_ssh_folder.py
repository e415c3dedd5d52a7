"""A user's own ssh folder: what is found in it, and what about it keeps logins out."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys

import pytest

from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.keys import ClusterKey
from hvdcompose.hosts.ssh_folder import LOOK, SshFile, faults, look, strangers

FOLDER = "/mnt/nfs2/ssh"
KEY = "ssh-ed25519 AAAAkey"


def entry(name, *, uid=0, mode=0o600, private=False, public=(), readable=True):
    return SshFile(name, uid, mode, private, tuple(public), readable)


@pytest.mark.parametrize(
    ("folder", "source"),
    [("/nfs/ssh", '"source=/nfs/ssh"'), ("/nfs/a,b", '"source=/nfs/a,b"'), ('/nfs/"a', '"source=/nfs/""a"')],
)
def test_any_path_reaches_docker_whole(folder, source, program, tmp_path):
    """docker reads --mount as a line of CSV."""
    program("docker", f"printf '%s\\n' \"$@\" > {tmp_path}/words; echo '[]'\n")
    assert look(Engine("alpha", "alpha"), "trainer:1", folder) == ()
    words = (tmp_path / "words").read_text().splitlines()
    assert words[words.index("--mount") + 1] == f"type=bind,{source},target=/root/.ssh,readonly"


HOME = entry(".", mode=0o700)
PRIVATE = entry("id_rsa", private=True, public=[KEY])
AUTHORIZED = entry("authorized_keys", public=[KEY])


@pytest.mark.parametrize("launches", [True, False])
def test_a_folder_as_it_should_be(launches):
    assert faults(FOLDER, (HOME, AUTHORIZED, PRIVATE), launches=launches) == []


# which files, on the primary or a secondary, and every sentence told
FAULTS = [
    pytest.param(
        (entry(".", uid=1000, mode=0o700), AUTHORIZED),
        False,
        [f"{FOLDER} belongs to uid 1000, sshd wants root: chown 0 {FOLDER} (NFS: root_squash hides root)"],
        id="folder of a user",
    ),
    pytest.param(
        (HOME, entry("authorized_keys", uid=65534, public=[KEY])),
        False,
        [
            f"{FOLDER}/authorized_keys belongs to uid 65534, sshd wants root: "
            f"chown 0 {FOLDER}/authorized_keys (NFS: root_squash hides root)"
        ],
        id="authorized_keys of nobody",
    ),
    pytest.param(
        (entry(".", mode=0o777), AUTHORIZED),
        False,
        [f"{FOLDER} has mode 0777, sshd refuses what others may write: chmod go-w {FOLDER}"],
        id="folder open to all",
    ),
    pytest.param(
        (HOME, entry("authorized_keys", mode=0o664, public=[KEY])),
        False,
        [
            f"{FOLDER}/authorized_keys has mode 0664, sshd refuses what others may write: "
            f"chmod go-w {FOLDER}/authorized_keys"
        ],
        id="authorized_keys open to the group",
    ),
    pytest.param(
        (HOME, entry("id_rsa", mode=0o644, private=True, public=[KEY])),
        True,
        [f"{FOLDER}/id_rsa has mode 0644, ssh ignores a private key others may read: chmod 600 {FOLDER}/id_rsa"],
        id="private key others may read",
    ),
    pytest.param((HOME, AUTHORIZED, entry("id_rsa", mode=0o644, private=True)), False, [], id="a worker needs no key"),
    pytest.param(
        (HOME, entry("authorized_keys", readable=False)),
        False,
        [f"{FOLDER}/authorized_keys cannot be read by root in a container (NFS: root_squash)"],
        id="unreadable",
    ),
    pytest.param(
        (entry(".", mode=0o700, readable=False),),
        True,
        [f"{FOLDER} cannot be read by root in a container (NFS: root_squash)"],
        id="closed folder: nothing is said of what is in it",
    ),
    pytest.param(
        (HOME, AUTHORIZED),
        True,
        [f"{FOLDER} holds no private key: the launcher needs one"],
        id="no private key",
    ),
    pytest.param(
        (HOME, entry("id_rsa", private=True)),
        True,
        [f"{FOLDER}: every private key wants a passphrase, and there is nobody to type it"],
        id="passphrase",
    ),
    pytest.param((HOME, entry("id_a", private=True), PRIVATE), True, [], id="one key without a passphrase is enough"),
    pytest.param(
        (HOME, PRIVATE),
        False,
        [f"{FOLDER}/authorized_keys is missing: nobody can log in"],
        id="no authorized_keys",
    ),
    pytest.param(
        (entry(".", uid=1000, mode=0o770),),
        False,
        [
            f"{FOLDER} belongs to uid 1000, sshd wants root: chown 0 {FOLDER} (NFS: root_squash hides root)",
            f"{FOLDER} has mode 0770, sshd refuses what others may write: chmod go-w {FOLDER}",
            f"{FOLDER}/authorized_keys is missing: nobody can log in",
        ],
        id="all of it is told",
    ),
]


@pytest.mark.parametrize(("files", "launches", "told"), FAULTS)
def test_faults(files, launches, told):
    assert faults(FOLDER, files, launches=launches) == told


OTHER = "ssh-rsa AAAAother"
STRANGERS = [
    pytest.param((HOME, PRIVATE), (HOME, AUTHORIZED), False, id="the key is accepted"),
    pytest.param((HOME, PRIVATE), (HOME, entry("authorized_keys", public=[OTHER])), True, id="another key is"),
    pytest.param((HOME, PRIVATE), (HOME, entry("authorized_keys")), True, id="no key is"),
    pytest.param(
        (HOME, PRIVATE), (HOME, entry("authorized_keys", public=[OTHER, KEY])), False, id="the key among others is"
    ),
    pytest.param((HOME,), (HOME, AUTHORIZED), False, id="no key is offered: told elsewhere"),
    pytest.param((HOME, entry("id_rsa.pub", public=[KEY])), (HOME,), False, id="a public key is not offered"),
    pytest.param(
        (HOME, PRIVATE),
        (HOME, entry("authorized_keys"), entry("id_rsa.pub", public=[KEY])),
        True,
        id="nor is it an acceptance",
    ),
    pytest.param((HOME, PRIVATE), (HOME,), False, id="no authorized_keys: told elsewhere"),
]


@pytest.mark.parametrize(("primary", "secondary", "expected"), STRANGERS)
def test_strangers(primary, secondary, expected):
    assert strangers(primary, secondary) is expected


def look_into(folder):
    """Run the script as it runs in the image."""
    done = subprocess.run([sys.executable, "-c", LOOK, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs the ssh client's ssh-keygen")
def test_the_look_into_a_real_folder(tmp_path):
    key = ClusterKey.generate()
    tmp_path.chmod(0o750)
    (tmp_path / "id_mine").write_bytes(key.text())
    (tmp_path / "id_mine").chmod(0o644)  # ssh-keygen would not read it where it lies
    (tmp_path / "authorized_keys").write_text(
        f'# comment\n\n{key.public()} me@here\nfrom="10.0.0.0/8",no-pty ssh-rsa AAAAother you\n'
    )
    (tmp_path / "authorized_keys").chmod(0o640)
    (tmp_path / "known_hosts").write_text("[10.0.0.2]:12345 ssh-ed25519 AAAA\n")
    found = look_into(tmp_path)
    assert set(found) == {".", "id_mine", "authorized_keys", "known_hosts"}
    assert (found["."]["uid"], found["."]["mode"]) == (os.geteuid(), 0o750)
    assert (found["id_mine"]["private"], found["id_mine"]["public"]) == (True, [key.public()])
    assert found["authorized_keys"]["mode"] == 0o640
    assert found["authorized_keys"]["public"] == [key.public(), "ssh-rsa AAAAother"]
    assert (found["known_hosts"]["private"], found["known_hosts"]["public"]) == (False, [])


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs the ssh client's ssh-keygen")
def test_a_key_with_a_passphrase_gives_no_public_half(tmp_path):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "id_ed25519")], check=True
    )
    found = look_into(tmp_path)
    assert (found["id_ed25519"]["private"], found["id_ed25519"]["public"]) == (True, [])
    assert found["id_ed25519.pub"]["private"] is False


def test_a_link_to_nowhere_in_the_folder_does_not_end_the_look(tmp_path):
    (tmp_path / "authorized_keys").write_text(f"{KEY}\n")
    (tmp_path / "agent").symlink_to(tmp_path / "gone")
    found = look_into(tmp_path)
    assert found["authorized_keys"]["public"] == [KEY]


def test_key_types_are_told_apart_from_options(tmp_path):
    blob = base64.b64encode(b"x" * 40).decode()
    lines = [f"{kind} {blob} c" for kind in ("ecdsa-sha2-nistp256", "sk-ssh-ed25519@openssh.com", "ssh-dss")]
    (tmp_path / "authorized_keys").write_text("\n".join(lines))
    found = look_into(tmp_path)
    assert found["authorized_keys"]["public"] == [" ".join(line.split()[:2]) for line in lines]
