"""The program in the helper container, run here: what it lists, what it sends, and when it ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts import output
from hvdcompose.hosts.output import READER, Reader, Remote

Open = Callable[..., tuple[Reader, subprocess.Popen[bytes]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "out" / "r1" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "r1" / "model.pt").write_bytes(b"model")
    (tmp_path / "out" / "r1" / "deep" / "a b\n.txt").write_bytes(b"")
    (tmp_path / "out" / "empty").mkdir()
    return tmp_path / "out"


@pytest.fixture
def reading(root: Path) -> Iterator[Open]:
    """Start the program; it is ended after the test."""
    started = []

    def start(script: str = READER.read_text()) -> tuple[Reader, subprocess.Popen[bytes]]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        helper = subprocess.Popen([sys.executable, "-c", script, str(root)], **pipes)
        started.append(helper)
        return Reader("alpha", helper.stdin, helper.stdout, helper.stderr), helper

    yield start
    for helper in started:
        helper.kill()
        helper.wait()
        for pipe in (helper.stdin, helper.stdout, helper.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_runs_that_wrote_something(reading):
    reader, _ = reading()
    assert reader.runs() == ["r1"]


def test_everything_is_listed(reading, root):
    (root / "r1" / "latest").symlink_to("deep")
    os.mkfifo(root / "r1" / "pipe")
    (root / "r1" / os.fsdecode(b"caf\xe9")).write_bytes(b"x")
    reader, _ = reading()
    found = {entry.path: entry for entry in reader.manifest("r1") if isinstance(entry, Remote)}
    assert found == {
        "model.pt": Remote("model.pt", 5, sha(b"model")),
        "deep/a b\n.txt": Remote("deep/a b\n.txt", 0, sha(b"")),
        "latest": Remote("latest", link="deep"),
        "pipe": Remote("pipe", odd="neither a file nor a link"),
        "caf\udce9": Remote("caf\udce9", 1, sha(b"x")),
    }


def test_a_file_from_its_begin_and_from_the_middle(reading):
    reader, _ = reading()
    entry = Remote("model.pt", 5, "")
    assert b"".join(reader.read("r1", entry, 0)) == b"model"
    assert b"".join(reader.read("r1", entry, 3)) == b"el"
    assert b"".join(reader.read("r1", entry, 5)) == b""
    assert reader.runs() == ["r1"]  # the next answer begins where the file ended


def test_a_large_file(reading, root):
    data = os.urandom(5_000_001)
    (root / "r1" / "large").write_bytes(data)
    reader, _ = reading()
    assert b"".join(reader.read("r1", Remote("large", len(data), ""), 1)) == data[1:]


def test_a_file_that_shrank_or_went_keeps_the_answers_apart(reading):
    reader, _ = reading()
    assert b"".join(reader.read("r1", Remote("model.pt", 8, ""), 0)) == b"model\0\0\0"
    with pytest.raises(HostError, match="gone: No such file or directory"):
        list(reader.read("r1", Remote("gone", 8, ""), 0))
    assert reader.runs() == ["r1"]


def test_a_link_is_not_read(reading, root):
    (root / "r1" / "link").symlink_to("/etc/passwd")
    reader, _ = reading()
    with pytest.raises(HostError, match="link: "):
        list(reader.read("r1", Remote("link", 8, ""), 0))


def test_it_ends_with_its_client(reading):
    reader, helper = reading()
    reader.runs()
    helper.stdin.close()
    assert helper.wait(10) == 0


def test_it_ends_when_nobody_takes_what_it_says(reading, root):
    (root / "r1" / "large").write_bytes(bytes(5_000_000))
    reader, helper = reading(
        READER.read_text().replace("PATIENCE_SECONDS, IDLE_SECONDS = 60", "PATIENCE_SECONDS, IDLE_SECONDS = 1")
    )
    next(reader.read("r1", Remote("large", 5_000_000, ""), 0))
    assert helper.wait(10) == 1


def test_a_helper_that_ends_or_is_silent_is_told(reading, monkeypatch):
    reader, helper = reading()
    helper.kill()
    helper.wait()
    with pytest.raises(HostError, match="its helper container ended"):
        reader.runs()
    monkeypatch.setattr(output, "START_SECONDS", 0.2)
    silent, _ = reading("import time; time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(HostError, match="no answer within 0 s"):
        silent.runs()
    assert time.monotonic() - began < 5


def test_what_docker_says_is_told(reading):
    script = "import sys; sys.stderr.write('exec: \"python3\": executable file not found in $PATH')"
    reader, helper = reading(script)
    helper.wait()
    with pytest.raises(HostError, match="the image has no python3"):
        reader.runs()
