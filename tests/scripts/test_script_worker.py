"""/hvd/worker: what keeps logins out is said before sshd would refuse them in silence."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import hvdlib
import pytest
import worker

HOST = {"cluster": "demo", "host": "beta", "port": 12345}
ME = os.geteuid()


def told(path, *sentences: str) -> list[str]:
    """Return the sentences expected of a file that belongs to whoever runs the tests."""
    owner = [f"{path}: belongs to uid {ME}, sshd wants root (uid 0): chown 0 it"] if ME else []
    return [*owner, *sentences]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o700, 0o755, 0o400])
def test_modes_that_sshd_takes(mode, tmp_path):
    path = tmp_path / "authorized_keys"
    path.touch()
    path.chmod(mode)
    assert list(worker.modes_at_fault([str(path)])) == told(path)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_modes_that_sshd_refuses(mode, tmp_path):
    path = tmp_path / "authorized_keys"
    path.touch()
    path.chmod(mode)
    assert list(worker.modes_at_fault([str(path)])) == told(
        path, f"{path}: mode {mode:04o} lets others write, sshd refuses that: chmod go-w it"
    )


def test_an_owner_that_sshd_refuses(tmp_path, monkeypatch):
    """Only root can give files away, so the answer is made up."""
    path = tmp_path / "authorized_keys"
    answer = os.stat_result((0o100666, 1, 1, 1, 1000, 1000, 0, 0, 0, 0))
    monkeypatch.setattr(worker.os, "stat", lambda asked, **_: {str(path): answer}[asked])
    assert list(worker.modes_at_fault([str(path)])) == [
        f"{path}: belongs to uid 1000, sshd wants root (uid 0): chown 0 it",
        f"{path}: mode 0666 lets others write, sshd refuses that: chmod go-w it",
    ]


def test_what_is_missing(tmp_path):
    assert list(worker.modes_at_fault([f"{tmp_path}/gone"])) == [f"{tmp_path}/gone: No such file or directory"]
    assert list(worker.modes_at_fault([])) == []


REST = "daemon:*:19000:0:99999:7:::\nuser:!:19000:0:99999:7:::\nroot2:!:1::::::\n"
SHADOWS = [
    pytest.param("root:!:19000:0:99999:7:::\n", "root:*:19000:0:99999:7:::\n", id="locked"),
    pytest.param("root:!!:19000:0:99999:7:::\n", "root:*:19000:0:99999:7:::\n", id="locked by useradd"),
    pytest.param("root:!*:19000:0:99999:7:::\n", "root:*:19000:0:99999:7:::\n", id="locked, no password"),
    pytest.param("root:!$6$salt$hash:1::::::\n", "root:*$6$salt$hash:1::::::\n", id="a locked password opens nothing"),
    pytest.param("root:*:19000:0:99999:7:::\n", "root:*:19000:0:99999:7:::\n", id="no password"),
    pytest.param("root:$6$salt$hash:1::::::\n", "root:$6$salt$hash:1::::::\n", id="a password"),
    pytest.param("", "", id="no root"),
]


@pytest.mark.parametrize(("before", "after"), SHADOWS)
def test_root_is_unlocked_and_nobody_else(before, after, tmp_path):
    path = tmp_path / "shadow"
    path.write_text(before + REST)
    path.chmod(0o640)
    worker.unlock_root(str(path))
    assert path.read_text() == after + REST
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_image_without_shadow_passwords(tmp_path):
    worker.unlock_root(str(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """Put what the volumes hold where the worker looks for it."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "authorized_keys").touch(0o600)
    (tmp_path / "host_key").touch(0o600)
    monkeypatch.setattr(worker, "SSH_FOLDER", str(ssh))
    monkeypatch.setattr(worker, "HOST_KEY", str(tmp_path / "host_key"))
    return tmp_path


@pytest.fixture
def listener():
    with socket.create_server(("0.0.0.0", 0)) as taken:
        yield taken


def faults(host) -> str:
    try:
        worker.check(host)
    except hvdlib.Fault as fault:
        return str(fault)
    return ""


def test_a_port_that_another_program_holds(filled, listener):
    port = listener.getsockname()[1]
    assert f"port {port}: Address already in use: another program of beta listens on it" in faults(
        {**HOST, "port": port}
    )
    assert ME or "apply" not in faults({**HOST, "port": port}), "filling volumes frees no port"
    listener.close()
    assert "another program" not in faults({**HOST, "port": port})


def test_a_port_held_on_one_address_only(filled):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "another program of beta" in faults({**HOST, "port": taken.getsockname()[1]})


