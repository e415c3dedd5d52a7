"""`lab break` and `lab mend`: each fault is there, seen from outside, and gone afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk import Desk, new_desk

pytestmark = pytest.mark.engine

# an image with a shell, and with a Horovod by what its metadata say; taken from a virtual host
SMALL = """
cd /tmp && rm -rf small && mkdir -p small/lib/horovod-0.28.1.dist-info && cd small
printf 'Name: horovod\\nVersion: 0.28.1\\n' > lib/horovod-0.28.1.dist-info/METADATA
for program in sh ls sed cat find sleep; do echo bin/$program; ldd /bin/$program | grep -o '/[^ ]*'; done |
  sed 's,^/,,' | sort -u | tar -C / -chf - -T - > ../small.tar
tar -rf ../small.tar lib/horovod-0.28.1.dist-info && docker import ../small.tar small:1
"""
PORT, HIGH = 12345, 40123


class Pair:
    """Two hosts with two GPUs each: what is done to the second is seen from the first, and from outside."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.one, self.two = desk, desk.host(1), desk.host(2)

    def on(self, host: str, command: str, *, code: int | None = 0) -> str:
        """Run a shell command on a host; what it printed."""
        done = subprocess.run(
            self.desk.words("shell", host, "--", "bash", "-c", command),
            env=self.desk.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        )  # fmt: skip
        assert code is None or done.returncode == code, f"{command}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout.strip()

    def engine(self, *words: str, code: int | None = 0) -> str:
        """Run docker with the second host's context."""
        return self.desk.docker("--context", self.two, *words, code=code)

    def small(self, *words: str, code: int | None = 0) -> str:
        """Run a container on the second host, without options first."""
        return self.engine("run", "--rm", "--network", "none", *words, code=code).strip()

    def state(self) -> dict:
        return self.desk.hosts()[self.two]

    def listen(self) -> None:
        """Have the second host listen on two ports more, as a worker and a rank do."""
        for port in (PORT, HIGH):
            self.on(self.two, f"ss -ltn | grep -q ':{port} ' || /usr/sbin/sshd -p {port}")

    def knock(self, port: int, *, host: str | None = None) -> str:
        """Tell what becomes of a connection to the second host: open, refused, timed out, no route, silent."""
        address = self.desk.address(2)
        script = f"exec 3<>/dev/tcp/{address}/{port} && echo connected && read -t 3 line <&3 && echo $line"
        said = self.on(host or self.one, f"timeout 8 bash -c '{script}'; echo code $?", code=None)
        for text, meaning in (
            ("SSH-2.0", "open"), ("Connection refused", "refused"), ("No route", "no route"),
            ("connected", "silent"), ("code 124", "timed out"),
        ):  # fmt: skip
            if text in said:
                return meaning
        return said


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="hvd-") as folder:
        user = new_desk(Path(folder))
        try:
            user.lab("up", "--hosts", "2", "--gpus", "2", "--subnet", user.subnet)
            pair = Pair(user)
            pair.on(pair.two, SMALL)
            pair.on(pair.two, "mkdir /data && touch /data/train")
            yield pair
        finally:
            user.lab("down")


@pytest.fixture
def broken(pair: Pair) -> Iterator[Callable[..., None]]:
    """Break the second host; it is mended afterwards, also where the test failed."""

    def break_it(fault: str, *options: str) -> None:
        pair.desk.lab("break", pair.two, fault, *options)
        assert pair.state()["broken"]["fault"] == fault

    yield break_it
    pair.desk.lab("mend", pair.two)
    assert pair.state()["broken"] is None
    assert pair.state()["ready"]


def mend(pair: Pair) -> None:
    assert "sound again" in pair.desk.lab("mend", pair.two).stderr


def test_frozen(pair, broken):
    broken("frozen")
    assert pair.knock(22) == "silent"
    assert pair.state()["state"] == "paused"
    mend(pair)
    assert pair.knock(22) == "open"


def test_engine_stopped(pair, broken):
    broken("engine-stopped")
    assert pair.knock(22) == "open"
    assert "Is the docker daemon running?" in pair.on(pair.two, "docker ps", code=1)
    assert "Is the docker daemon running?" in pair.engine("ps", code=1)
    mend(pair)
    assert "small" in pair.engine("images")


def test_cut_off(pair, broken):
    routes = pair.on(pair.two, "ip -4 route")
    broken("cut-off")
    assert pair.knock(22) in ("no route", "timed out")
    pair.on(pair.two, f"ping -c1 -W2 {pair.desk.address(1)}", code=2)
    assert pair.engine("info", "--format", "{{.Name}}").strip() == pair.two
    mend(pair)
    assert pair.on(pair.two, "ip -4 route") == routes
    assert pair.knock(22) == "open"


