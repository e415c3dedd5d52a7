"""Facts -> findings: each rule on the facts of the case that it is for, and silence on a cluster that is well."""

from __future__ import annotations

from dataclasses import replace

import pytest
from known import (
    GIB,
    IMAGE,
    PORT,
    PRIMARY_FOLDER,
    TEXT,
    TITAN,
    VERSIONS,
    WORKER_FOLDER,
    calls,
    engine_of,
    entry,
    login,
    probe_of,
    refused,
    running,
    spoil,
    to,
    told,
    well,
)

from hvdcompose.doctor.facts import version_of
from hvdcompose.doctor.rules import CHECKS, RULES, findings, state
from hvdcompose.errors import HostError, Refused
from hvdcompose.hosts.images import ImageFacts
from hvdcompose.hosts.observed import EngineFacts
from hvdcompose.hosts.probe import Disk, Gpu, Listing, Nic

MPI = TEXT + "horovod: {controller: mpi}\n"
GPUS = TEXT.replace("beta: {", "beta: {gpus: all, ")
PATH = TEXT + "ssh: {volume: /nfs/ssh}\n"
DATA = TEXT.replace("train:\n", "train:\n  volumes: {/data: /srv/data}\n")
NO_IB = TEXT + '  env: {NCCL_IB_DISABLE: "1"}\n'
OTHER = ImageFacts("bbbb", "amd64", 1000, "")


def rootless(version: str) -> EngineFacts:
    return EngineFacts(f"id-{version}", version, True, "x86_64")


def disk(path="/", free=50 * GIB, total=100 * GIB, **more):
    return Disk(path, "ext4", total=total, free=free, **more)


def with_gpus(*gpus: Gpu, text: str = GPUS, **changes):
    return spoil(well(text), "beta", gpus=gpus, gpus_asked=True, **changes)


def listings(**held: Listing):
    facts = well()
    for name, listing in held.items():
        facts = spoil(facts, name, listings={"/data": listing})
    return facts


BETA = to("beta", well())
FROM_BETA = [("beta", "alpha"), ("beta", "gamma")]


def test_a_cluster_that_is_well():
    assert told(well()) == []
    assert told(well(MPI)) == []
    assert told(well(PATH)) == []
    assert told(with_gpus(TITAN)) == []
    facts = spoil(well(), "beta", worker=running(), ssh_free=False, holder="SSH-2.0-OpenSSH_9.2")
    facts = calls(facts, "ssh", BETA)
    assert told(replace(facts, logins={"beta": login(True)})) == []
    assert {state(facts, findings(facts), check, "beta") for check in CHECKS} == {"ok", "-"}


