"""A user's own ssh folder: what is found in it, and what about it keeps logins out."""

from __future__ import annotations

import pytest

from hvdcompose.hosts.ssh_folder import SshFile, faults, strangers

FOLDER = "/mnt/nfs2/ssh"
KEY = "ssh-ed25519 AAAAkey"


def entry(name, *, uid=0, mode=0o600, private=False, public=(), readable=True):
    return SshFile(name, uid, mode, private, tuple(public), readable)


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
