"""The lab against this machine's engine, under a name, a subnet and a state folder of its own."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from desk import Desk, new_desk

pytestmark = pytest.mark.engine

# what a container needs to run the stub nvidia-smi, taken from a virtual host: no registry has to be in reach
TINY = (
    "cd / && for program in sh ls sed cat sleep; do echo bin/$program; ldd /bin/$program | grep -o '/[^ ]*'; done"
    " | sed 's,^/,,' | sort -u | tar -chf - -T - | docker import --change 'CMD [\"sleep\",\"60\"]' - tiny"
)


@pytest.fixture
def desk():
    """A user without a lab; whatever a test makes is gone afterwards."""
    # not tmp_path, whose long names leave too little for a unix socket's path
    with tempfile.TemporaryDirectory(prefix="hvd-") as folder:
        user = new_desk(Path(folder))
        yield user
        user.lab("down")


@pytest.fixture(scope="module")
def three():
    """A lab of unequal hosts: 1 with two GPUs, 2 with none and half a CPU, 3 rootless with one GPU."""
    with tempfile.TemporaryDirectory(prefix="hvd-") as folder:
        user = new_desk(Path(folder))
        try:
            user.lab("up", "--hosts", "1", "--gpus", "2", "--subnet", user.subnet)
            user.lab("up", "--hosts", "2", "--gpus", "0", "--cpus", "0.5")
            user.lab("up", "--hosts", "3", "--rootless", user.host(3))
            for number in (1, 2, 3):
                user.lab("shell", user.host(number), "--", "sh", "-c", TINY)
            yield user
        finally:
            user.lab("down")


def test_unequal_hosts_stand_side_by_side(three):
    seen = {
        name: [host[key] for key in ("address", "ready", "gpus", "cpus", "rootless")]
        for name, host in three.hosts().items()
    }
    assert seen == {
        three.host(1): [three.address(1), True, 2, None, False],
        three.host(2): [three.address(2), True, 0, 0.5, False],
        three.host(3): [three.address(3), True, 1, None, True],
    }


def test_each_has_a_docker_context(three):
    assert three.contexts() == {three.host(1), three.host(2), three.host(3)}
    for name in three.contexts():
        assert three.docker("--context", name, "info", "--format", "{{.Name}}").strip() == name


def test_up_again_does_nothing(three):
    label = f"label=hvdcompose.lab={three.name}"
    before = three.engine("ps", "--no-trunc", "--quiet", "--filter", label)
    began = time.monotonic()
    assert "3 hosts ready, nothing to do" in three.lab("up").stderr
    assert time.monotonic() - began < 10
    assert three.engine("ps", "--no-trunc", "--quiet", "--filter", label) == before


def test_fewer_hosts_leave_the_others_standing(three):
    said = three.lab("up", "--hosts", "1").stderr
    assert f"{three.host(2)}, {three.host(3)} stay as they are" in said
    assert all(host["ready"] for host in three.hosts().values())


def test_what_would_change_a_standing_host_is_refused(three):
    said = three.lab("up", "--hosts", "1", "--gpus", "1", code=4).stderr
    assert f"{three.host(1)} has 2 GPUs, not 1" in said
    assert "lab down" in said


COMPOSE = """
services:
  worker:
    image: tiny
    command: [sh, -c, nvidia-smi -L]
    network_mode: none
    deploy: {{resources: {{reservations: {{devices: [{{{device}, capabilities: [gpu]}}]}}}}}}