def test_everything_that_is_missing_is_told_at_once(filled, listener):
    port = listener.getsockname()[1]
    (filled / ".ssh" / "authorized_keys").unlink()
    (filled / "host_key").unlink()
    found = faults({**HOST, "port": port})
    assert found.startswith("beta: cannot serve ssh: ")
    assert f"{filled}/.ssh/authorized_keys: No such file or directory" in found
    assert f"{filled}/host_key: missing" in found
    assert f"port {port}: " in found
    assert found.endswith(". `hvdcompose apply` fills the volumes")


@pytest.fixture
def pid_file(tmp_path, monkeypatch):
    path = tmp_path / "sshd.pid"
    monkeypatch.setattr(worker, "PID_FILE", str(path))
    return path


def test_listening_is_read_from_the_kernel(pid_file, listener):
    port = listener.getsockname()[1]
    assert worker.listening(port) is False, "another program's port: our sshd has not written its pid"
    pid_file.write_text("1\n")
    assert worker.listening(port) is True
    listener.close()
    assert worker.listening(port) is False


def test_a_connection_is_no_listener(pid_file, listener):
    pid_file.write_text("1\n")
    with socket.create_connection(listener.getsockname()) as client:
        assert worker.listening(client.getsockname()[1]) is False


def test_ready_waits_and_tells(pid_file, listener, monkeypatch, capsys):
    port = listener.getsockname()[1]
    monkeypatch.setattr(worker, "READY_SECONDS", 0.2)
    assert worker.ready({**HOST, "port": port}) == 1
    assert capsys.readouterr().err == f"hvdcompose: beta: sshd does not listen on port {port} after 0 s\n"
    pid_file.write_text("1\n")
    assert worker.ready({**HOST, "port": port}) == 0


def test_an_image_without_sshd(monkeypatch):
    monkeypatch.setattr(worker.shutil, "which", lambda *_, **__: None)
    with pytest.raises(hvdlib.Fault, match="this image has no sshd: install openssh-server in it"):
        worker.find_sshd()


SERVE = """
import sys, hvdlog, worker
with hvdlog.Capture(hvdlog.RollingFile(sys.argv[1], 9999)):
    code = worker.supervise(sys.argv[2:])
sys.exit(code)
"""


def serving(log: Path, *words: str) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(Path(worker.__file__).parent)}
    return subprocess.Popen([sys.executable, "-c", SERVE, str(log), *words], env=env, stderr=subprocess.PIPE)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_what_sshd_says_goes_to_the_container_s_log_and_to_a_file(script, code, tmp_path):
    process = serving(tmp_path / "log", "/bin/sh", "-c", f"echo Server listening on 0.0.0.0 >&2; {script}")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, b"Server listening on 0.0.0.0\n")
    assert (tmp_path / "log").read_text().partition(" ")[2] == "Server listening on 0.0.0.0\n"


def test_sigterm_ends_sshd_and_its_sessions_are_not_waited_for(tmp_path):
    script = "trap 'echo bye >&2; exit 0' TERM; sleep 60 & echo $! >&2; wait"
    process = serving(tmp_path / "log", "/bin/sh", "-c", script)
    session = int(process.stderr.readline())
    begin = time.monotonic()
    process.terminate()
    assert process.wait(timeout=20) == 0
    assert time.monotonic() - begin < 10
    os.kill(session, signal.SIGKILL)
    assert process.stderr.read() == b"bye\n"


def lines_of(*stamps: str) -> str:
    return "".join(f"{stamp} line of {stamp}\n" for stamp in stamps)


def test_the_part_of_a_run_is_cut_from_both_files(tmp_path):
    times = [f"2026-01-01T00:00:0{second}.000000000Z" for second in range(5)]
    (tmp_path / "log.1").write_text(lines_of(*times[:3]))
    (tmp_path / "log").write_text(lines_of(*times[3:]))
    assert worker.recent(str(tmp_path / "log"), times[2]).decode() == lines_of(*times[2:])
    assert worker.recent(str(tmp_path / "log"), "2027").decode() == ""
    assert worker.recent(str(tmp_path / "none"), times[2]) == b""


def test_the_log_is_shown_up_to_its_limit(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.setattr(worker, "LOG", str(tmp_path / "worker.log"))
    monkeypatch.setattr(worker, "SHOWN_BYTES", 60)
    monkeypatch.setattr(hvdlib, "RUNS", str(tmp_path))
    (tmp_path / "worker.log").write_text(lines_of("2020-01-01T00:00:00.000000000Z", "2999-01-01T00:00:00.000000000Z"))
    assert worker.main(["log", "60.0", "5"]) == 0
    assert capfdbinary.readouterr().out.decode() == lines_of("2999-01-01T00:00:00.000000000Z")[-60:]


def test_what_old_runs_left_is_removed(tmp_path):
    for age, name in enumerate(["r4", "by-hand-1", "r2", "r1"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank-0.json").write_text("{}")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "prepared").mkdir()
    worker.forget_runs(str(tmp_path), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by-hand-1", "prepared", "r4"]
