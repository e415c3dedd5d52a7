"""The way from the launcher to the workers: pinned host keys, and a user's own ssh folder as it lies on NFS."""

from __future__ import annotations

import subprocess

import pytest
from made import Made, errors_of

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
hosts:
  <h1>}
  <h2>}
  <h3>}
train:
  command: [sh, -c, "echo rank $HOROVOD_RANK says hi"]
"""
DONE = "all 3 ranks ended with exit 0"
OTHER_KEY = (
    "it shows another host key than the cluster's: changed outside hvdcompose, or not the worker; "
    "new keys for all: hvdcompose keys rotate"
)
# how Horovod and Open MPI call ssh, typed in the launcher: the name of the way, then the words
WAYS = {
    "gloo": "horovodrun -np 2 -H {h1}:1,{other}:1 -p {port} --network-interfaces eth0 --gloo --disable-cache hostname",
    "mpi": "horovodrun -np 2 -H {h1}:1,{other}:1 -p {port} --network-interfaces eth0 --mpi --disable-cache hostname",
    "mpirun": "mpirun --allow-run-as-root --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0"
    " --mca plm_rsh_args '-p {port} -o StrictHostKeyChecking=no' -np 2 -H {h1}:1,{other}:1 hostname",
    "ssh": "ssh -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@{other} hostname",
}


def in_launcher(made: Made, words: str) -> subprocess.CompletedProcess[str]:
    """Run a line in the launcher's container as the launcher itself runs Horovod: its folder is first on PATH."""
    script = f"export PATH=/hvd/bin:$PATH; timeout 60 {words}"
    return subprocess.run(
        ["docker", "--context", made.desk.host(1), "exec", made.container(1), "sh", "-c", script],
        env=made.desk.env, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_only_the_worker_s_own_host_key_is_trusted(cluster: Made) -> None:
    """In spite of horovodrun, which switches checking off on the command line of ssh."""
    h1, h2, h3 = (cluster.desk.host(n) for n in (1, 2, 3))
    cluster.write(CLUSTER.replace('"echo rank $HOROVOD_RANK says hi"]', "sleep 300]\n  np: 2"))
    cluster.hvd("apply")
    cluster.wait_for_log("run ")
    change = "cd /hvd && rm ssh_host_ed25519_key && ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key"
    image = cluster.inspect(3)["Config"]["Image"]
    volume = f"{cluster.name}-host:/hvd"
    cluster.docker(3, "run", "--rm", "-v", volume, "--entrypoint", "sh", image, "-c", change)
    cluster.docker(3, "restart", "--time", "1", cluster.container(3))
    cluster.docker(3, "exec", cluster.container(3), "/hvd/worker", "ready")

    for way, words in WAYS.items():
        for number, host in ((2, h2), (3, h3)):
            addresses = {"h1": cluster.desk.address(1), "other": cluster.desk.address(number), "port": cluster.port}
            ended = in_launcher(cluster, words.format(**addresses))
            told = f"{way}: {ended}"
            assert (ended.returncode == 0) == (number == 2), told
            assert (host in ended.stdout) == (number == 2), told
            if number == 3:
                assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ended.stdout + ended.stderr, told

    cluster.hvd("stop")
    cluster.write(CLUSTER)
    failed = cluster.hvd("apply", "--follow", code=1)
    assert f"{h1}     | hvdcompose: not launched, 1 of 2 workers not ready:\n" in failed.stdout
    assert f"{h1}     |   {h3} ({cluster.desk.address(3)}:{cluster.port}): {OTHER_KEY}\n" in failed.stdout
    rotated = cluster.hvd("keys", "rotate")
    assert "launch" not in rotated.stderr
    assert DONE in cluster.hvd("apply", "--follow").stdout


@pytest.fixture
def shared(cluster: Made) -> str:
    """An empty folder of root on three hosts, of mode 0700, in the place of one on NFS."""
    folder = f"/srv/{cluster.name}-ssh"
    for number in (1, 2, 3):
        on_host(cluster, number, f"mkdir -m 700 {folder}")
    cluster.write(CLUSTER.replace("ssh: {port: <port>}", f"ssh: {{port: <port>, volume: {folder}}}"))
    return folder


def on_host(made: Made, number: int, script: str, given: bytes | None = None) -> bytes:
    """Run a script on a virtual host."""
    words = ["docker", "--context", "default", "exec", "--interactive", f"hvdcompose-{made.desk.host(number)}"]
    return subprocess.run([*words, "sh", "-ec", script], input=given, check=True, capture_output=True).stdout


def fill(made: Made, folder: str, kind: str, name: str) -> None:
    """Put one key pair into the folder on every host, as an NFS server would show it, and authorize it."""
    make = f"ssh-keygen -q -t {kind} -N '' -f {name} && cp {name}.pub authorized_keys && tar -c ."
    files = on_host(made, 1, f"cd {folder} && {make}")
    for number in (2, 3):
        on_host(made, number, f"tar -C {folder} -x", files)


@pytest.mark.parametrize(("kind", "name"), [("rsa", "id_rsa"), ("ed25519", "cluster_key")])
def test_a_folder_of_one_s_own(cluster: Made, shared: str, kind: str, name: str) -> None:
    fill(cluster, shared, kind, name)
    assert DONE in cluster.hvd("apply", "--follow").stdout
    cluster.settled()
    files = on_host(cluster, 2, f"cd {shared} && ls").decode().split()
    assert files == sorted(["authorized_keys", name, f"{name}.pub"])  # nothing of ours is in it
    rotated = cluster.hvd("keys", "rotate").stderr
    assert f"new host keys; those to log in with stay as they are in {shared}, your own\n" in rotated
    assert rotated.count("the cluster's keys changed") == 2
    assert DONE in cluster.hvd("run").stdout
    cluster.hvd("down", "--volumes", "--yes")
    assert on_host(cluster, 2, f"cd {shared} && ls").decode().split() == files


def test_all_that_is_wrong_with_such_a_folder(cluster: Made, shared: str) -> None:
    h1, h2, h3 = (cluster.desk.host(n) for n in (1, 2, 3))
    fill(cluster, shared, "rsa", "id_rsa")
    on_host(cluster, 1, f"chmod 777 {shared}; chmod 644 {shared}/id_rsa")
    on_host(cluster, 2, f"chown 1000 {shared}; rm {shared}/authorized_keys")
    stranger = f"cd {shared}; ssh-keygen -q -t ed25519 -N '' -f x; mv x.pub authorized_keys; rm x"
    on_host(cluster, 3, f"{stranger}; chown 1000 authorized_keys; chmod 664 authorized_keys")
    modes = [
        f"{h1}: {shared} has mode 0777, sshd refuses what others may write: chmod go-w {shared}",
        f"{h1}: {shared}/id_rsa has mode 0644, ssh ignores a private key others may read: chmod 600 {shared}/id_rsa",
    ]
    owner = "belongs to uid 1000, sshd wants root: chown 0"
    second = [
        f"{h2}: {shared} {owner} {shared} (NFS: root_squash hides root)",
        f"{h2}: {shared}/authorized_keys is missing: nobody can log in",
    ]
    third = [
        f"{h3}: {shared}/authorized_keys {owner} {shared}/authorized_keys (NFS: root_squash hides root)",
        f"{h3}: {shared}/authorized_keys has mode 0664, sshd refuses what others may write: "
        f"chmod go-w {shared}/authorized_keys",
        f"{h3}: {shared}/authorized_keys has none of the keys that {h1} offers",
    ]
    refused = cluster.hvd("apply", code=4)
    hint = "  -> or name a volume in `ssh.volume` instead of a path: hvdcompose apply fills it with keys of its own\n"
    assert refused.stderr.endswith("error: " + "\n".join([*modes, *second, *third]) + f"\n{hint}")
    assert [cluster.containers(n) for n in (1, 2, 3)] == [[], [], []]

    on_host(cluster, 2, f"mv {shared} {shared}-away")
    failed = cluster.hvd("apply", code=4)
    missing = f"{h2}: it has no folder {shared}, which cluster.yaml mounts"
    remedy = f"  -> make it on {h2}, or change the volume in cluster.yaml\n"
    assert failed.stderr.endswith("error: " + "\n".join([missing, *modes, *third]) + f"\n{remedy}{hint}")
    assert [cluster.containers(n) for n in (1, 2, 3)] == [[], [], []]

    on_host(cluster, 1, f"chmod 700 {shared}; chmod 600 {shared}/id_rsa")
    public = on_host(cluster, 1, f"cat {shared}/id_rsa.pub")
    on_host(cluster, 2, f"mv {shared}-away {shared}; chown 0 {shared}")
    on_host(cluster, 3, f"chown 0 {shared}/authorized_keys; chmod 600 {shared}/authorized_keys")
    for number in (2, 3):
        on_host(cluster, number, f"cat >> {shared}/authorized_keys", public)
    assert DONE in cluster.hvd("apply", "--follow").stdout


def test_a_folder_without_a_key_and_one_whose_key_wants_a_passphrase(cluster: Made, shared: str) -> None:
    h1 = cluster.desk.host(1)
    for number in (2, 3):
        on_host(cluster, number, f"echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA' > {shared}/authorized_keys")
    refused = cluster.hvd("apply", code=4)
    assert errors_of(refused) == [f"error: {h1}: {shared} holds no private key: the launcher needs one"]
    on_host(cluster, 1, f"ssh-keygen -q -t ed25519 -N secret -f {shared}/id_ed25519")
    refused = cluster.hvd("apply", code=4)
    told = f"{h1}: {shared}: every private key wants a passphrase, and there is nobody to type it"
    assert errors_of(refused) == [f"error: {told}"]
    assert [cluster.containers(n) for n in (1, 2, 3)] == [[], [], []]
