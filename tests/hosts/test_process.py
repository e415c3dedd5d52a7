"""Child processes: deadlines that hold, whatever the child does, and an environment that cannot lead astray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hvdcompose.hosts import process

LONG = 60  # seconds nothing here waits for


def alive(pid: int) -> bool:
    """Tell whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def pids_in(path: Path, count: int) -> list[int]:
    """Wait until the child wrote the pids of its family, and return them."""
    wait_for(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


def test_output_and_exit_code():
    done = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], deadline=LONG)
    assert done == process.Completed(3, "out\n", "err\n")
    assert not done.ok and not done.timed_out


def test_words_are_passed_as_they_are():
    assert process.run(["printf", "%s|", "a b", "$HOME", "*", "'"], deadline=LONG).out == "a b|$HOME|*|'|"


def test_stdin_is_given_or_empty():
    assert process.run(["cat"], deadline=LONG, stdin=b"\0given").out == "\0given"
    assert process.run(["cat"], deadline=LONG).out == ""


def test_output_that_is_no_text_does_not_end_the_client():
    assert process.run(["printf", r"\377x"], deadline=LONG).out == "\ufffdx"
    done, data = process.run_bytes(["printf", r"\377\000x"], deadline=LONG)
    assert (done, data) == (process.Completed(0, "", ""), b"\xff\0x")


def test_more_output_than_a_pipe_holds():
    assert len(process.run([sys.executable, "-c", "print('x' * 1_000_000)"], deadline=LONG).out) == 1_000_001


def test_tail_is_the_end_of_both_streams():
    script = "for i in $(seq 30); do echo o$i; echo e$i >&2; done; exit 1"
    done = process.run(["sh", "-c", script], deadline=LONG)
    assert done.tail.split() == [f"{stream}{number}" for stream in "oe" for number in range(11, 31)]


