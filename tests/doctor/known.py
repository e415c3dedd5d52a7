"""Facts of a cluster that is well, for tests to spoil one thing of."""

from __future__ import annotations

from dataclasses import replace

from clusters import cluster_of

from hvdcompose.doctor.facts import Facts, HostFacts
from hvdcompose.doctor.rules import findings
from hvdcompose.errors import HostError
from hvdcompose.hosts.images import ImageFacts
from hvdcompose.hosts.observed import Container, EngineFacts
from hvdcompose.hosts.probe import Disk, Gpu, Login, Nic, ProbeFacts, Reach, Refusal
from hvdcompose.hosts.ssh_folder import SshFile

TEXT = """\
name: demo
image: trainer:1
hosts:
  alpha: {address: 10.0.0.1}
  beta: {address: 10.0.0.2, context: rack-2}
  gamma: {address: 10.0.0.3}
train:
  command: python train.py
"""
PORT = 12345
GIB = 2**30
DOCKER0 = Nic(("172.17.0.1",))
TITAN = Gpu("TITAN V", 12288, "535.104.05", "GPU-1", (7, 0))
IMAGE = ImageFacts("aaaa", "amd64", 1000, "")
VERSIONS = {
    "python": "3.11.2",
    "horovod": "0.28.1",
    "torch": "2.6.0+cu126",
    "cuda": "12.6",
    "nccl": "2.21",
    "mpi": "4.1",
}
PROGRAMS = {name: f"/usr/bin/{name}" for name in ("horovodrun", "mpirun", "ssh", "orted", "orted over ssh")}
KEY = "ssh-ed25519 AAAA"


def entry(
    name: str, *, mode: int = 0o600, uid: int = 0, private: bool = False, public: tuple[str, ...] = ()
) -> SshFile:
    return SshFile(name, uid, mode, private, public, True)


def engine_of(name: str, version: str = "28.2.2") -> EngineFacts:
    return EngineFacts(f"id-{name}", version, False, "x86_64", cgroup_driver="systemd", cgroup_version="2")


PRIMARY_FOLDER = (entry(".", mode=0o700), entry("id_ed25519", private=True, public=(KEY,)))
WORKER_FOLDER = (entry(".", mode=0o700), entry("authorized_keys", public=(KEY,)))


def probe_of(address: str, *, primary: bool = False) -> ProbeFacts:
    return ProbeFacts(
        interfaces={"lo": Nic(("127.0.0.1",), 65536), "eth0": Nic((address,)), "docker0": DOCKER0},
        resolved=address,
        shm=Disk("/dev/shm", "tmpfs", total=GIB, free=GIB),
        limits={"memlock": -1, "nofile": 65536},
        disks=(Disk("/", "overlay", total=100 * GIB, free=50 * GIB, inodes=10**6),),
        programs={**PROGRAMS, "sshd": "/usr/sbin/sshd"},
        versions=VERSIONS,
        built_with=("torch", "NCCL", "MPI", "Gloo"),
        shell="/bin/bash",
        ssh_folder=PRIMARY_FOLDER if primary else WORKER_FOLDER,
        ports=(2000, 30000, 60000),
        cores=8,
        memory=64 * GIB,
    )


def well(text: str = TEXT, **changes) -> Facts:
    """Return facts of three hosts without a fault, workers not started yet."""
    cluster = cluster_of(text)
    hosts = {
        host.name: HostFacts(
            host,
            engine=EngineFacts(
                f"id-{host.name}", "28.2.2", False, "x86_64", cgroup_driver="systemd", cgroup_version="2"
            ),
            image=IMAGE,
            image_asked=True,
            probe=probe_of(host.address, primary=host.name == cluster.primary_name),
            skew=0.1,
        )
        for host in cluster.hosts
    }
    ports = (2000, 30000, 60000)
    reaches = {
        (one, other): (Reach(PORT, "ok"), *(Reach(port, "ok") for port in ports))
        for one in hosts
        for other in hosts
        if one != other
    }
    return replace(
        Facts(cluster, hosts, compose="2.40.3", client_image=IMAGE, reaches=reaches),
        **changes,
    )


def spoil(facts: Facts, name: str, **changes) -> Facts:
    """Change one host's facts; those of its helper container where they have that name."""
    host = facts.hosts[name]
    inner = {key: value for key, value in changes.items() if key in ProbeFacts.__dataclass_fields__}
    outer = {key: value for key, value in changes.items() if key not in inner}
    if inner:
        assert host.probe is not None
        outer["probe"] = replace(host.probe, **inner)
    return replace(facts, hosts={**facts.hosts, name: replace(host, **outer)})


def refused(facts: Facts, name: str, about: str, message: str, what: str = "", hint: str | None = "do it") -> Facts:
    """Have an engine refuse something of the helper container."""
    told = HostError(name, f"trying the run's container: {message}", hint=hint)
    return spoil(facts, name, refusals=(Refusal(about, told, what),))


def calls(facts: Facts, result: str, pairs, *, ssh: bool = True, ports: bool = False, detail: str = "") -> Facts:
    """Have the calls of some pairs end so."""
    reaches = dict(facts.reaches)
    for pair in pairs:
        first, *rest = reaches[pair]
        reaches[pair] = (
            Reach(PORT, result, detail) if ssh else first,
            *(Reach(one.port, result, detail) if ports else one for one in rest),
        )
    return replace(facts, reaches=reaches)


def running(name: str = "beta") -> Container:
    return Container("c0", "demo-worker-1", "running", "Up 2 days (healthy)", "trainer:1", "worker", "demo", name)


def to(target: str, facts: Facts) -> list[tuple[str, str]]:
    return [pair for pair in facts.reaches if pair[1] == target]


def told(facts: Facts) -> list[str]:
    """Return every finding as `level check host: message`."""
    return [f"{found.level} {found.check} {found}" for found in findings(facts)]


def login(ok: bool, reason: str = "") -> Login:
    return Login(ok, reason)
