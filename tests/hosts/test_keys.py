"""The cluster's key: what each host gets of it, and how the client keeps it."""

from __future__ import annotations

import base64
import shutil
import stat
import struct
import subprocess
from dataclasses import fields

import pytest
from clusters import TWO, cluster_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key

from hvdcompose.errors import HvdError
from hvdcompose.hosts.keys import (
    ClusterKey,
    entries_for,
    forget_key,
    key_in_tar,
    keys_digest,
    keys_in_label,
    keys_tar,
    known_hosts,
    load_key,
    own_keys_digest,
    save_key,
    state_folder,
)
from hvdcompose.hosts.tars import Entry, files_of, pack

FIXED = ClusterKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
CLUSTER = cluster_of()
NFS = cluster_of(f"{TWO}ssh: {{volume: /mnt/nfs2/ssh}}\n")
ALPHA, BETA = CLUSTER.hosts
needs_ssh_keygen = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs the ssh client's ssh-keygen")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def raw(line: str) -> bytes:
    """Return the 32 bytes of the key in an OpenSSH public line, read by the format's own rules (RFC 4253, RFC 8709)."""
    kind, blob = line.split()[:2]
    data = base64.b64decode(blob, validate=True)
    (length,) = struct.unpack(">I", data[:4])
    assert (kind, data[4 : 4 + length]) == ("ssh-ed25519", b"ssh-ed25519")
    assert struct.unpack(">I", data[4 + length : 8 + length]) == (32,)
    return data[8 + length :]


def test_host_keys_are_the_same_every_time_and_for_each_host_another():
    again = ClusterKey.parse(FIXED.text())
    assert again is not None
    derived = {
        (cluster, host): FIXED.host_key(cluster, host).private_bytes_raw()
        for cluster, host in [("demo", "alpha"), ("demo", "beta"), ("other", "beta"), ("demo/beta", "x")]
    }
    assert len(set(derived.values())) == 4
    assert again.host_key("demo", "beta").private_bytes_raw() == derived["demo", "beta"]
    assert ClusterKey.generate().host_key("demo", "beta").private_bytes_raw() != derived["demo", "beta"]
    assert FIXED.private.private_bytes_raw() not in derived.values()


def test_known_hosts_has_a_line_per_secondary_with_its_port():
    three = cluster_of(
        "name: demo\nimage: i:1\nssh: {port: 2222}\nhosts:\n"
        "  a: {address: 10.0.0.1}\n  b: {address: 10.0.0.2}\n  c: {address: c.lan}\ntrain: {command: t}\n"
    )
    lines = known_hosts(three, FIXED).splitlines()
    assert [line.split()[0] for line in lines] == ["[10.0.0.2]:2222", "[c.lan]:2222"]
    for line, host in zip(lines, ("b", "c"), strict=True):
        key = FIXED.host_key("demo", host).public_key().public_bytes_raw()
        assert raw(line.split(" ", 1)[1]) == key


