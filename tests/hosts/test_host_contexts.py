"""Docker contexts: where they lead, and why nobody answers there, found out quickly with real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvdcompose.errors import HostError, HvdError
from hvdcompose.hosts.contexts import Route, endpoints, ssh_route, unreachable
from hvdcompose.hosts.engine import Engine

BANNER = b"SSH-2.0-OpenSSH_9.2p1\r\n"


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None], path: Path | None = None) -> Iterator[int]:
    """Listen on a port, or at a path, of this machine; `answer` each connection, then hold it open until the end."""
    with socket.socket(socket.AF_UNIX) if path else socket.create_server(("127.0.0.1", 0)) as listener:
        if path:
            listener.bind(str(path))
            listener.listen()
        held = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    held.append(connection)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield 0 if path else listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for connection in held:
            connection.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def ssh_to(program) -> Callable[[int], None]:
    """Put a stand-in for ssh first on PATH, whose config leads every host to a port of this machine."""

    def write(port: int) -> None:
        program("ssh", f"printf 'user root\\nhostname 127.0.0.1\\nport {port}\\nproxyjump none\\n'\n")

    return write


SILENT = "no answer from 127.0.0.1:{port} within 1 s: it is off, frozen, or cut off"


def test_an_ssh_host_that_answers(ssh_to):
    with server(lambda connection: connection.sendall(BANNER)) as port:
        ssh_to(port)
        assert unreachable("ssh://root@gpu1", 5) is None


def test_an_ssh_host_that_is_frozen(ssh_to):
    """The kernel takes the connection, and nobody behind it says a word."""
    with server(lambda connection: None) as port:
        ssh_to(port)
        assert unreachable("ssh://root@gpu1", 1) == SILENT.format(port=port)


def test_an_ssh_host_that_closes_at_once(ssh_to):
    with server(lambda connection: connection.shutdown(socket.SHUT_WR)) as port:
        ssh_to(port)
        told = unreachable("ssh://root@gpu1", 5)
        assert told == f"127.0.0.1:{port} closes the connection before it says it is ssh"


def test_an_ssh_host_whose_sshd_is_off(ssh_to):
    port = closed_port()
    ssh_to(port)
    told = unreachable("ssh://root@gpu1", 5)
    assert told == f"nothing listens at 127.0.0.1:{port}: the machine is up, its sshd is not"


def test_a_tcp_endpoint():
    port = closed_port()
    told = unreachable(f"tcp://127.0.0.1:{port}", 5)
    assert told == f"nothing listens at 127.0.0.1:{port}: the machine is up, its Docker engine is not"
    with server(lambda connection: None) as port:
        assert unreachable(f"tcp://127.0.0.1:{port}", 5) is None, "an engine speaks only when it is asked"


def test_a_name_that_does_not_resolve():
    told = unreachable("tcp://no-such-host.invalid:2375", 5)
    assert told == "the name no-such-host.invalid of its Docker context does not resolve"


def test_a_unix_socket_of_an_engine(tmp_path):
    path = tmp_path / "docker.sock"
    asked = []

    def ping(connection: socket.socket) -> None:
        asked.append(connection.recv(1000))
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nOK")

    with server(ping, path):
        assert unreachable(f"unix://{path}", 5) is None
    assert asked == [b"GET /_ping HTTP/1.0\r\n\r\n"]


def test_a_unix_socket_of_an_engine_that_is_frozen(tmp_path):
    path = tmp_path / "docker.sock"
    with server(lambda connection: None, path):
        told = unreachable(f"unix://{path}", 1)
    assert told == "its Docker engine does not answer within 1 s: frozen, or overloaded"


def test_a_unix_socket_that_closes_at_once(tmp_path):
    path = tmp_path / "docker.sock"
    with server(lambda connection: connection.recv(1000) and connection.shutdown(socket.SHUT_WR), path):
        told = unreachable(f"unix://{path}", 5)
    assert told == f"its Docker engine closes the connection at {path}"


def test_unix_sockets_without_an_engine(tmp_path):
    path = tmp_path / "docker.sock"
    gone = f"its Docker engine does not answer at {path}: No such file or directory"
    assert unreachable(f"unix://{path}", 5) == gone
    with server(lambda connection: None, path):
        pass
    assert unreachable(f"unix://{path}", 5) == f"its Docker engine does not answer at {path}: Connection refused"
    long = f"unix://{tmp_path}/{'x' * 120}"
    assert "AF_UNIX path too long" in (unreachable(long, 5) or "")


def test_a_host_behind_another_cannot_be_told_from_here(program):
    program("ssh", "printf 'hostname 192.0.2.1\\nport 22\\nproxyjump gate\\n'\n")
    assert unreachable("ssh://root@gpu1", 1) is None


def test_no_ssh_on_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unreachable("ssh://root@gpu1", 1) == "its Docker context leads over ssh, and this machine has no ssh command"


def test_endpoints_of_other_kinds_are_left_to_docker():
    assert unreachable("npipe:////./pipe/docker_engine", 1) is None
    assert unreachable("", 1) is None


GPU1 = Route("gpu1.lan", 2222, False)
ROUTES = [
    pytest.param("ssh://gpu1", "-G -- gpu1", GPU1, id="name"),
    pytest.param("ssh://me@gpu1", "-G -l me -- gpu1", GPU1, id="user: a Match line may ask for it"),
    pytest.param("ssh://me@gpu1:2200", "-G -l me -p 2200 -- gpu1", GPU1, id="port"),
    pytest.param("ssh://me@GPU1", "-G -l me -- GPU1", GPU1, id="Host lines tell upper from lower"),
    pytest.param("ssh://me@GPU1:22/run/user/1/docker.sock", "-G -l me -p 22 -- GPU1", GPU1, id="path"),
    pytest.param("ssh://me@[fe80::A]:22", "-G -l me -p 22 -- fe80::A", GPU1, id="IPv6"),
]


@pytest.mark.parametrize(("url", "words", "route"), ROUTES)
def test_the_route_is_asked_of_ssh(url, words, route, program, tmp_path):
    program("ssh", f"echo \"$*\" > {tmp_path}/words; printf 'hostname gpu1.lan\\nport 2222\\n'\n")
    assert ssh_route(url) == route
    assert (tmp_path / "words").read_text() == f"{words}\n"


@pytest.mark.parametrize(
    ("lines", "proxied"),
    [("proxyjump none", False), ("proxycommand none", False), ("proxyjump gate", True), ("proxycommand nc %h", True)],
)
def test_proxies(lines, proxied, program):
    program("ssh", f"printf 'hostname gpu1\\nport 22\\n{lines.replace('%', '%%')}\\n'\n")
    assert ssh_route("ssh://gpu1").proxied is proxied


def test_an_ssh_that_fails_leaves_what_the_url_says(program):
    program("ssh", "echo 'Bad configuration option' >&2; exit 255\n")
    assert ssh_route("ssh://me@gpu1:2200") == Route("gpu1", 2200, False)
    assert ssh_route("ssh://me@gpu1") == Route("gpu1", 22, False)


def test_contexts_are_asked_of_docker(program, tmp_path):
    rows = [
        {"Name": "default", "DockerEndpoint": "unix:///var/run/docker.sock", "Current": True},
        {"Name": "gpu1", "DockerEndpoint": "ssh://me@gpu1", "Error": ""},
        {"Name": "kube"},
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    program("docker", f"echo \"$*\" > {tmp_path}/words\ncat <<'END'\n{lines}\nEND\n")
    assert endpoints() == {"default": "unix:///var/run/docker.sock", "gpu1": "ssh://me@gpu1", "kube": ""}
    assert (tmp_path / "words").read_text() == "context ls --format {{json .}}\n"


def test_no_docker_on_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HvdError) as caught:
        endpoints()
    assert caught.value.message == "there is no docker command on this machine"


def test_a_docker_that_cannot_list_its_contexts_is_told(program):
    """Else every host would be told to have no context."""
    program("docker", "echo 'open /root/.docker/config.json: permission denied' >&2; exit 1\n")
    with pytest.raises(HvdError) as caught:
        endpoints()
    assert caught.value.message == (
        "docker cannot list its contexts: open /root/.docker/config.json: permission denied"
    )


def test_a_socket_that_may_not_be_used_is_told_as_docker_tells_it(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(HostError) as caught:
        Engine("gpu1", "c1", "unix:///var/run/docker.sock").reach()
    assert caught.value.message == "the user of its Docker context may not use the Docker socket"
    assert caught.value.hint == "add the user to the group docker on that host, and log in anew"


def test_an_engine_that_cannot_be_reached_is_told_before_docker_waits(tmp_path):
    with pytest.raises(HostError) as caught:
        Engine("gpu1", "c1", f"unix://{tmp_path}/none").reach()
    assert caught.value.host == "gpu1"
    assert caught.value.message == f"its Docker engine does not answer at {tmp_path}/none: No such file or directory"
    assert caught.value.hint == "docker --context c1 version"
    with pytest.raises(HostError) as caught:
        Engine("gpu1", "c1", None).reach()
    assert caught.value.message == "there is no Docker context c1 on this machine"
    assert caught.value.hint == "docker context create c1 --docker host=ssh://USER@HOST"
