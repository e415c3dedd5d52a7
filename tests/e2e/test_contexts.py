"""Docker contexts: they alone decide where a command goes, over ssh as well; what is told where they fail."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from desk import Desk
from made import Made, errors_of, new_made

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1}
hosts:
  <h1>}
  <h2>}
train:
  command: python code/job.py
  code: ./code
"""


def write_code(made: Made) -> None:
    (made.folder / "code").mkdir()
    (made.folder / "code" / "job.py").write_text("print('the code is here')\n")


def containers(made: Made, number: int) -> list[str]:
    """Return the names of all containers on a host that tell of this cluster, in whatever state."""
    return made.docker(number, "ps", "--all", "--filter", f"name={made.name}", "--format", "{{.Names}}").split()


def test_two_contexts_that_lead_to_one_engine(cluster: Made) -> None:
    h1, h2 = cluster.desk.host(1), cluster.desk.host(2)
    alias = f"{cluster.desk.name}-alias"
    endpoint = cluster.desk.docker("context", "inspect", "--format", "{{.Endpoints.docker.Host}}", h1).strip()
    cluster.desk.docker("context", "create", alias, "--docker", f"host={endpoint}")
    write_code(cluster)
    cluster.write(CLUSTER.replace("<h2>", f"<h2>, context: {alias}"))
    try:
        for command in ("plan", "apply"):
            refused = cluster.hvd(command, code=4)
            told = f"{h2}: same Docker engine as {h1}: the contexts {h1} and {alias} lead to one machine"
            assert refused.stderr.startswith(f"error: {told}\n  -> docker context ls")
        assert containers(cluster, 1) == []
    finally:
        cluster.write(CLUSTER)
        cluster.desk.docker("context", "rm", "--force", alias)
    assert "all 2 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


def test_what_a_shell_exports_leads_nothing_elsewhere(cluster: Made) -> None:
    write_code(cluster)
    cluster.write(CLUSTER)
    (cluster.folder / "other.yaml").write_text("services: {other: {image: other}}\n")
    exported = {
        "DOCKER_HOST": "unix:///nonexistent/docker.sock",
        "DOCKER_CONTEXT": "default",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_API_VERSION": "1.10",
        "COMPOSE_PROJECT_NAME": "elsewhere",
        "COMPOSE_FILE": str(cluster.folder / "other.yaml"),
        "COMPOSE_PROFILES": "none",
        "COMPOSE_ENV_FILES": "/nonexistent/env",
        "HVD_CODE": "0123456789ab",
        "HVD_KEYS": "0123456789abcdef",
        "HVD_LAUNCH": "0123456789abcdef",
        "HVD_RUN": "elsewhere",
    }
    ran = cluster.hvd("apply", "--follow", **exported).stdout
    assert ran.count("| the code is here\n") == 2
    assert [containers(cluster, n) for n in (1, 2)] == [[cluster.container(1)], [cluster.container(2)]]
    assert "0123456789ab" not in cluster.docker(2, "volume", "ls", "--quiet")
    assert cluster.inspect(1)["Config"]["Labels"]["hvdcompose.run"] != "elsewhere"
    cluster.settled()
    cluster.settled(**exported)
    assert cluster.hvd("logs", **exported).stdout.count("| the code is here\n") == 2
    cluster.hvd("down", **exported)
    assert [containers(cluster, n) for n in (1, 2)] == [[], []]