def test_a_program_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        process.run(["hvdcompose-no-such-program"], deadline=LONG)


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", '''
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "a").write(f"{os.getpid()} ")
time.sleep(60)
''', sys.argv[1]])
open(sys.argv[1], "a").write(f"{os.getpid()} ")
time.sleep(60)
"""


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(process, "KILL_AFTER_SECONDS", 0.3)


@pytest.mark.parametrize("run", [process.run, lambda *a, **k: process.run_bytes(*a, **k)[0]], ids=["text", "bytes"])
def test_a_deadline_kills_the_whole_family_though_it_ignores_sigterm(run, tmp_path, soon):
    pids = tmp_path / "pids"
    done = run([sys.executable, "-c", STUBBORN, str(pids)], deadline=3.0)
    assert done == process.Completed(-1, "", "", timed_out=True)
    assert not done.ok
    family = pids_in(pids, 2)
    wait_for(lambda: not any(map(alive, family)))


def test_a_deadline_kills_grandchildren_whose_parent_goes_at_once(tmp_path, soon):
    """The child obeys SIGTERM, what it started does not: a `docker` whose `ssh` hangs."""
    pids = tmp_path / "pids"
    grandchild = f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 0.1; done"
    done = process.run(["sh", "-c", f'sh -c "{grandchild.replace("$", chr(92) + "$")}" & wait'], deadline=1.0)
    assert done.timed_out
    (pid,) = pids_in(pids, 1)
    wait_for(lambda: not alive(pid))


def test_a_deadline_ends_what_holds_the_pipe_of_a_child_that_is_gone(tmp_path, soon):
    pids = tmp_path / "pids"
    done = process.run(["sh", "-c", f"sleep {LONG} & echo $! > {pids}"], deadline=1.0)
    assert done.timed_out
    (pid,) = pids_in(pids, 1)
    wait_for(lambda: not alive(pid))


def test_lines_come_as_they_are_written_and_end_with_the_reader(tmp_path):
    pids = tmp_path / "pids"
    stream = process.lines(["sh", "-c", f"echo $$ > {pids}; echo one; echo two >&2; sleep {LONG}"])
    assert {next(stream), next(stream)} == {"one", "two"}
    stream.close()
    (pid,) = pids_in(pids, 1)
    wait_for(lambda: not alive(pid))


def test_lines_of_other_systems_and_without_an_end():
    assert list(process.lines(["printf", r"a\r\nb\n\nc"])) == ["a", "b", "", "c"]


def test_end_children_ends_everything_and_nothing_starts_after_it(tmp_path, soon, fresh_process):
    pids = tmp_path / "pids"
    results = []
    thread = threading.Thread(
        target=lambda: results.append(process.run([sys.executable, "-c", STUBBORN, str(pids)], deadline=LONG))
    )
    thread.start()
    family = pids_in(pids, 2)
    process.end_children()
    thread.join(20)
    assert not thread.is_alive()
    wait_for(lambda: not any(map(alive, family)))
    assert results[0].code == -signal.SIGKILL
    marker = tmp_path / "started"
    with pytest.raises(process.Interrupted):
        process.run(["touch", str(marker)], deadline=LONG)
    assert not marker.exists()


def test_end_children_ends_children_that_others_started(tmp_path, soon, fresh_process):
    """python-on-whales starts its own, in groups of their own."""
    child = os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", str(LONG)])
    process.end_children()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


@pytest.mark.parametrize("name", process.FOREIGN)
def test_variables_that_lead_elsewhere_are_dropped(name, monkeypatch):
    monkeypatch.setenv(name, "elsewhere")
    assert process.run(["sh", "-c", f'printf %s "${{{name}-dropped}}"'], deadline=LONG).out == "dropped"
    words = [*process.env_words(), "sh", "-c", f'printf %s "${{{name}-dropped}}"']
    assert subprocess.run(words, capture_output=True, text=True).stdout == "dropped"


MUST_GO = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES"),
    # containers would be named demo_worker_1; and Compose refuses it together with --remove-orphans
    *("COMPOSE_COMPATIBILITY", "COMPOSE_IGNORE_ORPHANS"),
    *("HVD_KEYS", "HVD_IMAGE", "HVD_CODE", "HVD_LAUNCH", "HVD_RUN"),  # would win over .env beside the file
)


@pytest.mark.parametrize("name", MUST_GO)
def test_the_list_of_them(name):
    assert name in process.FOREIGN


def test_other_variables_stay(monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", "/somewhere")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert (
        process.run(["sh", "-c", "echo $DOCKER_CONFIG $SSH_AUTH_SOCK"], deadline=LONG).out == "/somewhere /run/agent\n"
    )
    assert process.env_words() == ["env"]


def test_a_folder_may_come_first_on_the_path_of_children(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_first_on_path", [])
    process.put_first_on_path(tmp_path)
    wanted = f"{tmp_path}:{os.environ['PATH']}\n"
    assert process.run(["sh", "-c", "echo $PATH"], deadline=LONG).out == wanted
    words = [*process.env_words(), "sh", "-c", "echo $PATH"]
    assert subprocess.run(words, capture_output=True, text=True).stdout == wanted


def test_what_a_silent_command_leaves_behind_keeps_nobody_waiting(tmp_path):
    pids = tmp_path / "pids"
    assert process.run_silent(["sh", "-c", f"sleep {LONG} & echo $! > {pids}"], deadline=LONG)
    (pid,) = pids_in(pids, 1)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_silent_command_fails_or_meets_its_deadline(soon):
    assert not process.run_silent(["false"], deadline=LONG)
    assert not process.run_silent(["sleep", str(LONG)], deadline=0.2)


def test_lines_are_told_as_they_come_and_the_last_are_kept():
    told: list[str] = []
    script = "for i in $(seq 40); do echo line $i; done; echo broken >&2; exit 3"
    completed = process.tell_lines(["sh", "-c", script], told.append, deadline=30)
    assert told == [*(f"line {number}" for number in range(1, 41)), "broken"]
    assert (completed.code, completed.timed_out) == (3, False)
    assert completed.out.splitlines() == told[-30:]


@pytest.mark.parametrize("script", ["sleep 60", "while :; do echo x; sleep 0.01; done"], ids=["silent", "loud"])
def test_lines_have_a_deadline(script):
    began = time.monotonic()
    completed = process.tell_lines(["sh", "-c", script], lambda _: None, deadline=0.5)
    assert completed.timed_out and time.monotonic() - began < 20
