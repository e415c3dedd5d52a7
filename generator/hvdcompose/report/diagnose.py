"""What the logs of a run that failed say about its cause, where that shows only then. Pure.

Each entry names the field case or the neighbours it is for; what can be seen before a run has a rule in doctor/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvdcompose.report.logs import Line

MOST = 5  # causes told of one run


@dataclass(frozen=True)
class Sign:
    """A text in a log, what it means and what to do; {host} is where it was written, {0} the pattern's first group.

    `follows`: often only what follows from another rank's end; told where nothing else is.
    """

    case: str
    pattern: str
    message: str
    remedy: str
    follows: bool = False


@dataclass(frozen=True)
class Cause:
    """A cause in words, on which hosts, and what to do."""

    hosts: tuple[str, ...]
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{', '.join(self.hosts)}: {self.message}"


DOCTOR = "hvdcompose doctor"
SHM = "`shm_size: 1g` for the host in cluster.yaml, or under `defaults`"
SIGNS = (
    Sign(
        "S03",
        r"Authentication refused: bad ownership or modes for (?:file|directory) (\S+)",
        "its sshd refused the keys: {0} has the wrong owner, or others may write to it",
        "hvdcompose doctor names owner and mode; hvdcompose keys rotate makes our volume anew",
    ),
    Sign(
        "S03",
        r"UNPROTECTED PRIVATE KEY FILE|Permissions \d+ for '([^']+)' are too open",
        "ssh ignored the private key: others may read it",
        "chmod 600 on the key in the ssh folder of the primary",
    ),
    Sign(
        "S08",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "a worker shows another host key than the cluster's: it was made outside hvdcompose, or is another machine",
        "hvdcompose keys rotate",
    ),
    Sign(
        "D01",
        r"^kex_exchange_identification|Session open refused by peer",
        "an sshd dropped a login: it is busy, or something else takes its connections",
        DOCTOR,
    ),
    Sign(
        "S07",
        r"orted: (?:command )?not found|orted: No such file|(?:bash|sh): (?:line \d+: |\d+: )?orted:",
        "an ssh session finds no `orted`: Open MPI is not where sshd looks for it",
        "in the Dockerfile: RUN ln -s $(command -v orted) /usr/local/bin/",
    ),
    Sign(
        "S02",
        r"No module named '?horovod",
        "the command's Python is another one than the image's with Horovod",
        "name that Python with its path in `command`, or put it first on the image's PATH",
    ),
    Sign(
        "H07",
        r"Extension horovod\.torch has not been built|Horovod has not been built with \w+ support",
        "the image's Horovod is built without what the command needs",
        "build it with HOROVOD_WITH_PYTORCH=1 against the image's torch: trainer/Dockerfile shows how",
    ),
    Sign(
        "H07",
        r"HorovodVersionMismatchError|horovod/\S*mpi_lib\S*: undefined symbol",
        "the image's Horovod was built against another torch than the one it meets",
        "in the Dockerfile install Horovod last, with pip install --no-cache-dir; no other torch from a volume",
    ),
    Sign(
        "H07",
        r"can't start new thread|pthread_create failed|libgomp: Thread creation failed",
        "its container may start no more threads: an old Docker does not know the image's glibc, or a limit is reached",
        "update Docker there (25 or later); else raise `ulimits: {nproc: ...}`, or take fewer loader workers",
    ),
    Sign(
        "N02",
        r"connect\(\) to (?:172\.\d+\.0\.1|192\.168\.122\.1) failed|received unexpected process identifier",
        "MPI dialled a bridge that every machine has (docker0, virbr0)",
        "no `btl_tcp_if_include` in `args` or `env`: hvdcompose names the NIC itself; or name it with `interface`",
    ),
    Sign(
        "N05",
        r"NoValidAddressesFound|Unable to connect to the .* on any of the interfaces|hosts to acknowledge",
        "the hosts do not reach each other on the random ports of Horovod",
        "hvdcompose doctor tries them and prints the firewall's rule",
    ),
    Sign(
        "N09",
        r"Call to connect (?:to \S+ )?timeout|socketPollConnect.*timed? ?out",
        "NCCL reached no other host in time: a firewall, or an address that others cannot reach",
        "hvdcompose doctor tries the ports between all hosts",
    ),
    Sign(
        "N09",
        r"socket(?:Poll|Start)Connect: [Cc]onnect to \S+ (?:returned|failed)(?!.*retrying)"
        r"|WARN (?:Call to connect|Connect to \S+) failed",
        "NCCL did not reach another host: a firewall, or an address that others cannot reach",
        "hvdcompose doctor tries the ports between all hosts; no NCCL_SOCKET_IFNAME in `env`",
        follows=True,
    ),
    Sign(
        "N05",
        r"unable to complete a TCP connection",
        "MPI's own connections between the hosts fail",
        DOCTOR,
        follows=True,
    ),
    Sign(
        "N10",
        r"ibv_open_device failed|ibv_(?:create_cq|modify_qp)\b.*failed",
        "NCCL found an RDMA card that the container may not use",
        '`env: {NCCL_IB_DISABLE: "1"}` under `train` trains over TCP',
    ),
    Sign(
        "G07",
        r"ibv_(?:create_qp|reg_mr\w*)\b.*(?:failed|Cannot allocate memory)",
        "RDMA may not lock enough memory in the container",
        "`ulimits: {memlock: -1}` under `defaults` in cluster.yaml",
    ),
    Sign(
        "G04",
        r"Failed to initialize NVML: (.+)",
        "its container lost its GPUs ({0}): systemctl daemon-reload, or a driver that was updated",
        "hvdcompose down, then hvdcompose apply; after an update of the driver reboot the host first",
    ),
    Sign(
        "G04",
        r"uncorrectable ECC error|fallen off the bus|GPU is lost",
        "a GPU of it fails: its hardware",
        "reboot the host; where that does not help, leave the GPU out with `gpus: {ids: [...]}`",
    ),
    Sign(
        "G05",
        r"system not yet initialized",
        "its NVSwitch GPUs wait for nvidia-fabricmanager",
        "on that host: install the driver's version of it, then systemctl enable --now nvidia-fabricmanager",
    ),
    Sign(
        "G05",
        r"no kernel image is available for execution on the device",
        "the image's CUDA has no code for this GPU",
        "hvdcompose doctor tells which GPUs it serves; an image for CUDA 12.6 still serves 5.0 to 9.0",
    ),
    Sign(
        "G05",
        r"CUDA driver version is insufficient for CUDA runtime version|forward compatibility was attempted",
        "its GPU driver is older than the image's CUDA needs",
        "update the driver there, or take an image with an older CUDA",
    ),
    Sign(
        "G06",
        r"posix_fallocate failed: No space|creating shared memory segment|insufficient shared memory|/dev/shm/nccl"
        r"|killed by signal: Bus error|out of shared memory",
        "its /dev/shm is used up",
        SHM,
    ),
    Sign(
        "G07",
        r"received 0 items of ancdata|Too many open files",
        "its container may open no more files",
        "`ulimits: {nofile: 65536}` under `defaults` in cluster.yaml",
    ),
    Sign(
        "G08",
        r"Duplicate GPU detected",
        "two ranks took the same GPU",
        "torch.cuda.set_device(hvd.local_rank()) in the script before anything goes to a GPU; `slots` at most `gpus`",
    ),
    Sign(
        "G08",
        r"invalid device ordinal|no CUDA-capable device is detected|No CUDA GPUs are available",
        "a rank asked for a GPU that its container does not have: inside they are numbered from 0",
        "take the GPU of hvd.local_rank() in the script; `slots` no more than the `gpus` of the host",
    ),
    Sign(
        "G05",
        r"CUDA out of memory|CUDA error: out of memory",
        "the memory of its GPU is used up",
        "a smaller batch, or fewer ranks for each GPU: `slots`",
    ),
    Sign(
        "H08",
        r"File not found or corrupted|BadGzipFile|Compressed file ended before|CRC check failed|zlib\.error",
        "a file of the data is torn: several ranks wrote it at once, or a download was cut off",
        "remove it there, and let `prepare` under `train` get the data, once for each host",
    ),
    Sign(
        "H08",
        r"Read-only file system: '?([^'\s]+)|Errno 30\D",
        "a rank wrote where it may only read",
        "write to $HVD_OUTPUT (`output` under `train`), or mount that volume without `read_only`",
    ),
    Sign(
        "H08",
        r"(?<!posix_fallocate failed: )No space left on device",
        "a disk is full",
        "docker system df on that host; hvdcompose doctor shows every volume",
    ),
    Sign(
        "H01",
        r"not enough slots|should not be larger than total available slots",
        "Horovod counts fewer slots than ranks",
        "`np` and `slots` in cluster.yaml; hvdcompose plan shows both",
    ),
    Sign(
        "H04",
        r"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
        "ranks waited for others that did not come",
        "look at their last lines: hvdcompose logs --rank N; `stall_shutdown: 600` under `horovod` ends such a run",
    ),
    Sign(
        "H03",
        r"unhandled system error|internal error - please report|ncclInvalidUsage",
        "NCCL failed between the hosts",
        "hvdcompose doctor compares versions, drivers and ports; `env: {NCCL_DEBUG: INFO}` has NCCL tell more",
        follows=True,
    ),
    Sign(
        "N05",
        r"(?:Connection (?:closed by|reset by) peer|Connect(?:ion)? (?:timed out|timeout)).*(?:gloo|pair\.cc)"
        r"|gloo.*(?:Connect timeout|Connection refused|[Tt]imed out)",
        "Gloo lost or never had its connections",
        "hvdcompose doctor tries the ports between all hosts",
        follows=True,
    ),
)  # fmt: skip
_MISSING = re.compile(r"^Missing ranks:|\[missing ranks?: ([\d, ]+)\]|missing ranks: ([\d, ]+)", re.IGNORECASE)


def diagnose(lines: Iterable[Line], ranks: Sequence[str]) -> list[Cause]:
    """Return the causes that the lines tell, in the order of SIGNS, each once with all hosts that told it.

    ranks: the host of each rank.
    """
    told: dict[int, dict[str, str]] = {}  # sign -> {host: the pattern's first group}
    missing: dict[int, None] = {}
    patterns = [re.compile(sign.pattern) for sign in SIGNS]
    for line in lines:
        for number, pattern in enumerate(patterns):
            found = pattern.search(line.text)
            if found:
                group = found.group(1) if pattern.groups and found.group(1) else ""
                told.setdefault(number, {}).setdefault(line.host, group)
        found = _MISSING.search(line.text)
        if found:
            numbers = found.group(1) or found.group(2) or ""
            missing |= {int(text): None for text in re.findall(r"\d+", numbers)}
    first = [number for number in sorted(told) if not SIGNS[number].follows]
    chosen = first or sorted(told)
    return [_cause(SIGNS[number], told[number], list(missing), ranks) for number in chosen[:MOST]]


def _cause(sign: Sign, told: dict[str, str], missing: list[int], ranks: Sequence[str]) -> Cause:
    message = sign.message.format(next(iter(told.values())))
    hosts = tuple(told)
    if sign.case == "H04" and missing:
        known = [rank for rank in missing if rank < len(ranks)]
        hosts = tuple(dict.fromkeys(ranks[rank] for rank in known)) or hosts
        message += f": missing {', '.join(f'rank {rank} ({ranks[rank]})' for rank in known)}"
    return Cause(hosts, message, sign.remedy)
