"""What can be broken on a virtual host: a table of docker commands and of scripts that the host runs. No I/O.

One fault at a time: mending puts back what breaking changed, also where breaking was interrupted half-way, so each
script that mends can run twice, and before the one that breaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hvdcompose.errors import Refused, UsageError

if TYPE_CHECKING:
    from hvdcompose.lab.plan import Host

Words = tuple[str, ...]
Value = Literal["port", "path", "ssh", "image", "gpus"]

HOST = "<container>"  # filled in, as is <address>, and what the fault is about: <port>, <path> and so on
READY: Words = ("ready",)  # no command of docker: wait until the host's engine answers
RESTART: Words = ("restart", "-t", "2", HOST)
KEY_FILES = ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub")
DEFAULTS: Mapping[Value, str] = {"port": "12345", "path": "/data"}  # without a cluster.yaml


@dataclass(frozen=True)
class StandIn:
    """Another container in the host's place: its name, address, context and ssh key, with a disk of its own."""

    kind: Literal["same", "rootless", "old"] = "same"  # of its image
    disk: str = ""  # size, where it is limited


@dataclass(frozen=True)
class Look:
    """A command that has to succeed before anything is broken, and what to say where it does not."""

    words: Words
    message: str
    hint: str


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong on real hosts."""

    name: str
    shown: str  # one line: what is wrong then, and how it is done
    breaks: tuple[Words, ...] = ()
    mends: tuple[Words, ...] = ()
    value: Value | None = None  # what it has to be told
    look: Look | None = None
    stand_in: StandIn | None = None
    answers: bool = True  # the engine, while the host is broken


def _on_host(*words: str) -> Words:
    return ("exec", HOST, *words)


def _script(text: str, *arguments: str) -> Words:
    return _on_host("sh", "-euc", text.strip(), "lab", *arguments)


# A firewall: a chain of its own, so that mending takes away nothing else. The host itself still reaches its ports.
_CHAIN = "HVDCOMPOSE-LAB"
_OPEN = f"""
while iptables -w -D INPUT ! -i lo -j {_CHAIN} 2>/dev/null; do :; done
if iptables -w -n -L {_CHAIN} >/dev/null 2>&1; then iptables -w -F {_CHAIN}; iptables -w -X {_CHAIN}; fi
"""


def _firewall(name: str, shown: str, *rules: str) -> Fault:
    iptables = ("iptables", "-w")
    breaks = [_on_host(*iptables, "-N", _CHAIN)]
    breaks += [_on_host(*iptables, "-A", _CHAIN, "-p", "tcp", *rule.split()) for rule in rules]
    breaks += [_on_host(*iptables, "-I", "INPUT", "!", "-i", "lo", "-j", _CHAIN)]
    return Fault(name, shown, tuple(breaks), (_script(_OPEN),), value="port")


# A line at the top of the script that starts the host: it decides what dockerd is told, also after a restart.
_START = "/opt/lab/entrypoint.sh"
_EDIT = f"""
[ -f {_START}.sound ] || cp -p {_START} {_START}.sound
awk -v line="$1" '{{ print }} /^set -eu$/ {{ print line }}' {_START}.sound > {_START}
grep -qxF -- "$1" {_START}
"""
_RESTORE = f"[ ! -f {_START}.sound ] || mv {_START}.sound {_START}"


def _at_start(name: str, shown: str, line: str, *, value: Value | None = None, answers: bool = True) -> Fault:
    breaks: tuple[Words, ...] = (_script(_EDIT, line), RESTART)
    mends = (_script(_RESTORE), RESTART)
    return Fault(name, shown, (*breaks, READY) if answers else breaks, mends, value, answers=answers)


_FIND_NIC = """nic=$(ip -o -4 address show to "$1" | awk '{ print $2; exit }')"""
_UNPLUG = f"""
{_FIND_NIC}
ip -4 route show default > /opt/lab/fault.route
ip link set "$nic" down
"""
_PLUG = f"""
{_FIND_NIC}
if [ -n "$nic" ]; then
  ip link set "$nic" up
  [ ! -s /opt/lab/fault.route ] || ip route replace $(head -n 1 /opt/lab/fault.route)