@needs_ssh_keygen
def test_openssh_reads_known_hosts_and_finds_the_host_in_it(tmp_path):
    path = tmp_path / "known_hosts"
    path.write_text(known_hosts(CLUSTER, FIXED))
    listed = subprocess.run(["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True).stdout
    (line,) = listed.splitlines()
    assert line.startswith("256 SHA256:") and line.endswith("(ED25519)")
    found = subprocess.run(["ssh-keygen", "-F", "[10.0.0.2]:12345", "-f", str(path)], capture_output=True)
    assert found.returncode == 0
    assert subprocess.run(["ssh-keygen", "-F", "10.0.0.2", "-f", str(path)], capture_output=True).returncode == 1


@needs_ssh_keygen
def test_openssh_reads_the_private_keys(tmp_path):
    for name, text, public in [
        ("cluster", FIXED.text(), FIXED.public()),
        ("host", dict_of(entries_for(CLUSTER, BETA, FIXED))["/hvd/host/ssh_host_ed25519_key"].content, None),
    ]:
        path = tmp_path / name
        path.write_bytes(text)
        path.chmod(0o600)
        told = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True)
        if public:
            assert told.stdout.split()[:2] == public.split()
        else:
            assert raw(told.stdout) == FIXED.host_key("demo", "beta").public_key().public_bytes_raw()


def dict_of(entries) -> dict[str, Entry]:
    return {entry.path: entry for entry in entries}


def modes(entries) -> dict[str, tuple[bool, int]]:
    return {entry.path: (entry.content is None, entry.mode) for entry in entries}


def test_what_the_launcher_gets():
    entries = entries_for(CLUSTER, ALPHA, FIXED)
    assert modes(entries) == {
        "/root/.ssh": (True, 0o700),
        "/root/.ssh/id_ed25519": (False, 0o600),
        "/hvd/host": (True, 0o700),
        "/hvd/host/known_hosts": (False, 0o644),
        "/hvd/host/filled": (False, 0o644),
    }
    sent = ClusterKey.parse(dict_of(entries)["/root/.ssh/id_ed25519"].content)
    assert sent is not None and sent.private.private_bytes_raw() == FIXED.private.private_bytes_raw()


@pytest.mark.parametrize("host", [ALPHA, BETA], ids=["launcher", "worker"])
def test_the_last_to_arrive_says_which_keys_these_are(host):
    last = entries_for(CLUSTER, host, FIXED)[-1]
    assert last.path == "/hvd/host/filled"
    assert last.content == f"{keys_digest(CLUSTER, host, FIXED)}\n".encode()


def test_what_a_worker_gets():
    entries = entries_for(CLUSTER, BETA, FIXED)
    assert modes(entries) == {
        "/root/.ssh": (True, 0o700),
        "/root/.ssh/authorized_keys": (False, 0o600),
        "/hvd/host": (True, 0o700),
        "/hvd/host/ssh_host_ed25519_key": (False, 0o600),
        "/hvd/host/filled": (False, 0o644),
    }
    line = dict_of(entries)["/root/.ssh/authorized_keys"].content.decode()
    assert line == f"{FIXED.public()} hvdcompose demo\n"


@pytest.mark.parametrize("cluster", [CLUSTER, NFS], ids=["volume", "nfs"])
def test_the_private_half_is_never_sent_to_a_worker(cluster):
    tar = keys_tar(cluster, cluster.hosts[1], FIXED)
    secret = FIXED.private.private_bytes_raw()
    assert secret not in tar and base64.b64encode(secret).rstrip(b"=") not in tar
    (host_key,) = [text for text in files_of(tar).values() if b"PRIVATE KEY" in text]
    private = load_ssh_private_key(host_key, password=None)
    assert private.private_bytes_raw() == FIXED.host_key("demo", "beta").private_bytes_raw()


def test_a_folder_of_the_user_s_is_left_alone():
    for host in NFS.hosts:
        assert all(entry.path.startswith("/hvd/host") for entry in entries_for(NFS, host, FIXED))


def test_folders_come_before_what_is_in_them():
    """`docker cp` makes a missing folder with a mode of its own."""
    for host in CLUSTER.hosts:
        paths = [entry.path for entry in entries_for(CLUSTER, host, FIXED)]
        assert paths.index("/root/.ssh") == 0
        assert all(paths.index("/hvd/host") < paths.index(path) for path in paths if path.startswith("/hvd/host/"))


def test_the_private_key_is_never_printed():
    secret = FIXED.private.private_bytes_raw()
    for text in (repr(FIXED), str(FIXED), f"{FIXED}", repr([FIXED]), repr({"key": FIXED})):
        assert secret.hex() not in text and repr(secret)[2:-1] not in text and "PRIVATE" not in text
    assert [field.name for field in fields(FIXED)] == ["private"], "a new field must be thought of in repr too"


DIGESTS = [
    pytest.param(CLUSTER, ALPHA, FIXED, id="launcher"),
    pytest.param(CLUSTER, BETA, FIXED, id="worker"),
    pytest.param(NFS, NFS.hosts[1], FIXED, id="worker with its own folder"),
    pytest.param(CLUSTER, BETA, ClusterKey.generate(), id="another key"),
    pytest.param(cluster_of(f"{TWO}ssh: {{port: 999}}\n"), ALPHA, FIXED, id="another port: known_hosts names it"),
    pytest.param(cluster_of(TWO.replace("10.0.0.2", "10.0.0.9")), ALPHA, FIXED, id="another address of a worker"),
    pytest.param(cluster_of(f"{TWO}ssh: {{volume: /mnt/b}}\n"), BETA, FIXED, id="another folder"),
]


def test_the_digest_is_another_for_other_keys():
    digests = [keys_digest(*case.values) for case in DIGESTS]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 16 and set(digest) <= set("0123456789abcdef") for digest in digests)


def test_the_digest_is_the_same_for_the_same_keys():
    same = cluster_of(f"{TWO}  np: 1\n")
    for host, other in zip(CLUSTER.hosts, same.hosts, strict=True):
        assert keys_digest(CLUSTER, host, FIXED) == keys_digest(same, other, FIXED)


HIDING = cluster_of(f"{TWO}  secrets: {{A: {{env: A}}, B: {{file: b}}}}\n")
VALUES = {"A": b"hunter2", "B": b"\0\n"}