def test_a_rootless_host_is_refused_before_anything_is_sent(cluster: Made, odd: Desk, tiny: str) -> None:
    rootless = odd.host(2)
    text = CLUSTER.replace("<image>", tiny).replace("<h2>", f"{rootless}: {{address: {odd.address(2)}")
    write_code(cluster)
    cluster.write(text)
    version = odd.docker("--context", rootless, "version", "--format", "{{.Server.Version}}").strip()
    told = (
        f"{rootless}: its Docker {version} is rootless, and its host network is not the machine's: "
        "sshd would listen where no other host can reach it\n"
        f"  -> point its context ({rootless}) to a rootful engine, usually unix:///var/run/docker.sock or "
        "ssh://USER@HOST; or use Docker 29.5 or later there\n"
    )
    for command in ("plan", "apply"):
        began = time.monotonic()
        refused = cluster.hvd(command, code=4)
        assert time.monotonic() - began < 10
        assert refused.stderr == f"error: {told}"
    assert cluster.hvd("status").stderr == f"apply would refuse:\nerror: {told}"
    assert containers(cluster, 1) == []
    assert cluster.docker(1, "volume", "ls", "--quiet", "--filter", f"name={cluster.name}") == ""
    assert odd.docker("--context", rootless, "image", "ls", "--quiet") == ""
    cluster.write(CLUSTER)
    assert "all 2 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


class Inside:
    """A cluster worked with inside `hvdcompose lab shell`, where its contexts lead over ssh."""

    def __init__(self, made: Made) -> None:
        self.made = made

    def hvd(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.made.hvd("lab", "shell", "--", *self.made.desk.hvd_words(*words), code=code)


@pytest.fixture(scope="module")
def over_ssh(lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    lab4.lab("up", "--ssh")
    made = new_made(lab4, tmp_path_factory.mktemp("ssh"))
    write_code(made)
    yield Inside(made)
    lab4.lab("up")
    made.clear()


def test_the_whole_story_over_ssh(over_ssh: Inside, tiny: str) -> None:
    made = over_ssh.made
    h1, h2 = made.desk.host(1), made.desk.host(2)
    made.write(CLUSTER)
    ran = over_ssh.hvd("apply", "--follow").stdout
    assert f"{h1} r0  | the code is here\n" in ran
    assert f"{h2} r1  | the code is here\n" in ran
    assert "all 2 ranks ended with exit 0" in ran
    assert " recreate " not in over_ssh.hvd("apply").stderr
    made.settled()  # by the other contexts, to the same engines
    assert re.search(rf"^{h2} +{h2} +worker +Up ", over_ssh.hvd("status").stdout, re.M)
    assert f"{h2} r1  | the code is here\n" in over_ssh.hvd("logs").stdout


def test_a_command_logs_in_once_per_host(over_ssh: Inside) -> None:
    """Every docker call to a host shares that login, and none outlives the command."""
    made, log = over_ssh.made, "/run/logins"
    made.write(CLUSTER)
    over_ssh.hvd("apply")
    for number in (1, 2):
        _sh(f"kill $(cat /run/sshd.pid); /usr/sbin/sshd -E {log}")(made, number)
    made.edit("{slots: 1}", "{slots: 1, shm_size: 128m}")
    assert " recreate " in over_ssh.hvd("apply").stderr
    for number in (1, 2):
        told = made.desk.engine("exec", f"hvdcompose-{made.desk.host(number)}", "cat", log)
        assert told.count("Accepted publickey") == 1, told
        assert "Disconnected from user root" in told


def test_an_image_goes_over_ssh(over_ssh: Inside, tiny: str) -> None:
    made, image = over_ssh.made, f"{over_ssh.made.name}:1"
    made.desk.engine("image", "tag", tiny, image)
    made.write(CLUSTER.replace("<image>", image))
    try:
        sent = over_ssh.hvd("apply", code=4)  # there is no python3 in it
        for number in (1, 2):
            assert re.search(rf"^{made.desk.host(number)} +image is there$", sent.stderr, re.M)
            assert made.docker(number, "image", "ls", "--quiet", image) != ""
        assert errors_of(sent)[0] == f"error: {made.desk.host(1)}: the image has no python3"
    finally:
        made.desk.engine("image", "rm", image)
        for number in (1, 2):
            made.docker(number, "image", "rm", "--force", image, code=None)


Break = tuple[Callable[[Made, int], None], Callable[[Made, int], None], str, str | None]


def _sh(script: str) -> Callable[[Made, int], None]:
    """Return a deed: a shell script on a virtual host."""
    return lambda made, number: _engine(made, number, "exec", "sh", "-c", script)


def _docker(command: str) -> Callable[[Made, int], None]:
    """Return a deed: a docker command on a virtual host's own container."""
    return lambda made, number: _engine(made, number, command)


def _engine(made: Made, number: int, command: str, *words: str) -> None:
    made.desk.engine(command, f"hvdcompose-{made.desk.host(number)}", *words)


def _forget_host_key(made: Made, number: int) -> None:
    path = made.desk.folder / "state" / "hvdcompose" / "lab" / made.desk.name / "ssh" / "known_hosts"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(f"{made.desk.address(number)} ")))