fi
rm -f /opt/lab/fault.route
"""
_RENAME = """
gateway=$(ip -4 route show default | awk '{ print $3; exit }')
ip link set "$nic" down
ip link set "$nic" name "$to"
ip link set "$to" up
[ -z "$gateway" ] || ip route replace default via "$gateway" dev "$to"
"""
_NEW_NAME = f"""
{_FIND_NIC}
to=$2
echo "$nic" > /opt/lab/fault.nic
{_RENAME}
"""
_OLD_NAME = f"""
[ -f /opt/lab/fault.nic ] || exit 0
{_FIND_NIC}
to=$(cat /opt/lab/fault.nic)
if [ -n "$nic" ] && [ "$nic" != "$to" ]; then
  {_RENAME}
fi
rm /opt/lab/fault.nic
"""

_ASIDE = '[ ! -e "$1" ] || mv "$1" "$1.hvdcompose-lab"'
_BACK = """
[ -e "$1.hvdcompose-lab" ] || exit 0
# an engine makes an empty folder where a mount's source is missing
[ ! -d "$1" ] || rmdir "$1"
[ ! -e "$1" ] || { echo "$1 was made meanwhile, and is in the way" >&2; exit 1; }
mv "$1.hvdcompose-lab" "$1"
"""

_SSH_FOLDER = 'case $1 in /*) dir=$1 ;; *) dir=$(docker volume inspect --format "{{.Mountpoint}}" "$1") ;; esac'
_SSH_THERE = f"""
{_SSH_FOLDER}
[ -d "$dir" ]
"""
_OPEN_MODES = f"""
{_SSH_FOLDER}
find "$dir" -printf '%m %p\\n' > /opt/lab/fault.modes
chmod -R a+rwX "$dir"
"""
_CLOSE_MODES = """
[ -f /opt/lab/fault.modes ] || exit 0
while read -r mode path; do [ ! -e "$path" ] || chmod "$mode" "$path"; done < /opt/lab/fault.modes
rm /opt/lab/fault.modes
"""

_SOUND_IMAGE = "hvdcompose-lab-fault:sound"
# the same image with another Horovod, by what pip and Python say of it: it still starts, and is not what the others run
_OTHER_IMAGE = f"""
docker tag "$1" {_SOUND_IMAGE}
DOCKER_BUILDKIT=0 docker build --quiet --network none --tag "$1" - <<'END'
FROM {_SOUND_IMAGE}
LABEL hvdcompose.lab.fault=wrong-image
RUN find / -xdev -path '*/horovod-*/METADATA' -exec sed -i 's/^Version: .*/Version: 0.21.0/' '{{}}' ';' ; \\
    find / -xdev -path '*/horovod/__init__.py' -exec sed -i "s/^__version__ = .*/__version__ = '0.21.0'/" '{{}}' + ; \\
    echo 'hvdcompose lab break: the wrong image' > /hvdcompose-lab-fault