# the facts, and all that is told of them: nothing else turns red
CASES = [
    pytest.param(
        spoil(well(), "beta", error=HostError("beta", "no answer", hint="wake it"), engine=None, probe=None),
        ["error reached beta: no answer"],
        id="D10 a host that does not answer",
    ),
    pytest.param(
        spoil(well(), "beta", engine=rootless("26.1.5"), probe=None),
        [
            "error rootful beta: its Docker 26.1.5 is rootless, and its host network is not the machine's: "
            "sshd would listen where no other host can reach it"
        ],
        id="N01 rootless",
    ),
    pytest.param(
        spoil(well(), "beta", engine=rootless("29.5.0"), interfaces={"tap0": Nic(("10.0.2.100",))}),
        [
            "error address beta: address 10.0.0.2 is on no interface of its containers (its engine is rootless); "
            "found tap0 10.0.2.100"
        ],
        id="N01 rootless and new, and its network is not the machine's all the same",
    ),
    pytest.param(spoil(well(), "beta", engine=rootless("29.5.0")), [], id="N01 rootless and new"),
    pytest.param(
        spoil(well(), "gamma", engine=EngineFacts("id-beta", "28.2.2", False, "x86_64")),
        ["error own engine gamma: same Docker engine as beta: the contexts rack-2 and gamma lead to one machine"],
        id="D04 one engine",
    ),
    pytest.param(
        spoil(
            well(), "beta", taken=(("port 12345 is taken by cluster other", "do"),), ssh_free=False, holder="SSH-2.0"
        ),
        ["error other clusters beta: port 12345 is taken by cluster other"],
        id="another cluster",
    ),
    pytest.param(
        spoil(well(), "beta", engine=engine_of("beta", "20.10.24")),
        ["note engine beta: its Docker 20.10.24 is old: it knows no CDI, and gets no fixes any more"],
        id="an engine of 2020",
    ),
    pytest.param(spoil(well(), "beta", engine=engine_of("beta", "25.0.1")), [], id="one of 2024"),
    pytest.param(
        replace(spoil(well(), "beta", image=OTHER, probe=None), image_differs=frozenset({"beta"})),
        ["error image beta: its image trainer:1 is bbbb, this machine's is aaaa"],
        id="H03 another image of one name",
    ),
    pytest.param(
        replace(spoil(well(), "beta", image=None, probe=None), image_comes=frozenset({"beta"})),
        ["note image beta: it has no image trainer:1 yet: what needs it is not looked at"],
        id="D09 no image yet",
    ),
    pytest.param(
        replace(well(), image_refused=Refused("beta: it is arm64, the image trainer:1 is for amd64", hint="build")),
        ["error image beta: it is arm64, the image trainer:1 is for amd64"],
        id="D09 another CPU",
    ),
    pytest.param(
        refused(spoil(well(), "beta", probe=None), "beta", "python", "the image has no python3"),
        ["error image beta: the image has no python3"],
        id="an image without Python",
    ),
    pytest.param(
        spoil(well(), "alpha", programs={"ssh": "/usr/bin/ssh"}),
        ["error programs alpha: this image has no horovodrun"],
        id="H07 no horovodrun",
    ),
    pytest.param(spoil(well(), "beta", programs={"sshd": "x"}), [], id="the workers need no horovodrun"),
    pytest.param(
        spoil(well(), "beta", programs={"ssh": "/usr/bin/ssh"}),
        ["error programs beta: this image has no sshd"],
        id="no sshd",
    ),
    pytest.param(
        spoil(well(), "beta", shell="/usr/sbin/nologin"),
        ["error programs beta: root's shell in this image is /usr/sbin/nologin: nobody can log in"],
        id="S07 root may not log in",
    ),
    pytest.param(
        spoil(well(), "beta", home="/home/root"),
        ["error programs beta: root's home in this image is /home/root"],
        id="S07 root's keys are looked for elsewhere",
    ),
    pytest.param(
        spoil(well(MPI), "beta", programs={"sshd": "x", "mpirun": "x", "orted": "/opt/mpi/bin/orted"}),
        ["error programs beta: orted is at /opt/mpi/bin/orted, where an ssh session does not look for it"],
        id="S07 orted is not found over ssh",
    ),
    pytest.param(
        spoil(well(), "beta", programs={"sshd": "x", "orted": "/opt/mpi/bin/orted"}),
        [],
        id="S07 not needed by Gloo",
    ),
    pytest.param(
        spoil(well(MPI), "beta", built_with=("torch", "Gloo")),
        ["error programs beta: this image's Horovod is built without MPI"],
        id="H07 no MPI",
    ),
    pytest.param(
        spoil(well(), "beta", built_with=()),
        ["note programs beta: this image has torch, and a Horovod built without it"],
        id="H07 no torch in Horovod",
    ),
    pytest.param(
        refused(spoil(well(), "beta", probe=None), "beta", "", "something new"),
        ["error container beta: something new"],
        id="G02 an engine's own words",
    ),
    pytest.param(
        refused(well(), "beta", "folder", "no folder", "/srv/data"),
        ["error folders beta: it has no folder /srv/data, which cluster.yaml mounts"],
        id="D02 no folder",
    ),
    pytest.param(
        spoil(well(), "beta", disks=(disk(), disk("/data", error="Permission denied", writable=False))),
        ["error folders beta: /data cannot be read in the container: Permission denied (ext4)"],
        id="S10 root_squash",
    ),
    pytest.param(
        spoil(well(DATA), "beta", disks=(disk(), disk("/data", writable=False))),
        ["error folders beta: /data cannot be written in the container"],
        id="H08 a folder that can only be read",
    ),
    pytest.param(
        spoil(
            well(DATA.replace("/srv/data}", "{source: /srv/data, read_only: true}}")),
            "beta",
            disks=(disk(), disk("/data", writable=False)),
        ),
        [],
        id="H08 as cluster.yaml says",
    ),
    pytest.param(
        refused(spoil(well(), "beta", probe=None), "beta", "disk", "its disk is full"),
        ["error disk beta: its disk is full: there is no room for a container"],
        id="no space for a container",
    ),
    pytest.param(
        replace(
            refused(spoil(well(), "beta", image=None, probe=None), "beta", "disk", "its disk is full"),
            image_comes=frozenset({"beta"}),
        ),
        ["error disk beta: its disk is full: there is no room for the image"],
        id="no space for the image",
    ),
    pytest.param(
        calls(spoil(well(), "beta", interfaces={"eth0": Nic(("10.0.0.2",), up=False)}), "no route", BETA, ports=True),
        ["error address beta: its eth0, which has the address 10.0.0.2, is down"],
        id="a cable that is out",
    ),
    pytest.param(
        spoil(well(), "beta", disks=(disk(), disk("/data", free=2**20, total=100 * 2**20))),
        ["error disk beta: the volume at /data is full: 1 MiB of 100 MiB left"],
        id="a volume that is full",
    ),
    pytest.param(
        spoil(well(), "beta", disks=(disk(), disk("/data", free=9 * 2**20, total=10 * 2**20))), [], id="a small volume"
    ),
    pytest.param(
        spoil(well(), "beta", disks=(disk(inodes=0),)),
        ["error disk beta: no file can be made at /: the file system has no inode left"],
        id="no inodes",
    ),
    pytest.param(
        spoil(well(), "beta", disks=(disk(free=GIB // 2),)),
        ["note disk beta: its disk has 512 MiB of 100.0 GiB left"],
        id="little space",
    ),
    pytest.param(
        spoil(well(), "beta", shm=disk("/dev/shm", total=2**20)),
        ["error shm beta: its /dev/shm is 1 MiB: NCCL and data loaders fail in it"],
        id="G06 small /dev/shm",
    ),
    pytest.param(spoil(well(), "beta", shm=disk("/dev/shm", total=2**26)), [], id="G06 Docker's own for one rank"),
    pytest.param(
        with_gpus(TITAN, TITAN, text=GPUS.replace("all", "2"), shm=disk("/dev/shm", total=2**26)),
        ["note shm beta: its /dev/shm is 64 MiB for 2 ranks with GPUs"],
        id="G06 Docker's own for two with GPUs",
    ),
    pytest.param(
        refused(well(), "beta", "ulimits", "may not"),
        ["error limits beta: its engine may not set the ulimits of cluster.yaml"],
        id="G07 ulimits",
    ),
    pytest.param(
        spoil(well(), "beta", rdma_cards=("mlx5_0",), rdma_device=True, limits={"memlock": 2**23}),
        ["error limits beta: its container may lock 8 MiB of memory, and RDMA pins far more"],
        id="G07 memlock with RDMA",
    ),
    pytest.param(spoil(well(), "beta", limits={"memlock": 2**16, "nofile": 65536}), [], id="G07 memlock without"),
    pytest.param(
        spoil(well(), "beta", limits={"nofile": 256}),
        ["note limits beta: its container may open 256 files"],
        id="few open files",
    ),
    pytest.param(
        refused(well(GPUS), "beta", "gpus", "its Docker engine has no NVIDIA GPU runtime"),
        ["error gpus beta: its Docker engine has no NVIDIA GPU runtime"],
        id="G01 no toolkit",
    ),
    pytest.param(
        with_gpus(gpus_error="Driver/library version mismatch"),
        ["error gpus beta: nvidia-smi fails in the container: Driver/library version mismatch"],
        id="G04 an updated driver",
    ),
    pytest.param(
        with_gpus(TITAN, TITAN),
        ["error gpu slots beta: `gpus: all` gives 2 GPUs, and `slots` does not say how many ranks use them"],
        id="H01 uncounted GPUs",
    ),
    pytest.param(
        with_gpus(TITAN, text=GPUS.replace("all", "all, slots: 2"), shm=disk("/dev/shm", total=GIB)),
        ["error gpu slots beta: 2 slots but only 1 GPU there"],
        id="H01 more slots than GPUs",
    ),
    pytest.param(
        with_gpus(text=GPUS.replace("all", "all, slots: 2")), [], id="an image without nvidia-smi counts nothing"
    ),
    pytest.param(
        with_gpus(TITAN, text=GPUS.replace("all", "2")),
        ["error gpu slots beta: its container sees 1 of the 2 GPUs that cluster.yaml reserves"],
        id="G08 fewer GPUs than reserved",
    ),
    pytest.param(
        with_gpus(TITAN, worker=running(), worker_gpus=0),
        ["error gpu slots beta: its worker sees 0 of 1 GPUs any more (systemctl daemon-reload?)"],
        id="G04 GPUs that vanished",
    ),
    pytest.param(
        with_gpus(replace(TITAN, driver="470.82")),
        ["error cuda beta: its driver 470.82 does not serve CUDA 12.6 of the image"],
        id="G05 an old driver",
    ),
    pytest.param(
        with_gpus(replace(TITAN, driver="580.1"), versions={**VERSIONS, "torch": "2.9.0+cu130", "cuda": "13.0"}),
        [
            "error cuda beta: torch 2.9.0+cu130 with CUDA 13.0 has no code for its TITAN V (compute capability 7.0)",
            "error versions beta: its torch is 2.9.0+cu130, the others' 2.6.0+cu126",
            "error versions beta: its cuda is 13.0, the others' 12.6",
        ],
        id="G05 CUDA 13 and a TITAN V",
    ),
    pytest.param(
        with_gpus(TITAN, gpu_driver=True, versions={**VERSIONS, "cuda": "", "torch": "2.6.0+cpu"}),
        [
            "error cuda beta: the image's torch 2.6.0+cpu is built without CUDA: its GPUs would stay idle",
            "error versions beta: its torch is 2.6.0+cpu, the others' 2.6.0+cu126",
            "error versions beta: its cuda is missing, the others' 12.6",
        ],
        id="G05 torch without CUDA",
    ),
    pytest.param(
        with_gpus(replace(TITAN, uuid="MIG-1"), replace(TITAN, uuid="MIG-2"), text=GPUS.replace("all", "2")),
        ["note gpu slots beta: 2 ranks on slices of a GPU (MIG)"],
        id="G08 MIG",
    ),
    pytest.param(
        with_gpus(TITAN, engine=EngineFacts("id-b", "28", False, "x86_64", False, "systemd", "1")),
        ["note gpus beta: `systemctl daemon-reload` there would take the GPUs from a worker that runs"],
        id="G04 systemd's cgroups",
    ),
    pytest.param(
        spoil(well(), "beta", resolved="", unresolved="Name or service not known"),
        ["error address beta: address 10.0.0.2 does not resolve to IPv4 there: Name or service not known"],
        id="N09 no IPv4 address",
    ),
    pytest.param(
        spoil(well(TEXT.replace("10.0.0.2", "beta.lan")), "beta", resolved="127.0.1.1"),
        ["error address beta: address beta.lan is 127.0.1.1 to itself (/etc/hosts?): no other host reaches that"],
        id="S01 a name that is the loopback",
    ),
    pytest.param(
        spoil(well(), "alpha", interfaces={"eth0": Nic(("10.9.9.9",))}),
        ["error address alpha: address 10.0.0.1 is on no interface of its containers; found eth0 10.9.9.9"],
        id="S01 the address of another machine",
    ),
    pytest.param(
        spoil(well(TEXT.replace("10.0.0.2", "10.0.0.2, interface: enp1s0")), "beta"),
        [
            "error address beta: no interface enp1s0 with an IPv4 address there; "
            "found docker0 172.17.0.1, eth0 10.0.0.2, lo 127.0.0.1"
        ],
        id="N03 an interface that is not there",
    ),
    pytest.param(
        spoil(well(), "beta", interfaces={"enp1s0": Nic(("10.0.0.2",)), "docker0": Nic(("172.17.0.1",))}),
        [],
        id="N03 another name for the NIC is no fault",
    ),
    pytest.param(
        spoil(
            well(TEXT.replace("10.0.0.2", "10.0.0.2, interface: eth1")),
            "beta",
            interfaces={"eth0": Nic(("10.0.0.2",)), "eth1": Nic(("10.7.0.2",))},
        ),
        ["error address beta: interface eth1 is not the one that has the address 10.0.0.2: that is eth0"],
        id="N03 the wrong interface",
    ),
    pytest.param(
        spoil(
            well(TEXT.replace("10.0.0.2", "10.0.0.2, interface: docker0")),
            "beta",
            interfaces={"docker0": Nic(("172.17.0.1",))},
        ),
        ["error address beta: interface docker0 has the address 172.17.0.1, and another host has it too"],
        id="N02 docker0",
    ),
    pytest.param(
        spoil(well(), "beta", interfaces={"eth0": Nic(("10.0.0.2",), 9000)}),
        ["note mtu beta: its eth0 has MTU 9000, the others' 1500"],
        id="MTU",
    ),
    pytest.param(
        calls(well(), "timeout", BETA),
        [f"error ssh port beta: from alpha, gamma to it, the ssh port {PORT}: no answer, a firewall drops what comes"],
        id="N04 dropped",
    ),
    pytest.param(
        calls(well(), "refused", BETA),
        [
            f"error ssh port beta: from alpha, gamma to it, the ssh port {PORT}: refused, though something listens "
            "there: a firewall rejects it, or it is another machine's address"
        ],
        id="N04 rejected",
    ),
    pytest.param(
        calls(well(), "no route", BETA, detail="No route to host"),
        [
            f"error ssh port beta: from alpha, gamma to it, the ssh port {PORT}: "
            "no route, or a firewall that says so (No route to host)"
        ],
        id="N04 rejected by ICMP",
    ),
    pytest.param(
        calls(well(), "closed", BETA),
        [
            f"error ssh port beta: from alpha, gamma to it, the ssh port {PORT}: accepted, then closed before a word: "
            "what takes the connection is not the worker (a published port, a proxy)"
        ],
        id="N01 the story's second failure",
    ),
    pytest.param(
        calls(well(), "ssh", BETA, detail="SSH-2.0-OpenSSH_8"),
        [
            f"error ssh port beta: from alpha, gamma to it, the ssh port {PORT}: something else answers "
            "(SSH-2.0-OpenSSH_8)"
        ],
        id="S02 another machine's sshd",
    ),
    pytest.param(
        calls(well(), "timeout", [("gamma", "beta")]),
        [f"note ssh port beta: from gamma to it, the ssh port {PORT}: no answer, a firewall drops what comes"],
        id="N04 between workers, which no run needs",
    ),
    pytest.param(
        calls(well(), "timeout", FROM_BETA, ssh=False, ports=True),
        [
            "error ports beta: from it to alpha, gamma, TCP ports 2000, 30000, 60000: "
            "no answer, a firewall drops what comes"
        ],
        id="N05 outgoing",
    ),
    pytest.param(
        calls(well(), "timeout", BETA, ssh=False, ports=True),
        [
            "error ports beta: from alpha, gamma to it, TCP ports 2000, 30000, 60000: "
            "no answer, a firewall drops what comes"
        ],
        id="N05 only the ssh port is open",
    ),
    pytest.param(
        calls(well(), "refused", [("gamma", "beta")], ssh=False, ports=True),
        [
            "error ports beta: from gamma to it, TCP ports 2000, 30000, 60000: refused, though something listens "
            "there: a firewall rejects it, or it is another machine's address"
        ],
        id="N05 between workers, which a run does need",
    ),
    pytest.param(
        calls(well(), "other", BETA, ssh=False, ports=True, detail="220 mail"),
        ["error ports beta: from alpha, gamma to it, TCP ports 2000, 30000, 60000: something else answers (220 mail)"],
        id="another machine answers",
    ),
    pytest.param(
        calls(well(), "stalled", BETA, ssh=False, ports=True),
        [
            "error mtu beta: from alpha, gamma to it, TCP ports 2000, 30000, 60000: "
            "it begins, then stalls: large packets are lost on the way (an MTU that differs, a tunnel)"
        ],
        id="large packets are lost",
    ),
    pytest.param(
        calls(spoil(well(), "beta", interfaces={"lo": Nic(("127.0.0.1",))}), "no route", BETA + FROM_BETA, ports=True),
        ["error address beta: address 10.0.0.2 is on no interface of its containers; found lo 127.0.0.1"],
        id="a host without its network: what follows is not told again",
    ),
    pytest.param(
        spoil(well(), "beta", rdma_cards=("mlx5_0",)),
        ["note rdma beta: its RDMA card mlx5_0 is not used: training goes over TCP"],
        id="N10 RDMA",
    ),
    pytest.param(
        spoil(well(NO_IB), "beta", rdma_cards=("mlx5_0",)),
        [],
        id="N10 as it is meant",
    ),
    pytest.param(
        calls(spoil(well(), "beta", ssh_free=False, holder="SSH-2.0-OpenSSH_8"), "ssh", BETA),
        [f"error port free beta: another program listens on port {PORT}: SSH-2.0-OpenSSH_8"],
        id="S02 the machine's own sshd",
    ),
    pytest.param(
        spoil(well(), "alpha", ssh_free=False, holder="SSH-2.0-OpenSSH_8"), [], id="S02 the launcher listens to nobody"
    ),
    pytest.param(
        spoil(well(), "beta", ssh_folder=(entry(".", mode=0o777), WORKER_FOLDER[1])),
        ["error ssh folder beta: /root/.ssh has mode 0777, sshd refuses what others may write: chmod go-w /root/.ssh"],
        id="S03 modes in our own volume",
    ),
    pytest.param(spoil(well(), "beta", ssh_folder=(entry(".", mode=0o755),)), [], id="a volume that is not filled yet"),
    pytest.param(
        spoil(well(PATH), "beta", ssh_folder=(WORKER_FOLDER[0], entry("authorized_keys", uid=1000, public=("k",)))),
        [
            "error ssh folder beta: /nfs/ssh/authorized_keys belongs to uid 1000, sshd wants root: "
            "chown 0 /nfs/ssh/authorized_keys (NFS: root_squash hides root)",
            "error ssh folder beta: /nfs/ssh/authorized_keys has none of the keys that alpha offers",
        ],
        id="S03 S04 a folder of one's own",
    ),
    pytest.param(
        replace(
            calls(spoil(well(), "beta", worker=running(), ssh_free=False), "ssh", BETA),
            logins={"beta": login(False, "it shows another host key")},
        ),
        ["error login beta: the launcher cannot log in: it shows another host key"],
        id="S08 another host key",
    ),
    pytest.param(
        replace(
            calls(spoil(well(), "beta", worker=running(), ssh_free=False), "timeout", BETA),
            logins={"beta": login(False, "no answer")},
        ),
        [f"error ssh port beta: from alpha, gamma to it, the ssh port {PORT}: no answer, a firewall drops what comes"],
        id="a login that a firewall keeps out is not told twice",
    ),
    pytest.param(
        spoil(well(), "beta", versions={**VERSIONS, "horovod": "0.27.0"}),
        ["error versions beta: its horovod is 0.27.0, the others' 0.28.1"],
        id="H03 versions",
    ),
    pytest.param(spoil(well(), "beta", versions={**VERSIONS, "python": "3.11.9"}), [], id="H03 a patch of Python"),
    pytest.param(spoil(well(), "beta", versions={**VERSIONS, "mpi": "5.0"}), [], id="H03 MPI is not used"),
    pytest.param(
        spoil(well(MPI), "beta", versions={**VERSIONS, "mpi": ""}),
        ["error versions beta: its mpi is missing, the others' 4.1"],
        id="H03 MPI is used",
    ),
    pytest.param(
        spoil(well(), "beta", skew=-90.0),
        ["note clock beta: its clock is 90 s behind the others'"],
        id="clock",
    ),
    pytest.param(
        listings(alpha=Listing(3, "a"), beta=Listing(2, "b"), gamma=Listing(3, "a")),
        ["note data beta: its /data holds 2 files, the others 3"],
        id="H08 data",
    ),
]


@pytest.mark.parametrize(("facts", "expected"), CASES)
def test_what_is_told(facts, expected):
    assert told(facts) == expected


@pytest.mark.parametrize(("facts", "expected"), [case for case in CASES if case.values[1]])
def test_the_cell_of_that_check_and_host_is_the_one_that_is_not_ok(facts, expected):
    found = findings(facts)
    cells = {
        (finding.check, finding.host): "FAIL" if finding.level == "error" else "note" for finding in reversed(found)
    }
    for check in CHECKS:
        for name in facts.hosts:
            cell = state(facts, found, check, name)
            assert cell == cells.get((check, name)) or ((check, name) not in cells and cell in ("ok", "-"))


def test_every_rule_finds_something_in_one_of_the_cases():
    silent = [rule.name for rule in RULES if not any(rule(case.values[0]) for case in CASES)]
    assert silent == ["compose_is_there"]  # this machine's own, below


REMEDY_COMPOSE = "Debian, Ubuntu: apt install docker-compose-v2 (or docker-compose-plugin from Docker's own packages)"
COMPOSE = [
    ("", "this machine has no `docker compose`; 2.23.1 or later is needed"),
    ("1.29.2", "this machine's `docker compose` is 1.29.2; 2.23.1 or later is needed"),
    ("2.22.0", "this machine's `docker compose` is 2.22.0; 2.23.1 or later is needed"),
    ("v2.22.0-desktop.2", "this machine's `docker compose` is v2.22.0-desktop.2; 2.23.1 or later is needed"),
    ("dev", "this machine's `docker compose` is dev; 2.23.1 or later is needed"),
    ("2.23.0", "this machine's `docker compose` is 2.23.0; 2.23.1 or later is needed"),
    ("2.23.1", None),
    ("2.24", None),
    ("2.40.3", None),
    ("v2.23.1", None),
    ("5.0.0", None),
    ("2.26.1-4", None),
]


@pytest.mark.parametrize(("version", "sentence"), COMPOSE)
def test_compose(version, sentence):
    found = findings(well(compose=version))
    assert [str(finding) for finding in found] == ([sentence] if sentence else [])
    assert all((finding.host, finding.remedy) == ("", REMEDY_COMPOSE) for finding in found)


ROOTLESS = [
    ("20.10.24", True),
    ("26.1.5+dfsg1", True),
    ("29.4.1", True),
    ("29.4", True),
    ("", True),
    ("29.5.0", False),
    ("29.5.0-rc.1", False),
    ("30.0.0", False),
]


@pytest.mark.parametrize(("version", "is_refused"), ROOTLESS)
def test_rootless_engines(version, is_refused):
    found = findings(spoil(well(), "beta", engine=rootless(version)))
    assert [finding.host for finding in found] == (["beta"] if is_refused else [])
    for finding in found:
        assert finding.remedy == (
            "point its context (rack-2) to a rootful engine, usually unix:///var/run/docker.sock or ssh://USER@HOST; "
            "or use Docker 29.5 or later there"
        )


def test_engines_that_do_not_tell_who_they_are_are_not_taken_for_one():
    nameless = EngineFacts("", "28.2.2", False, "x86_64")
    assert told(spoil(spoil(well(), "alpha", engine=nameless), "beta", engine=nameless)) == []


def test_errors_come_first_then_the_order_to_fix_them():
    facts = spoil(well(compose="2.22.0"), "beta", engine=rootless("20.10.24"), probe=None)
    facts = calls(spoil(facts, "alpha", skew=100.0), "timeout", to("gamma", facts))
    assert [(found.level, found.check) for found in findings(facts)] == [
        ("error", "compose"),
        ("error", "rootful"),
        ("error", "ssh port"),
        ("note", "clock"),
    ]


def test_the_firewall_rule_is_printed_with_the_callers_addresses():
    (found,) = findings(calls(well(), "timeout", BETA))
    assert found.remedy.splitlines() == [
        "on beta, let the other hosts in on all TCP ports: iptables -I INPUT -p tcp -s 10.0.0.1,10.0.0.3 -j ACCEPT",
        "with ufw: ufw allow proto tcp from 10.0.0.1; ufw allow proto tcp from 10.0.0.3",
        "with firewalld: firewall-cmd --permanent --zone=trusted --add-source=10.0.0.1 --add-source=10.0.0.3 "
        "&& firewall-cmd --reload",
    ]


def test_an_error_of_an_engine_brings_its_own_remedy():
    (found,) = findings(refused(well(GPUS), "beta", "gpus", "no runtime", hint="install it"))
    assert found.remedy == "install it"
    (found,) = findings(refused(well(GPUS), "beta", "gpus", "no runtime", hint=None))
    assert found.remedy == "`gpus: none` runs there without GPUs"


def test_torch_s_own_wheels_for_cuda_12_8_have_no_code_for_volta():
    volta = with_gpus(TITAN, versions={**VERSIONS, "torch": "2.8.0+cu128", "cuda": "12.8"})
    assert any("has no code for its TITAN V" in line for line in told(volta))
    own = with_gpus(TITAN, versions={**VERSIONS, "torch": "2.8.0", "cuda": "12.8"})
    assert not any("has no code" in line for line in told(own))


def test_two_hosts_that_differ_the_first_is_taken_for_right():
    text = TEXT.replace("  gamma: {address: 10.0.0.3}\n", "")
    assert told(spoil(well(text), "beta", versions={**VERSIONS, "nccl": "2.19"})) == [
        "error versions beta: its nccl is 2.19, the others' 2.21"
    ]


def test_unknown_hosts_say_nothing():
    """What was not asked is no fault: apply asks the engines first, and the containers later."""
    facts = well()
    bare = {name: replace(host, probe=None, skew=None, image=None) for name, host in facts.hosts.items()}
    assert told(replace(facts, hosts=bare, reaches={})) == []


def test_the_known_probe_is_what_the_tests_think_it_is():
    assert probe_of("10.0.0.1", primary=True).ssh_folder == PRIMARY_FOLDER
    assert IMAGE != OTHER


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("29.5.1-rc.2", (29, 5, 1)),
        ("v2.40.3", (2, 40, 3)),
        ("26.1.5+dfsg1", (26, 1, 5)),
        (" 2.23\n", (2, 23)),
        ("2", (2,)),
        ("dev", ()),
        ("", ()),
    ],
)
def test_versions(text, version):
    assert version_of(text) == version


def test_a_login_that_times_out_is_not_put_down_to_keys():
    """An address that nobody has: new keys would change nothing."""
    late = replace(
        spoil(well(), "beta", worker=running(), ssh_free=False),
        logins={"beta": login(False, "Connection to 10.9.9.9 port 12345 timed out")},
    )
    (found,) = [finding for finding in findings(late) if finding.check == "login"]
    assert "keys" not in found.remedy and "address" in found.remedy


def test_calls_that_say_nothing_are_not_shown_as_well():
    """A host whose link is down reaches nobody: of its ports nothing is known, and the others' were tried."""
    down = spoil(well(), "beta", interfaces={"eth0": Nic(("10.0.0.2",), up=False)})
    cells = {name: state(down, findings(down), "ports", name) for name in down.hosts}
    assert cells == {"alpha": "ok", "beta": "-", "gamma": "ok"}
