"""One connection to an engine: kept, made anew where it broke, and never waited for longer than its deadline."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hvdcompose.hosts import process
from hvdcompose.hosts.api import Connection, Unanswered, dial_words, log_text

DOCKER = ("docker", "--context", "c1", "system", "dial-stdio")
SSH = ["ssh", "-T", "-l", "me", "-p", "2222", "--", "gpu1", "docker", "system", "dial-stdio"]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Engine:
    """Listens on a socket; per connection it gives these answers (a number: a pause instead), and closes it."""

    def __init__(self, path: Path, *answers: list[bytes | float]) -> None:
        self.answers, self.asked, self.dribble = answers, [], b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(5)
        threading.Thread(target=self.serve, daemon=True).start()
        self.connection = Connection(f"unix://{path}", DOCKER)

    def serve(self) -> None:
        for at, answers in enumerate(self.answers):
            peer, _ = self.socket.accept()
            with peer:
                for answer in answers:
                    self.asked.append((at, peer.recv(4096).split(b" ")[1].decode()))
                    if isinstance(answer, float):
                        time.sleep(answer)
                    else:
                        peer.sendall(answer)
                with contextlib.suppress(BrokenPipeError):
                    for byte in self.dribble:
                        time.sleep(0.4)
                        peer.sendall(bytes([byte]))


@pytest.fixture
def engine(tmp_path: Path) -> Callable[..., Engine]:
    return partial(Engine, tmp_path / "engine.sock")


def test_a_connection_is_kept(engine):
    there = engine([OK, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"])
    assert not there.connection.made
    assert there.connection.get("/info", 5) == (200, b"{}")
    assert there.connection.made
    assert there.connection.get("/volumes/x", 5) == (404, b"")
    assert there.asked == [(0, "/info"), (0, "/volumes/x")]


def test_an_engine_that_restarted_since_is_asked_anew(engine):
    there = engine([OK], [OK])
    for path in ("/a", "/b"):
        assert there.connection.get(path, 5)[0] == 200
        time.sleep(0.2)
    assert there.asked == [(0, "/a"), (1, "/b")]


def test_who_closes_at_once_gave_no_answer(engine):
    there = engine([b""])
    with pytest.raises(Unanswered):
        there.connection.get("/info", 5)
    assert not there.connection.made


def test_what_is_no_http_is_no_answer(engine):
    with pytest.raises(Unanswered):
        engine([b"SSH-2.0-OpenSSH_9.2\r\n"]).connection.get("/info", 5)


def test_a_silent_engine_is_not_waited_for_and_not_asked_on_that_connection_again(engine):
    there = engine([2.0], [OK])
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        there.connection.get("/info", 0.3)
    assert time.monotonic() - began < 1.9
    assert there.connection.get("/info", 10)[0] == 200
    assert there.asked == [(0, "/info"), (1, "/info")]


def test_two_questions_at_once_wait_for_each_other_and_for_no_longer_than_they_may(engine):
    there = engine([0.5], [])

    def ask() -> None:
        with pytest.raises(Unanswered):
            there.connection.get("/slow", 5)

    first = threading.Thread(target=ask)
    first.start()
    time.sleep(0.2)
    with pytest.raises(TimeoutError):
        there.connection.get("/fast", 0.1)
    first.join()
    assert there.asked == [(0, "/slow")]


def test_nobody_listens(tmp_path):
    with pytest.raises(Unanswered, match=r"dial unix .*/none: connect: no such file or directory"):
        Connection(f"unix://{tmp_path}/none", DOCKER).get("/info", 1)


def test_what_a_dialling_command_says_is_why(program):
    program("docker", "echo 'Permission denied (publickey).' >&2; exit 255\n", answers=False)
    with pytest.raises(Unanswered, match=r"^Permission denied \(publickey\)\.\n$"):
        Connection("tcp://gpu1:2376", DOCKER).get("/info", 5)


def test_a_dialling_command_that_hangs_is_ended(program, tmp_path):
    program("docker", f"echo $$ > {tmp_path}/pid; exec sleep 60\n", answers=False)
    with pytest.raises(TimeoutError):
        Connection("tcp://gpu1:2376", DOCKER).get("/info", 1)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


WORDS = [
    ("ssh://me@gpu1:2222", SSH),
    ("ssh://me@gpu1/run/docker.sock", list(DOCKER)),
    ("tcp://gpu1:2376", list(DOCKER)),
    ("", list(DOCKER)),
]


@pytest.mark.parametrize(("endpoint", "words"), WORDS)
def test_who_dials(endpoint, words):
    assert dial_words(endpoint, DOCKER) == words


def test_a_log_comes_in_frames():
    out, err = b"\1\0\0\0\0\0\0\4one\n", b"\2\0\0\0\0\0\0\5two\xc3\n"
    assert log_text(out + err) == "one\ntwo\ufffd\n"
    assert log_text(out + err[:-1]) == "one\ntwo\ufffd", "the end is still on its way"
    assert log_text(b"") == ""


def test_an_answer_that_is_the_last_of_its_connection(engine):
    there = engine([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"], [OK])
    assert there.connection.get("/a", 5) == (200, b"{}")
    assert there.connection.get("/b", 5) == (200, b"{}")
    assert there.asked == [(0, "/a"), (1, "/b")]


def test_a_deadline_is_the_answer_s_not_each_byte_s(engine):
    slowly = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]
    there = engine(slowly)
    there.dribble = b"123456789"
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        there.connection.get("/a", 0.6)
    assert time.monotonic() - began < 2


def test_what_waits_ends_when_all_is_ended(engine, fresh_process):
    there = engine([5.0])
    began = time.monotonic()
    threading.Timer(0.3, process.end_children).start()
    with pytest.raises((Unanswered, process.Interrupted)):
        there.connection.get("/info", 20)
    assert time.monotonic() - began < 4
    with pytest.raises(process.Interrupted):
        there.connection.get("/info", 20)


def test_what_is_asked_to_clear_up_is_asked_after_that(engine, fresh_process):
    there = engine([OK])
    process.end_children()
    assert there.connection.get("/info", 5, when_stopping=True)[0] == 200