# what is done to a host, how it is mended, what is said of it ({address}), and what to do
BREAKS: dict[str, Break] = {
    "docker not on its PATH": (
        _sh("mv /usr/bin/docker /usr/bin/docker.away"),
        _sh("mv /usr/bin/docker.away /usr/bin/docker"),
        "asking its Docker engine: docker is not on the PATH of an ssh session there",
        "`ssh USER@HOST docker version` must work",
    ),
    "engine frozen": (
        _sh("pkill -STOP -x dockerd"),
        _sh("pkill -CONT -x dockerd"),
        "asking its Docker engine: no answer within 10 s",
        "is the host frozen or overloaded?",
    ),
    "host key unknown": (
        _forget_host_key,
        lambda made, _: made.desk.lab("up", "--ssh") and None,
        "asking its Docker engine: ssh does not know the host's key",
        "log in to it once with ssh",
    ),
    "key refused": (
        _sh("mv /root/.ssh/authorized_keys /root/.ssh/away"),
        _sh("mv /root/.ssh/away /root/.ssh/authorized_keys"),
        "asking its Docker engine: ssh refuses the login of this Docker context",
        "`ssh -o BatchMode=yes USER@HOST true` must work without a question: load the key into an agent",
    ),
    "sshd off": (
        _sh("kill $(cat /run/sshd.pid)"),
        _sh("/usr/sbin/sshd"),
        "nothing listens at {address}:22: the machine is up, its sshd is not",
        None,
    ),
    "host frozen": (
        _docker("pause"),
        _docker("unpause"),
        "no answer from {address}:22 within 5 s: it is off, frozen, or cut off",
        None,
    ),
}


@pytest.mark.parametrize("names", [list(BREAKS)[:3], list(BREAKS)[3:]], ids=["behind ssh", "ssh"])
def test_hosts_that_cannot_be_reached_over_ssh(over_ssh: Inside, names: list[str]) -> None:
    """Three hosts, each with another fault, all told at once; the fourth is well."""
    made, broken = over_ssh.made, dict(zip((2, 3, 4), names, strict=True))
    made.write(CLUSTER.replace("  <h2>}\n", "  <h2>}\n  <h3>}\n  <h4>}\n"))
    told = [
        f"error: {made.desk.host(number)}: {BREAKS[name][2].format(address=made.desk.address(number))}"
        for number, name in broken.items()
    ]
    mends = []
    try:
        for number, name in broken.items():
            BREAKS[name][0](made, number)
            mends.append((BREAKS[name][1], number))
        began = time.monotonic()
        failed = over_ssh.hvd("apply", code=1)
        assert time.monotonic() - began < 25
        summary = f"error: asking the hosts: 3 of 4 hosts failed (not {made.desk.host(1)}); nothing was launched"
        assert errors_of(failed) == [*told, summary]
        for name in names:
            assert f"  -> {BREAKS[name][3] or 'docker --context '}" in failed.stderr
    finally:
        for mend, number in mends:
            mend(made, number)
    over_ssh.hvd("plan")