"""
BOTH = ["GPU 0: FAKE-GPU (UUID: GPU-fake-0)", "GPU 1: FAKE-GPU (UUID: GPU-fake-1)"]
SECOND = ["GPU 0: FAKE-GPU (UUID: GPU-fake-1)"]


@pytest.mark.parametrize(
    ("device", "sees"),
    [
        ("driver: nvidia, count: all", BOTH),
        ("driver: nvidia, count: 1", BOTH[:1]),
        ("driver: nvidia, count: 2", BOTH),
        ("driver: nvidia, device_ids: ['1']", SECOND),
        ("driver: nvidia, device_ids: ['0', '1']", BOTH),
        ("driver: nvidia, device_ids: [GPU-fake-1]", SECOND),
        ("driver: cdi, device_ids: ['nvidia.com/gpu=0']", BOTH[:1]),
        ("driver: cdi, device_ids: ['nvidia.com/gpu=1']", SECOND),
        ("driver: cdi, device_ids: ['nvidia.com/gpu=all']", BOTH),
    ],
)
def test_a_reservation_gives_exactly_its_gpus(three, tmp_path, device, sees):
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(device=device))
    compose = ("--context", three.host(1), "compose", "--project-name", "gpus", "--file", str(file))
    three.docker(*compose, "up", "--detach")
    try:
        three.docker("--context", three.host(1), "wait", "gpus-worker-1")
        assert three.docker(*compose, "logs", "--no-log-prefix").splitlines() == sees
    finally:
        three.docker(*compose, "down", "--timeout", "0")


def run_tiny(user: Desk, number: int, *options: str, code: int = 0) -> str:
    words = ("--context", user.host(number), "run", "--rm", "--network", "none", *options)
    return user.docker(*words, code=code)


@pytest.mark.parametrize(
    ("number", "options", "why"),
    [
        (1, ("--gpus", "3"), "device error: 2: unknown device"),
        (1, ("--gpus", '"device=7"'), "device error: 7: unknown device"),
        (1, ("--device", "nvidia.com/gpu=7"), "unresolvable CDI devices nvidia.com/gpu=7"),
        (2, ("--gpus", "all"), 'could not select device driver "" with capabilities: [[gpu]]'),
    ],
)
def test_gpus_that_are_not_there_are_refused(three, number, options, why):
    assert why in run_tiny(three, number, *options, "tiny", "ls", code=125)


def test_a_container_with_a_read_only_root_gets_its_gpus(three):
    assert run_tiny(three, 1, "--read-only", "--gpus", "all", "tiny", "nvidia-smi", "-L").splitlines() == BOTH


def test_the_gpus_leave_no_trace_in_the_image_and_cover_what_it_has(three):
    run_tiny(three, 1, "--gpus", "all", "tiny", "nvidia-smi", "-L")
    run_tiny(three, 1, "tiny", "ls", "/usr/bin/nvidia-smi", code=2)
    own = "cd /tmp && printf 'FROM tiny\\nCOPY own /usr/bin/nvidia-smi\\n' > Dockerfile"
    own += " && printf '#!/bin/sh\\necho mine' > own && chmod 755 own && DOCKER_BUILDKIT=0 docker build -qt own ."
    three.lab("shell", three.host(1), "--", "sh", "-c", own)
    assert run_tiny(three, 1, "--gpus", "all", "own", "nvidia-smi", "-L").splitlines() == BOTH
    assert run_tiny(three, 1, "own", "nvidia-smi", "-L").strip() == "mine"


def test_a_query_like_the_real_one(three):
    query = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
    said = run_tiny(three, 1, "--gpus", "all", "tiny", *query)
    assert said.splitlines() == ["0, GPU-fake-0, 16384", "1, GPU-fake-1, 16384"]


def test_a_cpu_quota_only_where_it_was_asked_for(three):
    quotas = [
        three.engine("inspect", "--format", "{{.HostConfig.NanoCpus}}", f"hvdcompose-{three.host(number)}")
        for number in (1, 2, 3)
    ]
    assert quotas == ["0", "500000000", "0"]


def test_a_rootless_host_says_so_and_has_its_gpus(three):
    options = three.docker("--context", three.host(3), "info", "--format", "{{json .SecurityOptions}}")
    assert "name=rootless" in json.loads(options)
    assert run_tiny(three, 3, "--gpus", "all", "tiny", "nvidia-smi", "-L").splitlines() == BOTH[:1]
    device = ("--device", "nvidia.com/gpu=0")
    assert run_tiny(three, 3, *device, "tiny", "nvidia-smi", "-L").splitlines() == BOTH[:1]


def test_hosts_reach_each_other_by_address_and_name(three):
    for peer in (three.address(2), three.host(3)):
        three.lab("shell", three.host(1), "--", "ping", "-c1", "-W2", peer)


def test_a_shell_on_a_host_has_compose_and_hands_the_exit_code_on(three):
    assert three.lab("shell", three.host(1), "--", "hostname").stdout.strip() == three.host(1)
    assert "Docker Compose version" in three.lab("shell", three.host(1), "--", "docker", "compose", "version").stdout
    three.lab("shell", three.host(3), "--", "sh", "-c", "docker ps && exit 7", code=7)
    assert "no host" in three.lab("shell", "nobody1", code=2).stderr


def test_what_went_down_comes_back(three):
    one, two, rootless = (f"hvdcompose-{three.host(number)}" for number in (1, 2, 3))
    three.engine("pause", one)
    three.engine("kill", two)
    three.engine("network", "disconnect", f"hvdcompose-{three.name}", rootless)
    seen = [(host["state"], host["ready"]) for host in three.hosts().values()]
    assert seen == [("paused", False), ("exited", False), ("running", False)]
    three.lab("up")
    assert all(host["ready"] for host in three.hosts().values())
    three.lab("shell", three.host(1), "--", "ping", "-c1", "-W2", three.address(3))


def test_a_host_whose_folder_was_deleted_comes_back(three):
    folder = three.folder / "state" / "hvdcompose" / "lab" / three.name / three.host(1)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert "restarting: its engine does not answer" in three.lab("up").stderr
    assert three.hosts()[three.host(1)]["ready"]


def test_the_ssh_contexts_work_inside_lab_shell_and_nowhere_else(three):
    said = three.lab("up", "--ssh").stderr
    assert f"hvdcompose lab shell --name {three.name} -- docker" in said
    for number, user in ((1, "root"), (3, "lab")):
        name = three.host(number)
        inside = three.lab(
            "shell", "--", "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}", name
        )
        assert inside.stdout.strip() == f"ssh://{user}@{three.address(number)}"
        info = three.lab(
            "shell", "--", "docker", "--context", name, "info", "--format", "{{.Name}} {{.SecurityOptions}}"
        )
        assert info.stdout.startswith(name)
        assert ("rootless" in info.stdout) == (number == 3)
    outside = three.docker("context", "inspect", "--format", "{{.Endpoints.docker.Host}}", three.host(1))
    assert outside.startswith("unix://")
    assert "Docker Compose version" in three.lab("shell", "--", "docker", "compose", "version").stdout
    three.lab("shell", "--", "sh", "-c", "exit 5", code=5)
    three.lab("shell", "--", "no-such-program", code=2)
    # the lab can be asked and changed from inside as well
    inner = [*three.words("status", "--json")]
    data = json.loads(three.lab("shell", "--", *inner).stdout)["data"]
    assert [host["ready"] for host in data["hosts"]] == [True, True, True]


def test_over_ssh_the_user_s_docker_configuration_stays_as_it_is(desk):
    desk.lab("up", "--hosts", "1", "--gpus", "0", "--ssh", "--subnet", desk.subnet)
    assert desk.contexts() == set()
    assert desk.lab("shell", "--", "docker", "--context", desk.host(1), "version", "--format", "{{.Server.Os}}")
    assert sorted(path.name for path in (desk.folder / "docker").iterdir()) in (["cli-plugins"], [])


def test_down_removes_everything_even_the_context_in_use(desk):
    desk.lab("up", "--hosts", "2", "--subnet", desk.subnet)
    desk.docker("context", "use", desk.host(1))
    assert "2 hosts ready, nothing to do" in desk.lab("up").stderr
    assert "gone" in desk.lab("down").stderr
    assert desk.remains() == []
    assert desk.docker("context", "show").strip() == "default"
    assert "nothing to do" in desk.lab("down").stderr
    assert f"no hosts in the lab {desk.name}" in desk.lab("status").stderr


def test_a_foreign_context_is_refused_before_anything_is_made_and_survives(desk):
    theirs = desk.host(2)
    desk.docker("context", "create", theirs, "--description", "my box", "--docker", "host=ssh://me@box")
    said = desk.lab("up", "--hosts", "2", "--subnet", desk.subnet, code=4).stderr
    assert f"a Docker context {theirs} is there that the lab did not make (ssh://me@box)" in said
    assert f"docker context rm {theirs}" in said
    assert desk.remains() == [theirs]
    desk.lab("down")
    assert desk.contexts() == {theirs}


@pytest.mark.parametrize("after", [0.8, 1.5, 2.5])
def test_after_an_interrupt_up_goes_on_and_down_cleans(desk, after):
    process = subprocess.Popen(
        desk.words("up", "--hosts", "3", "--subnet", desk.subnet),
        env=desk.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130
    desk.lab("up", "--hosts", "3", "--subnet", desk.subnet)
    assert [host["ready"] for host in desk.hosts().values()] == [True, True, True]


def test_an_interrupted_lab_can_be_removed_at_once(desk):
    with subprocess.Popen(
        desk.words("up", "--hosts", "3", "--subnet", desk.subnet), env=desk.env, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
    desk.lab("down")
    assert desk.remains() == []


def test_a_subnet_that_is_taken_is_told(three, desk):
    said = desk.lab("up", "--hosts", "1", "--subnet", three.subnet, code=1).stderr
    assert f"no network {three.subnet} for the lab" in said
    assert "--subnet" in said


def test_without_an_engine_every_command_says_one_sentence(desk):
    for command in ("up", "status", "down"):
        said = desk.lab(command, code=1, DOCKER_HOST="unix:///nonexistent/docker.sock").stderr
        assert "no Docker engine answers on this machine" in said
        assert "Traceback" not in said


def test_four_hosts_are_ready_within_fifteen_seconds(desk):
    desk.lab("image")
    began = time.monotonic()
    desk.lab("up", "--hosts", "4", "--subnet", desk.subnet)
    for number in range(1, 5):
        desk.docker("--context", desk.host(number), "info")
    assert time.monotonic() - began < 15
