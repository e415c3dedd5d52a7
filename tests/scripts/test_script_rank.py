"""/hvd/rank: what a rank gets to see, how its end is recorded, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import hvdproc
import pytest
import rank

HOST = {"cluster": "demo", "host": "beta", "address": "127.0.0.1", "interface": None, "port": 12345, "own_env": []}
# the script as it is, but for the folder of its records and the kernel's counter
DRIVER = """
import os, sys, hvdlib, hvdproc, rank
hvdlib.RUNS, counters = sys.argv[1], hvdproc.oom_kills
hvdproc.oom_kills = lambda: counters((os.environ.get("COUNTER", ""),))
sys.exit(rank.run(sys.argv[2:]))
"""


def alive(pid: int) -> bool:
    return hvdproc.started_at(pid) is not None


def wait_for(condition, seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def number_in(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


class Rank:
    """A rank to be run: its records, its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "host.json").write_text(json.dumps(HOST))
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(rank.__file__).parent),
            "HVD_SETTINGS": str(folder / "host.json"),
            "HVD_RUN": "r1",
            "HOROVOD_RANK": "2",
        }

    def words(self, *command: str) -> list[str]:
        return [sys.executable, "-c", DRIVER, str(self.folder / "runs"), *command]

    def run(self, *command: str) -> tuple[int, str, str]:
        done = subprocess.run(self.words(*command), env=self.env, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def start(self, *command: str) -> subprocess.Popen:
        return subprocess.Popen(self.words(*command), env=self.env)

    def record(self, name: str = "r1/rank-2.json") -> dict:
        path = self.folder / "runs" / name
        wait_for(path.exists)
        return json.loads(path.read_text())


@pytest.fixture
def a_rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


ENDS = [
    pytest.param("exit 0", 0, 0, id="well"),
    pytest.param("exit 3", 3, 3, id="with 3"),
    pytest.param("kill -9 $$", 137, -9, id="killed"),
    pytest.param("kill -SEGV $$", 139, -11, id="crashed"),
]


@pytest.mark.parametrize(("script", "code", "recorded"), ENDS)
def test_its_end_is_told_and_recorded(script, code, recorded, a_rank):
    before = time.time()
    assert a_rank.run("/bin/sh", "-c", f"echo out; echo err >&2; {script}") == (code, "out\n", "err\n")
    told = a_rank.record()
    assert (told["code"], told["ended"], told["rank"], told["host"]) == (recorded, "itself", 2, "beta")
    assert told["command"] == ["/bin/sh", "-c", f"echo out; echo err >&2; {script}"]
    assert before <= told["begin"] <= told["end"] <= time.time()
    assert told["user"] >= 0 and told["sys"] >= 0
    assert sorted(path.name for path in (a_rank.folder / "runs" / "r1").iterdir()) == ["rank-2.json"]


def test_its_processor_time_is_recorded(a_rank):
    a_rank.run(sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass")
    assert 0.3 <= a_rank.record()["user"] + a_rank.record()["sys"] < 60


def test_a_command_that_is_not_there(a_rank):
    code, out, err = a_rank.run("/no/such/program")
    assert (code, out) == (127, "")
    assert err == "hvdcompose: beta: cannot run '/no/such/program': No such file or directory\n"
    assert (a_rank.record()["code"], a_rank.record()["ended"]) == (127, "itself")


def test_the_rank_s_number_under_mpi(a_rank):
    del a_rank.env["HOROVOD_RANK"]
    a_rank.env["OMPI_COMM_WORLD_RANK"] = "5"
    assert a_rank.run("/bin/true")[0] == 0
    assert a_rank.record("r1/rank-5.json")["rank"] == 5


def test_what_a_rank_gets_to_see(a_rank):
    a_rank.env.update({"HOROVOD_SIZE": "3", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_ID": "x", "LAUNCHERS_OWN": "1"})
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    code, out, _ = a_rank.run(sys.executable, "-c", program)
    seen = json.loads(out)
    assert code == 0
    assert (seen["HOROVOD_RANK"], seen["HOROVOD_SIZE"], seen["HVD_RUN"]) == ("2", "3", "r1")
    assert (seen["OMPI_COMM_WORLD_SIZE"], seen["PMIX_ID"]) == ("3", "x")
    assert (seen["HOROVOD_GLOO_IFACE"], seen["OMPI_MCA_btl_tcp_if_include"]) == ("lo", "lo")
    readable = os.access("/proc/1/environ", os.R_OK) and hvdproc.container_environment() != dict(os.environ)
    assert ("LAUNCHERS_OWN" in seen) is not readable, "the container's environment, not the ssh session's"


STUBBORN = "trap '' TERM; echo $$ > {folder}/{name}; while :; do sleep 0.1; done"


def test_sigterm_ends_the_rank_and_what_it_started(a_rank):
    inner = STUBBORN.format(folder=a_rank.folder, name="grandchild")
    script = f"/bin/sh -c {shlex.quote(inner)} & echo $$ > {a_rank.folder}/child; wait"
    wrapper = a_rank.start("/bin/sh", "-c", script)
    family = [number_in(a_rank.folder / name) for name in ("child", "grandchild")]
    wrapper.send_signal(signal.SIGTERM)
    assert wrapper.wait(60) == 143
    assert not any(map(alive, family))
    assert (a_rank.record()["code"], a_rank.record()["ended"]) == (-15, "signal")


def test_what_a_rank_leaves_behind_is_ended(a_rank):
    """In another session, with the rank long gone, and deaf to SIGTERM: it would hold a GPU or a port for ever."""
    inner = STUBBORN.format(folder=a_rank.folder, name="orphan")
    script = f"setsid /bin/sh -c {shlex.quote(inner)} & while [ ! -s {a_rank.folder}/orphan ]; do sleep 0.02; done"
    assert a_rank.start("/bin/sh", "-c", f"{script}; exit 3").wait(60) == 3
    assert not alive(number_in(a_rank.folder / "orphan"))
    assert (a_rank.record()["code"], a_rank.record()["ended"]) == (3, "itself")


def test_a_rank_that_ignores_sigterm_is_killed(a_rank):
    wrapper = a_rank.start("/bin/sh", "-c", STUBBORN.format(folder=a_rank.folder, name="child"))
    child = number_in(a_rank.folder / "child")
    wrapper.send_signal(signal.SIGTERM)
    assert wrapper.wait(60) == 137
    assert not alive(child)
    assert (a_rank.record()["code"], a_rank.record()["ended"]) == (-9, "signal")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_it_too(number, a_rank):
    wrapper = a_rank.start("/bin/sh", "-c", f"echo $$ > {a_rank.folder}/child; exec sleep 60")
    child = number_in(a_rank.folder / "child")
    wrapper.send_signal(number)
    assert wrapper.wait(60) == 143
    assert not alive(child)


@pytest.mark.parametrize("depth", [1, 3], ids=["parent", "great-grandparent"])
def test_a_rank_ends_when_its_launcher_is_gone(depth, a_rank):
    """As with Gloo: the ssh session's shell is killed, and nobody tells the rank."""
    words = a_rank.words("/bin/sh", "-c", f"echo $$ > {a_rank.folder}/child; exec sleep 60")
    for _ in range(depth):
        words = ["/bin/sh", "-c", '"$@"; exit', "sh", *words]
    launcher = subprocess.Popen(words, env=a_rank.env)
    child = number_in(a_rank.folder / "child")
    assert alive(child)
    launcher.kill()
    launcher.wait()
    told = a_rank.record()
    assert (told["code"], told["ended"]) == (-15, "launcher gone")
    wait_for(lambda: not alive(child))


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_was_on_its_way_out_keeps_its_own_code(code, a_rank):
    """The others notice that it leaves, and horovodrun ends them all, before it has ended itself."""
    words = a_rank.words("/bin/sh", "-c", f"echo $$ > {a_rank.folder}/child; sleep 1; exit {code}")
    launcher = subprocess.Popen(["/bin/sh", "-c", '"$@"; exit', "sh", *words], env=a_rank.env)
    number_in(a_rank.folder / "child")
    launcher.kill()
    launcher.wait()
    told = a_rank.record()
    assert (told["code"], told["ended"]) == (code, "itself")


@pytest.mark.parametrize(("counter", "oom"), [("oom_kill 2", False), ("oom_kill 3", True), ("", False)])
def test_the_kernel_s_oom_kills_are_told_from_others(counter, oom, a_rank):
    (a_rank.folder / "events").write_text("low 0\noom 1\noom_kill 2\n")
    a_rank.env["COUNTER"] = str(a_rank.folder / "events")
    assert a_rank.run("/bin/sh", "-c", f"echo '{counter}' > $COUNTER; kill -9 $$")[0] == 137
    assert a_rank.record()["oom"] is oom
    (a_rank.folder / "events").write_text("oom_kill 0\n")
    a_rank.run("/bin/sh", "-c", "echo oom_kill 9 > $COUNTER; exit 3")
    assert a_rank.record()["oom"] is False, "another process of the container was killed"


def test_the_counters_of_both_cgroup_versions_are_understood(tmp_path):
    (tmp_path / "v1").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    (tmp_path / "v2").write_text("low 0\nhigh 0\nmax 12\noom 4\noom_kill 5\noom_group_kill 0\n")
    v1, v2, none = (str(tmp_path / name) for name in ("v1", "v2", "none"))
    assert (hvdproc.oom_kills((none, v1)), hvdproc.oom_kills((v2, none)), hvdproc.oom_kills((none,))) == (7, 5, 0)


def test_a_rank_does_not_outlive_its_wrapper(a_rank):
    wrapper = a_rank.start("/bin/sh", "-c", f"echo $$ > {a_rank.folder}/child; exec sleep 60")
    child = number_in(a_rank.folder / "child")
    wrapper.kill()
    wrapper.wait()
    wait_for(lambda: not alive(child))


OWN = {"PATH": "/opt/conda/bin:/usr/bin", "LEVEL": "beta", "NCCL_DEBUG": "WARN", "HOROVOD_CYCLE_TIME": "1"}
ENVIRONMENTS = [
    # what the runtime passes, and what the rank has of it
    pytest.param({"PATH": "/usr/bin"}, {"PATH": "/opt/conda/bin:/usr/bin"}, id="the image's PATH wins"),
    pytest.param({"LEVEL": "alpha"}, {"LEVEL": "beta"}, id="the host's own value wins"),
    pytest.param({"HOSTNAME": "alpha", "HOME": "/x", "LC_ALL": "C"}, {}, id="the launcher's are dropped"),
    pytest.param({"HOROVOD_RANK": "1"}, {"HOROVOD_RANK": "1"}, id="Horovod's"),
    pytest.param({"HOROVOD_CYCLE_TIME": "9"}, {"HOROVOD_CYCLE_TIME": "9"}, id="Horovod's over those of all hosts"),
    pytest.param({"HVD_RUN": "r1"}, {"HVD_RUN": "r1"}, id="ours"),
    pytest.param(
        {"OMPI_X": "1", "OPAL_X": "2", "ORTE_X": "3", "PMI_X": "4", "PMIX_X": "5", "PRTE_X": "6"},
        {"OMPI_X": "1", "OPAL_X": "2", "ORTE_X": "3", "PMI_X": "4", "PMIX_X": "5", "PRTE_X": "6"},
        id="those of MPI",
    ),
    pytest.param({"HOROVOD_GLOO_IFACE": "eth0"}, {"HOROVOD_GLOO_IFACE": "lo"}, id="the NIC is this host's"),
    pytest.param({"MY_HOROVOD_X": "1"}, {}, id="only in front"),
]


@pytest.mark.parametrize(("passed", "has"), ENVIRONMENTS)
def test_the_environment(passed, has):
    nic = {
        "HOROVOD_GLOO_IFACE": "lo",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "=lo",
        "NCCL_SOCKET_FAMILY": "AF_INET",
    }
    assert hvdproc.rank_environment(HOST, OWN, passed) == {**OWN, **nic, **has}


def test_what_cluster_yaml_sets_for_this_host_wins():
    """The launcher's environment holds its own host's values of the same names."""
    own = {**OWN, "HOROVOD_GLOO_IFACE": "ib0", "OMPI_MCA_btl": "self,vader"}
    passed = {"HOROVOD_CYCLE_TIME": "9", "HOROVOD_GLOO_IFACE": "eth0", "OMPI_MCA_btl": "tcp", "HOROVOD_RANK": "1"}
    host = {**HOST, "own_env": ["HOROVOD_CYCLE_TIME", "HOROVOD_GLOO_IFACE", "OMPI_MCA_btl", "GONE"]}
    found = hvdproc.rank_environment(host, own, passed)
    assert {name: found[name] for name in own} == own
    assert found["HOROVOD_RANK"] == "1" and "GONE" not in found


def test_a_user_s_choice_for_nccl_stays():
    own = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_FAMILY": "AF_INET6", "GLOO_SOCKET_IFNAME": "ib0"}
    found = hvdproc.rank_environment(HOST, own, {})
    assert {name: found[name] for name in own} == own


@pytest.mark.parametrize(
    ("env", "number"),
    [
        ({"HOROVOD_RANK": "3"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "4"}, 4),
        ({"HOROVOD_RANK": "3", "OMPI_COMM_WORLD_RANK": "4"}, 3),
        ({}, None),
    ],
)
def test_the_number_of_a_rank(env, number):
    assert rank.rank_number(env) == number


def test_processes_are_told_apart_by_their_start():
    """A pid that is used again is another process."""
    assert hvdproc.started_at(os.getpid()) == hvdproc.started_at(os.getpid())
    child = subprocess.Popen(["true"])
    wait_for(lambda: hvdproc.started_at(child.pid) is None)  # a zombie is gone
    child.wait()
    assert hvdproc.started_at(child.pid) is None
    assert hvdproc.launcher_gone([(os.getpid(), "0")]) is True
    assert hvdproc.launcher_gone([(os.getpid(), hvdproc.started_at(os.getpid()))]) is False
    assert hvdproc.launcher_gone([]) is False


def test_a_program_with_odd_characters_in_its_name(tmp_path):
    """The name stands in brackets in /proc/PID/stat, and may hold brackets and blanks itself."""
    odd = tmp_path / ") R 1 (x"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    try:
        wait_for(lambda: Path(f"/proc/{child.pid}/comm").read_text().startswith(") R"))
        assert hvdproc.parent_of(child.pid) == os.getpid()
        assert int(hvdproc.started_at(child.pid) or 0) > 0
    finally:
        child.kill()
        child.wait()