END
"""
_SAME_IMAGE = f"""
docker image inspect {_SOUND_IMAGE} >/dev/null 2>&1 || exit 0
# another one may have been sent meanwhile: that one stays
label=$(docker image inspect --format '{{{{index .Config.Labels "hvdcompose.lab.fault"}}}}' "$1" 2>/dev/null || true)
[ "$label" != wrong-image ] || docker tag {_SOUND_IMAGE} "$1"
docker image rm {_SOUND_IMAGE} >/dev/null
docker image prune --force --filter label=hvdcompose.lab.fault=wrong-image >/dev/null
"""

_FILL = """
folder=$(docker info --format '{{.DockerRootDir}}')
free=$(df --output=avail -k "$folder" | tail -n 1)
fallocate -l "$((free - 1024))K" "$folder/hvdcompose-lab-fault"
"""

FAULTS: tuple[Fault, ...] = (
    Fault(
        "rootless",
        "the engine runs without root: its host network is not the host's (another container takes the host's place)",
        breaks=(
            _on_host("install", "-d", "-m", "700", "/root/.ssh"),
            _on_host("install", "-m", "600", "/lab/authorized_keys", "/root/.ssh/authorized_keys"),
        ),
        stand_in=StandIn("rootless"),
    ),
    Fault(
        "old-engine",
        "the engine is 20.10, as in Debian 12 (another container takes the host's place)",
        stand_in=StandIn("old"),
    ),
    _at_start(
        "engine-stopped",
        "ssh answers and no Docker engine does (the host restarts without dockerd)",
        "set -- sh -c 'exec sleep infinity' --",
        answers=False,
    ),
    Fault(
        "frozen",
        "the host stands still: connections open and nothing answers (docker pause)",
        breaks=(("pause", HOST),),
        answers=False,
    ),
    Fault(
        "cut-off",
        "no other host reaches it, nor it them (ip link set eth0 down); its engine still answers here",
        breaks=(_script(_UNPLUG, "<address>"),),
        mends=(_script(_PLUG, "<address>"),),
    ),
    _firewall(
        "ssh-dropped",
        "a firewall drops what comes for the cluster's ssh port: others time out (iptables -j DROP)",
        "--dport <port> -j DROP",
    ),
    _firewall(
        "ssh-rejected",
        "a firewall refuses the cluster's ssh port: connection refused (iptables -j REJECT)",
        "--dport <port> -j REJECT --reject-with tcp-reset",
    ),
    _firewall(
        "ports-blocked",
        "a firewall lets only the ssh port in, and none of the random ports of Gloo and MPI (iptables -j DROP)",
        "--syn --dport <port> -j RETURN",
        "--syn --dport 1024:65535 -j DROP",
    ),
    Fault(
        "nic-name",
        "the network card that has the address is called enp5s0, on the other hosts eth0 (ip link set name)",
        breaks=(_script(_NEW_NAME, "<address>", "enp5s0"),),
        mends=(_script(_OLD_NAME, "<address>"),),
    ),
    _at_start(
        "no-gpu-runtime",
        "NVIDIA's container toolkit is missing: no driver for `--gpus`, no CDI (dockerd restarts without)",
        "LAB_GPUS=0",
    ),
    _at_start(
        "fewer-gpus",
        "the host has fewer GPUs than before (dockerd restarts with these)",
        "LAB_GPUS=<gpus>",
        value="gpus",
    ),
    Fault(
        "data-missing",
        "a folder that containers mount is not there (mv)",
        breaks=(_script(_ASIDE, "<path>"),),
        mends=(_script(_BACK, "<path>"),),
        value="path",
        look=Look(
            _on_host("test", "-e", "<path>"),
            "there is no <path> to take away",
            "say which with --path; `hvdcompose lab shell HOST -- mkdir -p <path>` makes one",
        ),
    ),
    Fault(
        "ssh-modes",
        "everybody may write to the ssh folder: sshd refuses its keys (chmod -R a+rwX)",
        breaks=(_script(_OPEN_MODES, "<ssh>"),),
        mends=(_script(_CLOSE_MODES),),
        value="ssh",
        look=Look(
            _script(_SSH_THERE, "<ssh>"),
            "there is no ssh folder <ssh>",
            "`hvdcompose apply` makes it; say which with --ssh, a volume or a path",
        ),
    ),
    Fault(
        "wrong-image",
        "under the image's name there is another one, with another Horovod (docker build)",
        breaks=(_script(_OTHER_IMAGE, "<image>"),),
        mends=(_script(_SAME_IMAGE, "<image>"),),
        value="image",
        look=Look(
            _on_host("docker", "image", "inspect", "--format", "{{.Id}}", "<image>"),
            "there is no image <image> to exchange",
            "`hvdcompose apply` sends it; say which with --image",
        ),
    ),
    _at_start(
        "small-shm",
        "/dev/shm has 1 MB in containers whose cluster.yaml sets no shm_size (dockerd --default-shm-size)",
        'set -- "$@" --default-shm-size 1m',
    ),
    Fault(
        "disk-full",
        "the engine's disk has 1 MB left, of 64, and none of the images (another container takes the host's place)",
        breaks=(_script(_FILL),),
        stand_in=StandIn(disk="64m"),
    ),
)


def find(name: str) -> Fault:
    """Return the fault of that name. Raises UsageError."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    raise UsageError(f"there is no fault {name}", hint=f"one of: {', '.join(fault.name for fault in FAULTS)}")


