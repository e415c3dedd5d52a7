"""What Docker, Compose and ssh say when they fail, put into one sentence with what to do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A failure that is recognised by its text; `{0}` in the sentences is the pattern's first group.

    about: what of a container's making it stands for, "" for none: folder, gpus, ulimits, disk, image or python.
    """

    pattern: str
    message: str
    hint: str | None = None
    about: str = ""


NO_REGISTRY = "without a registry: have the image on this machine, and apply sends it (`pull: missing`)"
KNOWN = (
    Known(
        r'context "?([^"\s:]+)"?(?:": | )?(?:: context not found|not found|does not exist)',
        "there is no Docker context {0} on this machine",
        "docker context create {0} --docker host=ssh://USER@HOST",
    ),
    # before all that tells of a way to the host: here it is the host's way to a registry that fails
    Known(
        r'(?:Get|Head) "https?://([^/"]+)/v2/[^"]*": (.+)',
        "it cannot reach the registry {0}: {1}",
        NO_REGISTRY,
    ),
    Known(r"manifest unknown|failed to resolve reference .*: not found", "the registry has no such image", NO_REGISTRY),
    Known(r"toomanyrequests", "the registry sends nothing for a while: its limit of pulls is reached", NO_REGISTRY),
    Known(r"Host key verification failed", "ssh does not know the host's key", "log in to it once with ssh"),
    Known(
        r"Permission denied \((?:publickey|password)",
        "ssh refuses the login of this Docker context",
        "`ssh -o BatchMode=yes USER@HOST true` must work without a question: load the key into an agent",
    ),
    Known(r"Could not resolve hostname ([^:\s]+)", "the name {0} of its Docker context does not resolve"),
    Known(
        r"kex_exchange_identification|Session open refused by peer",
        "its sshd refused one more session (MaxStartups or MaxSessions), the engine itself may be well",
        "try again, or raise MaxStartups and MaxSessions in its sshd_config",
    ),
    Known(r"port (\d+): Connection refused", "nothing listens on its ssh port {0}: the machine is up, its sshd is not"),
    Known(r"No route to host", "no route to the host: it is off, or on another network"),
    Known(r"Connection timed out|i/o timeout|Operation timed out", "no answer: off, or a firewall drops the packets"),
    Known(
        r"docker: (?:command )?not found|exit status 127",
        "docker is not on the PATH of an ssh session there",
        "`ssh USER@HOST docker version` must work",
    ),
    Known(
        r"denied while trying to connect to the Docker (?:daemon|API)|dial unix [^:]+: connect: permission denied"
        r"|may not use the Docker socket",  # our own sentence, by hosts/contexts.py
        "the user of its Docker context may not use the Docker socket",
        "add the user to the group docker on that host, and log in anew",
    ),
    Known(
        r"Cannot connect to the Docker daemon|connect: connection refused|connect: no such file or directory",
        "its Docker engine does not answer: it is not running",
        "on that host: systemctl start docker",
    ),
    Known(
        r'could not select device driver "(?:nvidia)?"',  # "" from `docker run --gpus`
        "its Docker engine has no NVIDIA GPU runtime",
        "install the NVIDIA Container Toolkit there and restart docker; `gpus: none` runs without GPUs",
        about="gpus",
    ),
    Known(
        r'could not select device driver "cdi"',
        "its Docker engine does not know CDI: that takes engine 25 or later with the feature switched on",
        'on that host: {{"features": {{"cdi": true}}}} in /etc/docker/daemon.json, then restart docker',
        about="gpus",
    ),
    Known(
        r"unresolvable CDI devices ([^\s\"]+)",
        "its Docker engine knows no CDI device {0}",
        "on that host: nvidia-ctk cdi list; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        about="gpus",
    ),
    Known(
        r"unsatisfied condition: ([^,\s]+)",
        "the image needs {0}; its GPU driver is older",
        "update it there",
        about="gpus",
    ),
    Known(
        r"device error: ([^:]+): unknown device",
        "it has no such GPU: {0}",
        "on that host: nvidia-smi -L lists its GPUs",
        about="gpus",
    ),
    Known(
        r"load library failed: libnvidia-ml\.so|nvml error: driver not loaded",
        "it has no NVIDIA driver that works",
        "on that host nvidia-smi must work: install the driver, or reboot after its update; "
        "`gpus: none` runs without GPUs",
        about="gpus",
    ),
    Known(
        r"nvidia-container-cli\S*: mount error: file creation failed: \S*/merged(/\S+): file exists",
        "the image itself holds {0}, where the host's GPU driver is to be mounted",
        "build it without driver packages (libnvidia-compute-*, nvidia-utils-*), and not by docker commit",
        about="gpus",
    ),
    Known(
        r"failed to add device rules|cgroup subsystem devices not found|BPF_CGROUP_DEVICE",
        "its NVIDIA Container Toolkit may not give a container's cgroup the GPUs",
        "on that host: update nvidia-container-toolkit and restart docker; "
        "or `gpus: {{driver: cdi, ids: [nvidia.com/gpu=all]}}`",
        about="gpus",
    ),
    Known(
        r"nvidia-container-cli\S*: ([^\n]+?)(?:: unknown)?\.?(?:\n|$)",
        "its NVIDIA Container Toolkit cannot give the GPUs: {0}",
        "on that host: nvidia-container-cli -k -d /dev/tty info tells more; `gpus: none` runs without GPUs",
        about="gpus",
    ),
    Known(
        r"client version (\S+) is too old\. Minimum supported API version is ([\d.]+\d)",
        "this machine's docker or Compose is too old for its engine: API {0}, and it wants {1} or later",
        "update docker and docker-compose-plugin on this machine",
    ),
    Known(
        r"client version (\S+) is too new\. Maximum supported API version is ([\d.]+\d)",
        "its engine is too old for this machine's docker or Compose: API {1} at most, asked in {0}",
        "update Docker on that host",
    ),
    Known(
        r"cannot (?:stop|kill) container: (?:[^\n]*: )?permission denied"
        r'|signaling init process caused "permission denied"',
        "AppArmor forbids its engine to end a container",
        "on that host: aa-remove-unknown, or reboot; of Docker from snap and Docker from apt keep one",
    ),
    Known(
        r"unsupported shim version",
        "its containerd was updated and not restarted",
        "on that host: systemctl restart containerd docker",
    ),
    Known(
        r"error while creating mount source path '([^']+)': .*read-only file system",
        "its engine may neither see nor make {0}: a read-only disk, or Docker from a snap, which sees little but /home",
        "Docker's own packages in the place of the snap, or a folder that it may read",
        about="folder",
    ),
    Known(
        r"no space left on device",
        "its disk is full",
        "on that host: docker system df shows what takes the space, docker system prune frees it",
        about="disk",
    ),
    Known(r"No such image: (\S*[^\s:])", "it has no image {0}", about="image"),
    Known(
        r"(?:bind source path does not exist|bind mount source path does not exist|mountpoint for .* not found): (\S+)",
        "it has no folder {0}, which cluster.yaml mounts",
        "make it on that host, or change the volume in cluster.yaml",
        about="folder",
    ),
    Known(
        r"error setting rlimits|operation not permitted.*rlimit|setting rlimit",
        "its engine may not set the ulimits of cluster.yaml",
        "lower or drop `ulimits` for this host",
        about="ulimits",
    ),
    Known(
        r"pull access denied|authentication required|unauthorized|from daemon: denied",
        "the registry has no such image, or refuses it without a login",
        f"docker login REGISTRY on this machine: its login is used\n{NO_REGISTRY}",
    ),
    Known(r"no matching manifest for (\S+)", "the image is not made for its architecture ({0})"),
    Known(r"exec format error", "the image is made for another architecture", about="image"),
    Known(
        r"exec /hvd/\w+ failed: No such file|env: .?python3.?: No such file|can't execute 'python3'",
        "the image has no python3",
        "the image needs Python 3, Horovod and OpenSSH",
        about="python",
    ),
    Known(
        r"is restarting, wait until the container is running|unable to upgrade to tcp, received 409|is not running$",
        "its container ended at once",
    ),
    Known(
        r"exec: \"?([^\":]+)\"?: (?:stat [^:]+: no such file|executable file not found)",
        "the image has no {0}",
        "the image needs Python 3, Horovod and OpenSSH",
        about="python",
    ),
)  # fmt: skip


def explain(text: str) -> tuple[str, str | None]:
    """Return (sentence, hint) for what a command wrote when it failed; its own last line where nothing is known."""
    joined = re.sub(r"\n\s*:", ":", text)  # runc may break its line before ": unknown"
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    return recognise(joined) or (lines[-1] if lines else "it failed without a word", None)


def recognise(text: str) -> tuple[str, str | None] | None:
    """Return (sentence, hint) for a failure that is known, or None."""
    found = _find(text)
    if found is None:
        return None
    known, groups = found
    return known.message.format(*groups), known.hint.format(*groups) if known.hint else None


def about(text: str) -> tuple[str, str]:
    """Return (what of a container's making failed, which one of them), "" for what is not known."""
    found = _find(text)
    return (found[0].about, found[1][0]) if found else ("", "")


def _find(text: str) -> tuple[Known, list[str]] | None:
    for known in KNOWN:
        found = re.search(
            known.pattern, text, re.IGNORECASE | re.DOTALL if "rlimit" in known.pattern else re.IGNORECASE
        )
        if found:
            return known, [group or "" for group in found.groups()] or [""]
    return None
