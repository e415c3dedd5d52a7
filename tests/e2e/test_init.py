"""From nothing: init asks the hosts of a lab, and what it writes is applied, entered with exec, and taken down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from made import IMAGE, Made, new_made
from terminal import at_a_terminal

from hvdcompose.config.source import load_cluster

pytestmark = pytest.mark.engine
COMMAND = "sh -c 'echo rank $HOROVOD_RANK of $HOROVOD_SIZE'"


@pytest.fixture(scope="module")
def begun(lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A cluster whose file init wrote, applied, its run ended well."""
    made = new_made(lab4, tmp_path_factory.mktemp("init"))
    hosts = [word for n in range(1, 5) for word in ("--context", lab4.host(n))]
    words = ("--image", IMAGE, "--command", COMMAND, "--name", made.name, "--port", str(made.port))
    made.hvd("init", *words, *hosts)
    try:
        yield made
    finally:
        made.clear()


def test_the_file_says_what_the_lab_is(begun: Made) -> None:
    cluster = load_cluster(begun.file)
    assert [(host.context, host.address, host.gpus.kind, host.slots) for host in cluster.hosts] == [
        (begun.desk.host(n), begun.desk.address(n), "all", 2) for n in range(1, 5)
    ]


def test_apply_takes_it_and_all_ranks_run(begun: Made) -> None:
    done = begun.hvd("apply", "--follow")
    assert all(f"rank {rank} of 8" in done.stdout for rank in range(8))


def test_a_command_in_a_worker_has_a_ranks_environment_and_its_own_exit_code(begun: Made) -> None:
    host = begun.desk.host(2)
    assert begun.hvd("exec", host, "--", "printenv", "HOROVOD_GLOO_IFACE").stdout == "eth0\n"
    assert begun.hvd("exec", host, "--", "sh", "-c", "echo told >&2; exit 7", code=7).stderr == "told\n"
    begun.hvd("exec", host, "--", "no-such-program", code=127)


def test_a_command_at_a_terminal_has_one(begun: Made) -> None:
    words = begun.desk.hvd_words(
        "exec", begun.desk.host(2), "--", "sh", "-c", "test -t 0 && test -t 1 && echo both; exit 5"
    )
    code, shown = at_a_terminal(words, cwd=begun.folder, env=begun.desk.env)
    assert (code, shown) == (5, "both\r\n")


def test_a_command_on_all_hosts(begun: Made) -> None:
    workers = [begun.desk.host(n) for n in (2, 3, 4)]
    done = begun.hvd("exec", "--all", "--", "sh", "-c", "hostname; test $(hostname) != $0", workers[1], code=1)
    assert sorted(done.stdout.splitlines()) == [f"{name} | {name}" for name in workers]
    first, failed = done.stderr.splitlines()
    assert first.startswith(f"{begun.desk.host(1)}: left out: its container, the launcher's")
    assert failed == f"{workers[1]}: exit 1"


def test_the_launcher_can_be_entered_only_during_a_run(begun: Made) -> None:
    told = begun.hvd("exec", begun.desk.host(1), "--", "true", code=1).stderr
    assert "is there only during a run, and none is live" in told


def test_once_the_image_is_there_containers_tell_the_same(begun: Made) -> None:
    """Now a short container on each host is asked, as on machines that are no lab."""
    first = load_cluster(begun.file)
    words = ("--image", IMAGE, "--command", COMMAND, "--name", begun.name, "--port", str(begun.port))
    hosts = [word for n in range(1, 5) for word in ("--context", begun.desk.host(n))]
    begun.hvd("init", *words, *hosts, "-f", "again.yaml")
    text = (begun.folder / "again.yaml").read_text()
    assert load_cluster(begun.folder / "again.yaml") == first
    assert f"{begun.desk.address(1)}" in text and "# on its eth0" in text


def test_a_file_that_is_there_is_kept(begun: Made) -> None:
    before = begun.file.read_text()
    begun.hvd("init", "--image", IMAGE, "--command", COMMAND, code=2)
    assert begun.file.read_text() == before


def test_down(begun: Made) -> None:
    told = json.loads(begun.hvd("down", "--json").stdout)
    assert told["data"] == {"hosts": {begun.desk.host(n): {"cleared": True} for n in range(1, 5)}}
    assert begun.docker(2, "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={begun.name}") == ""


@pytest.fixture
def dead(lab4: Desk) -> Iterator[str]:
    """A context that leads nowhere, beside those of the lab."""
    name = f"{lab4.name}-off"
    lab4.docker("context", "create", name, "--docker", "host=unix:///nowhere/docker.sock")
    yield name
    lab4.docker("context", "rm", "--force", name)


def test_a_dead_context_is_told_and_left_out(lab4: Desk, dead: str, tmp_path: Path) -> None:
    made = new_made(lab4, tmp_path)
    done = made.hvd("init", "--image", IMAGE, "--command", COMMAND)
    why = "its Docker engine does not answer at /nowhere/docker.sock: No such file or directory"
    assert f"error: {dead}: {why}\n" in done.stderr
    assert f"# Left out: {dead}: {why}\n" in made.file.read_text()
    hosts = {host.name for host in load_cluster(made.file).hosts}
    assert {lab4.host(n) for n in range(1, 5)} <= hosts and dead not in hosts
    made.hvd("render", "--check", code=1)  # it is a cluster.yaml like any other
    made.file.unlink()  # nothing of it is on a host