def settle(fault: Fault, host: Host, given: Mapping[Value, str], defaults: Mapping[Value, str]) -> dict[str, str]:
    """Return what the fault is about: from what was given, else from the defaults, else from the host itself.

    Raises UsageError for what the fault does not take or still lacks, Refused where the host cannot break that way.
    """
    for value in given:
        if value != fault.value:
            raise UsageError(f"--{value} says nothing about {fault.name}", hint="hvdcompose lab break --list")
    if fault.name == "rootless" and host.rootless:
        raise Refused(f"{host.name} is rootless as it is")
    if fault.name in ("no-gpu-runtime", "fewer-gpus") and not host.gpus:
        raise Refused(
            f"{host.name} has no GPUs as it is", hint="`hvdcompose lab up --gpus N` makes new hosts with some"
        )
    if fault.value is None:
        return {}
    if fault.value == "gpus":
        return {"gpus": str(_fewer(host, given.get("gpus")))}
    chosen = given.get(fault.value) or defaults.get(fault.value)
    if not chosen:
        raise UsageError(
            f"{fault.name} has to be told --{fault.value}",
            hint="in a folder with a cluster.yaml it is taken from there",
        )
    return {fault.value: chosen}


def _fewer(host: Host, given: str | None) -> int:
    wanted = host.gpus - 1 if given is None else int(given)
    if not 1 <= wanted < host.gpus:
        most = f"1 to {host.gpus - 1} would be fewer" if host.gpus > 1 else "fewer would be none"
        raise Refused(f"{host.name} has {host.gpus_text}: {most}", hint="that is the fault no-gpu-runtime")
    return wanted


@dataclass(frozen=True)
class Case:
    """One fault on one host: what its commands have to be told."""

    fault: Fault
    container: str
    address: str
    values: Mapping[str, str]
    keys: str  # folder here for the host's ssh key, on its way to the stand-in
    disk: str = ""  # volume of the stand-in

    @property
    def sound(self) -> str:
        """Name of the host's own container while a stand-in has its place."""
        return f"{self.container}-sound"

    def fill(self, text: str) -> str:
        """Put the values into a word of a command, or into a sentence."""
        for name, value in {"container": self.container, "address": self.address, **self.values}.items():
            text = text.replace(f"<{name}>", value)
        return text

    def filled(self, steps: tuple[Words, ...]) -> list[Words]:
        """Put the values into commands."""
        return [tuple(self.fill(word) for word in words) for words in steps]


def break_steps(case: Case, create: Words = ()) -> list[Words]:
    """Return what is done to break a running host; `create` makes the stand-in, where the fault needs one."""
    steps = case.filled(case.fault.breaks)
    if case.fault.stand_in is None:
        return steps
    folder = f"{case.container}:/etc/ssh"
    return [
        *(("cp", f"{folder}/{file}", f"{case.keys}/{file}") for file in KEY_FILES),
        ("stop", "-t", "5", case.container),
        ("rename", case.container, case.sound),
        create,
        *(("cp", f"{case.keys}/{file}", f"{folder}/{file}") for file in KEY_FILES),
        ("start", case.container),
        READY,
        *steps,
    ]


def mend_steps(case: Case, statuses: Mapping[str, str]) -> list[Words]:
    """Return what makes the host sound again, from the states of the lab's containers, by name.

    Whatever else was wrong, a frozen host thaws and a stopped one starts first. Nothing for a host that is gone.
    """
    steps: list[Words] = []
    status = statuses.get(case.container)
    if case.fault.stand_in is not None and case.sound in statuses:
        if status is not None:
            steps += [("rm", "--force", case.container)]
        steps += [("volume", "rm", "--force", case.disk), ("rename", case.sound, case.container)]
        status = statuses[case.sound]
    if status is None:
        return steps
    if status == "paused":
        steps += [("unpause", case.container)]
    elif status != "running":
        steps += [("start", case.container)]
    elif case.fault.stand_in is not None:
        # interrupted before it had a stand-in: the engine may still be stopping it, which nothing shows
        steps += [("restart", "-t", "5", case.container)]
    return [*steps, *case.filled(case.fault.mends), READY]
