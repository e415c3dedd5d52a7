"""/hvd/worker: what keeps logins out is said before sshd would refuse them in silence."""

from __future__ import annotations

import os
import socket
import stat

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