@pytest.mark.parametrize(
    ("fault", "ssh_port", "high_port"),
    [
        ("ssh-dropped", "timed out", "open"),
        ("ssh-rejected", "refused", "open"),
        ("ports-blocked", "open", "timed out"),
    ],
)
def test_a_firewall(pair, broken, fault, ssh_port, high_port):
    pair.listen()
    before = pair.on(pair.two, "iptables -S")
    broken(fault, "--port", str(PORT))
    assert (pair.knock(22), pair.knock(PORT), pair.knock(HIGH)) == ("open", ssh_port, high_port)
    assert pair.knock(PORT, host=pair.two) == "open"  # a healthcheck on the host sees nothing of it
    pair.on(pair.two, f"timeout 5 bash -c 'read line < /dev/tcp/{pair.desk.address(1)}/22'")  # and answers come in
    mend(pair)
    assert (pair.knock(PORT), pair.knock(HIGH)) == ("open", "open")
    assert pair.on(pair.two, "iptables -S") == before


def test_nic_name(pair, broken):
    def nic() -> str:
        return pair.on(pair.two, f"ip -o -4 address show to {pair.desk.address(2)}").split()[1]

    routes = pair.on(pair.two, "ip -4 route")
    assert nic() == "eth0"
    broken("nic-name")
    assert nic() == "enp5s0"
    assert pair.knock(22) == "open"
    assert pair.on(pair.two, "ip -4 route") == routes.replace("eth0", "enp5s0")
    mend(pair)
    assert nic() == "eth0"
    assert pair.on(pair.two, "ip -4 route") == routes


def gpus(pair: Pair) -> int:
    return len(pair.small("--gpus", "all", "small:1", "nvidia-smi", "-L").splitlines())


def test_no_gpu_runtime(pair, broken):
    broken("no-gpu-runtime")
    assert "could not select device driver" in pair.small("--gpus", "all", "small:1", "ls", code=125)
    assert 'device driver "cdi"' in pair.small("--device", "nvidia.com/gpu=0", "small:1", "ls", code=125)
    mend(pair)
    assert gpus(pair) == 2
    pair.small("--device", "nvidia.com/gpu=0", "small:1", "ls")


def test_fewer_gpus(pair, broken):
    broken("fewer-gpus")
    assert gpus(pair) == 1
    mend(pair)
    assert gpus(pair) == 2


def test_small_shm(pair, broken):
    def size(*options: str) -> str:
        mounts = pair.small(*options, "small:1", "cat", "/proc/mounts")
        (shm,) = (line for line in mounts.splitlines() if " /dev/shm " in line)
        return next(word for word in shm.split()[3].split(",") if word.startswith("size="))

    broken("small-shm")
    assert size() == "size=1024k"
    assert size("--shm-size", "32m") == "size=32768k"
    mend(pair)
    assert size() == "size=65536k"


def test_data_missing(pair, broken):
    mount = ("--mount", "type=bind,source=/data,target=/data")
    broken("data-missing")
    assert "/data" in pair.small(*mount, "small:1", "ls", "/data", code=125)
    mend(pair)
    assert pair.small(*mount, "small:1", "ls", "/data") == "train"


def test_data_that_was_never_there_is_told(pair):
    said = pair.desk.lab("break", pair.two, "data-missing", "--path", "/srv/none", code=4).stderr
    assert f"{pair.two}: there is no /srv/none to take away" in said
    assert pair.state()["broken"] is None


def test_ssh_modes(pair, broken):
    pair.engine("volume", "create", "demo-ssh")
    folder = pair.engine("volume", "inspect", "--format", "{{.Mountpoint}}", "demo-ssh").strip()
    pair.on(pair.two, f"cd {folder} && chmod 700 . && umask 077 && touch id_ed25519 && mkdir deep && chmod 755 deep")
    modes = f"cd {folder} && stat -c '%a %n' . id_ed25519 deep"
    broken("ssh-modes", "--ssh", "demo-ssh")
    assert pair.on(pair.two, modes).splitlines() == ["777 .", "666 id_ed25519", "777 deep"]
    mend(pair)
    assert pair.on(pair.two, modes).splitlines() == ["700 .", "600 id_ed25519", "755 deep"]


def test_wrong_image(pair, broken):
    def seen() -> tuple[str, str]:
        return pair.engine("image", "inspect", "--format", "{{.Id}}", "small:1"), pair.small(
            "small:1", "cat", "/lib/horovod-0.28.1.dist-info/METADATA"
        )

    before = seen()
    assert "Version: 0.28.1" in before[1]
    broken("wrong-image", "--image", "small:1")
    image, metadata = seen()
    assert image != before[0]
    assert "Version: 0.21.0" in metadata
    mend(pair)
    assert seen() == before
    assert pair.engine("image", "ls", "--quiet").split() == [before[0].removeprefix("sha256:")[:12]]