@pytest.mark.parametrize("host", HIDING.hosts, ids=lambda host: host.name)
def test_secrets_come_with_the_keys_for_their_owner_s_eyes_only(host):
    entries = entries_for(HIDING, host, FIXED, VALUES)
    found = {path: mode for path, mode in modes(entries).items() if "secrets" in path}
    assert found == {
        "/hvd/host/secrets": (True, 0o700),
        "/hvd/host/secrets/A": (False, 0o400),
        "/hvd/host/secrets/B": (False, 0o400),
    }
    assert dict_of(entries)["/hvd/host/secrets/B"].content == b"\0\n"
    assert entries[-1].content == f"{keys_digest(HIDING, host, FIXED, VALUES)}\n".encode()
    paths = [entry.path for entry in entries]
    assert paths.index("/hvd/host/secrets") < paths.index("/hvd/host/secrets/A")


def test_the_digest_tells_keys_and_secrets_apart():
    host = HIDING.hosts[1]
    digest = keys_digest(HIDING, host, FIXED, VALUES)
    assert keys_in_label(digest) == own_keys_digest(HIDING, host, FIXED) == keys_digest(CLUSTER, BETA, FIXED)
    assert keys_digest(HIDING, host, FIXED, {**VALUES, "A": b"hunter3"}) != digest
    # where one value ends and the next begins is not to be moved
    assert keys_digest(HIDING, host, FIXED, {"A": b"hunter2\0B", "B": b"\n"}) != digest


def test_a_weak_secret_cannot_be_guessed_from_the_digest():
    """Whoever sees labels has no private key: the digest is another for every cluster's key."""
    digests = {ClusterKey.generate().secrets_digest("demo", VALUES) for _ in range(3)}
    assert len(digests) == 3
    assert FIXED.secrets_digest("demo", VALUES) == FIXED.secrets_digest("demo", dict(reversed(VALUES.items())))
    assert FIXED.secrets_digest("demo", VALUES) != FIXED.secrets_digest("other", VALUES)


def test_a_digest_without_the_values_is_a_mistake_of_ours():
    with pytest.raises(AssertionError):
        keys_digest(HIDING, HIDING.hosts[0], FIXED)


def test_the_client_keeps_its_key_for_this_user_only(state):
    assert load_key(CLUSTER) is None
    save_key(CLUSTER, FIXED)
    folder = state / "hvdcompose" / "clusters" / "demo@10.0.0.1"
    assert state_folder(CLUSTER) == folder
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    loaded = load_key(CLUSTER)
    assert loaded is not None and loaded.private.private_bytes_raw() == FIXED.private.private_bytes_raw()


def test_a_new_key_replaces_the_old_one_and_leaves_nothing_behind():
    save_key(CLUSTER, FIXED)
    other = ClusterKey.generate()
    save_key(CLUSTER, other)
    loaded = load_key(CLUSTER)
    assert loaded is not None and loaded.public() == other.public()
    assert [path.name for path in state_folder(CLUSTER).iterdir()] == ["id_ed25519"]
    forget_key(CLUSTER)
    forget_key(CLUSTER)
    assert load_key(CLUSTER) is None and not state_folder(CLUSTER).exists()


def test_clusters_of_one_name_keep_their_own_keys():
    other = cluster_of(TWO.replace("10.0.0.1", "10.0.1.1"))
    save_key(CLUSTER, FIXED)
    assert load_key(other) is None


def rsa() -> bytes:
    key = generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


@pytest.mark.parametrize(
    "content", [b"", b"nonsense\n", FIXED.text()[:100], rsa()], ids=["empty", "text", "cut", "rsa"]
)
def test_a_file_that_is_no_key_is_told_and_not_overwritten(content):
    save_key(CLUSTER, FIXED)
    path = state_folder(CLUSTER) / "id_ed25519"
    path.write_bytes(content)
    with pytest.raises(HvdError) as caught:
        load_key(CLUSTER)
    assert caught.value.message == f"{path} is not an ed25519 key"
    assert caught.value.hint == f"remove it: a new one is made, or the primary's adopted: rm {path}"
    assert path.read_bytes() == content


def test_a_key_that_cannot_be_read_or_written_is_told(state):
    (state_folder(CLUSTER) / "id_ed25519").mkdir(parents=True)
    with pytest.raises(HvdError, match=r"cannot read the cluster's key .*: Is a directory"):
        load_key(CLUSTER)
    with pytest.raises(HvdError, match=r"cannot write the cluster's key under .*: Is a directory"):
        save_key(CLUSTER, FIXED)
    shutil.rmtree(state)
    state.write_text("a file where the folder should be")
    with pytest.raises(HvdError, match=r"cannot write the cluster's key under .*: (Not a directory|File exists)"):
        save_key(CLUSTER, FIXED)


def test_a_key_comes_back_from_the_tar_of_docker_cp():
    found = key_in_tar(pack([Entry("/id_ed25519", FIXED.text(), 0o600)]))
    assert found is not None and found.public() == FIXED.public()
    assert key_in_tar(pack([Entry("/id_ed25519", b"nonsense", 0o600)])) is None
    assert key_in_tar(pack([Entry("/.ssh", None, 0o700)])) is None
