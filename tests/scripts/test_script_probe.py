"""The helper containers' calls to each other, on real sockets of this machine."""

from __future__ import annotations

import errno
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import probe
import pytest

from hvdcompose.hosts.probe import START
from hvdcompose.stack.render import probe_scripts, ssh_wrapper


@contextmanager
def answering(handle):
    """Listen, and give every connection to `handle`; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            handle(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        listener.close()


def say(text: bytes, *, close: bool = True):
    kept = []

    def handle(connection):
        connection.sendall(text)
        connection.close() if close else kept.append(connection)

    return handle


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(probe, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(probe, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(probe, "RETRY_SECONDS", (0.0, 0.1))
    monkeypatch.setattr(probe, "OTHERS_SECONDS", 0.5)


def helper(token: str):
    return lambda connection: threading.Thread(target=probe.greet, args=(connection, token)).start()


HANDLERS = [
    pytest.param(helper("mine"), "ok", "hvdcompose doctor mine", id="the helper that is meant"),
    pytest.param(helper("another"), "other", "hvdcompose doctor another", id="the helper of another host"),
    pytest.param(say(b"SSH-2.0-OpenSSH_9.2p1\r\n", close=False), "ssh", "SSH-2.0-OpenSSH_9.2p1", id="an sshd"),
    pytest.param(say(b"220 mail ready\r\n"), "other", "220 mail ready", id="a mail server"),
    pytest.param(say(b"HTTP"), "other", "HTTP", id="something that closes after a word"),
    pytest.param(say(b""), "closed", "", id="a published port without a listener behind it"),
    pytest.param(reset, "closed", "", id="a reset"),
    pytest.param(say(b"", close=False), "silent", "", id="something that waits for a question"),
    pytest.param(say(b"hvdcompose doctor mine\n....", close=False), "stalled", "", id="large packets are lost"),
]


@pytest.mark.parametrize(("handle", "result", "detail"), HANDLERS)
def test_who_answers(handle, result, detail):
    with answering(handle) as port:
        told = probe.call("127.0.0.1", port, "mine")
    assert told == {"result": result, "detail": detail}


def test_a_port_where_nothing_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert probe.call("127.0.0.1", taken.getsockname()[1], "mine")["result"] == "refused"


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM])
def test_no_way_there(number, monkeypatch):
    def fail(*_, **__):
        raise OSError(number, "No route to host")

    monkeypatch.setattr(socket, "create_connection", fail)
    assert probe.call("192.0.2.1", 1, "mine") == {"result": "no route", "detail": "No route to host"}


def test_no_answer(monkeypatch):
    def fail(*_, **__):
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", fail)
    assert probe.call("192.0.2.1", 1, "mine")["result"] == "timeout"


def test_a_busy_sshd_is_called_again():
    calls = []

    def handle(connection):
        calls.append(time.monotonic())
        say(b"" if len(calls) == 1 else b"SSH-2.0-OpenSSH_9.2\r\n")(connection)

    with answering(handle) as port:
        (told,) = probe.connect([{"host": "beta", "address": "127.0.0.1", "ssh": port, "ports": [], "token": "x"}])
    assert (told["host"], told["port"], told["result"]) == ("beta", port, "ssh")
    assert len(calls) == 2
    assert calls[1] - calls[0] >= 0.1


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_it_listens_on_the_ssh_port_and_three_more_spread_over_the_range():
    told = probe.listen_for_others(port := free_port(), "mine")
    assert (told["ssh_free"], told["holder"]) == (True, "")
    assert [any(low <= number <= high for number in told["ports"]) for low, high in probe.PORT_RANGES] == [True] * 3
    assert {probe.call("127.0.0.1", number, "mine")["result"] for number in (port, *told["ports"])} == {"ok"}


def test_a_port_that_is_taken_is_told_with_who_has_it():
    with answering(say(b"SSH-2.0-OpenSSH_9.2\r\n")) as port:
        told = probe.listen_for_others(port, "mine")
    assert (told["ssh_free"], told["holder"]) == (False, "SSH-2.0-OpenSSH_9.2")
    assert len(told["ports"]) == 3


def test_another_doctor_is_waited_for(monkeypatch):
    monkeypatch.setattr(probe, "OTHERS_SECONDS", 5.0)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", 0))
    listener.listen()
    port = listener.getsockname()[1]

    def one_call():
        probe.greet(listener.accept()[0], "other")
        listener.close()

    threading.Thread(target=one_call, daemon=True).start()
    assert probe.listen_for_others(port, "mine")["ssh_free"] is True


def test_the_whole_of_it_as_it_runs_in_the_image(tmp_path):
    """Over stdin and stdout, from the scripts that the client sends; it ends when stdin does."""
    task = {
        "host": {"host": "beta", "address": "127.0.0.1", "interface": None, "port": free_port()},
        "cluster": "demo", "paths": [str(tmp_path)], "listed": [], "ssh_folder": "", "listens": True, "token": "mine",
        "life": 60, "wrapper": ssh_wrapper(),
    }  # fmt: skip
    first = json.dumps({"scripts": probe_scripts(), "task": task})
    with subprocess.Popen(
        [sys.executable, "-I", "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin and running.stdout
        running.stdin.write(first + "\n")
        running.stdin.flush()
        facts = json.loads(running.stdout.readline())
        assert facts["ssh_free"]
        me = {
            "host": "beta",
            "address": "127.0.0.1",
            "ssh": task["host"]["port"],
            "ports": facts["ports"],
            "token": "mine",
        }
        for order in ({"do": "clock"}, {"do": "connect", "peers": [me]}):
            running.stdin.write(json.dumps(order) + "\n")
        running.stdin.flush()
        assert abs(json.loads(running.stdout.readline())["time"] - time.time()) < 5
        calls = json.loads(running.stdout.readline())["calls"]
        assert [one["result"] for one in calls] == ["ok"] * 4
        running.stdin.close()
        assert running.wait(10) == 0