def over_ssh(pair: Pair) -> str:
    """Return the name that the second host's engine gives through the ssh context of `lab shell`."""
    words = ("shell", "--", "docker", "--context", pair.two, "info", "--format", "{{.Name}} {{.SecurityOptions}}")
    return pair.desk.lab(*words).stdout


def test_rootless(pair, broken):
    pair.desk.lab("up", "--ssh")
    assert "rootless" not in over_ssh(pair)
    broken("rootless")
    assert "name=rootless" in pair.engine("info", "--format", "{{.SecurityOptions}}")
    assert over_ssh(pair).startswith(f"{pair.two} [") and "name=rootless" in over_ssh(pair)
    assert pair.state()["address"] == pair.desk.address(2)
    assert pair.knock(22) == "open"
    mend(pair)
    assert "rootless" not in pair.engine("info", "--format", "{{.SecurityOptions}}")
    assert "rootless" not in over_ssh(pair)
    assert pair.on(pair.two, "ls /data") == "train"
    assert gpus(pair) == 2


def test_old_engine(pair, broken):
    version = pair.engine("version", "--format", "{{.Server.Version}}")
    broken("old-engine")
    assert pair.engine("version", "--format", "{{.Server.Version}}").startswith("20.10.")
    assert pair.state()["ready"]
    pair.on(pair.two, SMALL)
    assert gpus(pair) == 2
    mend(pair)
    assert pair.engine("version", "--format", "{{.Server.Version}}") == version
    assert pair.on(pair.two, "ls /data") == "train"


def test_disk_full(pair, broken):
    pair.on(pair.one, "test -f /tmp/small.tar || " + SMALL)
    broken("disk-full")
    pair.on(pair.two, "head -c 8000000 /dev/urandom > /tmp/noise && tar -C /tmp -cf /tmp/noise.tar noise")
    assert "no space left on device" in pair.on(pair.two, "docker import /tmp/noise.tar noise:1", code=1)
    mend(pair)
    assert "small" in pair.engine("images")


def test_one_fault_at_a_time_and_up_leaves_it(pair, broken):
    broken("frozen")
    said = pair.desk.lab("break", pair.two, "ssh-dropped", "--port", "1", code=4).stderr
    assert f"{pair.two} is broken already: frozen" in said
    assert f"hvdcompose lab mend {pair.two} --name {pair.desk.name}" in said
    said = pair.desk.lab("up").stderr
    assert f"{pair.two}: is broken (frozen) and stays so: hvdcompose lab mend {pair.two}" in said
    assert "1 host ready, nothing to do" in said
    assert pair.state()["state"] == "paused"
    assert "frozen" in pair.desk.lab("status").stdout
    data = json.loads(pair.desk.lab("mend", "--json").stdout)["data"]
    assert [(each["host"], each["fault"]) for each in data["mended"]] == [(pair.two, "frozen")]


def test_a_sound_host_is_left_and_a_stranger_is_told(pair):
    assert f"{pair.two}: is not broken: nothing to do" in pair.desk.lab("mend", pair.two).stderr
    for command in (("mend", "nobody1"), ("break", "nobody1", "frozen")):
        assert "there is no host nobody1 in the lab" in pair.desk.lab(*command, code=2).stderr


def test_a_host_that_does_not_run_is_not_broken_further(pair):
    pair.desk.engine("stop", "-t", "2", f"hvdcompose-{pair.two}")
    try:
        assert "is not ready" in pair.desk.lab("break", pair.two, "ssh-dropped", code=4).stderr
    finally:
        pair.desk.lab("up")


@pytest.mark.parametrize("after", [1.0, 2.5, 4.0])
def test_what_an_interrupt_left_half_broken_is_mended(pair, broken, after):
    with subprocess.Popen(
        pair.desk.words("break", pair.two, "rootless"), env=pair.desk.env, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
    mended = pair.desk.lab("mend", pair.two).stderr
    assert "sound again" in mended or "nothing to do" in mended
    assert "rootless" not in pair.engine("info", "--format", "{{.SecurityOptions}}")
    assert pair.on(pair.two, "ls /data") == "train"
    assert f"hvdcompose-{pair.two}-sound" not in pair.desk.engine("ps", "--all", "--format", "{{.Names}}")


def test_down_takes_broken_hosts_as_well():
    with tempfile.TemporaryDirectory(prefix="hvd-") as folder:
        user = new_desk(Path(folder))
        try:
            user.lab("up", "--hosts", "3", "--gpus", "0", "--subnet", user.subnet)
            for number, fault in ((1, "frozen"), (2, "cut-off"), (3, "disk-full")):
                user.lab("break", user.host(number), fault)
        finally:
            assert "gone" in user.lab("down").stderr
        assert user.remains() == []
