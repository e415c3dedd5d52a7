"""What is printed during a run: nothing is held back or lost, and nothing that is printed can hang the launcher."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import hvdlog
import pytest

STAMP = re.compile(rb"^(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) ")


def test_a_time_as_docker_writes_it():
    assert hvdlog.stamp(1_767_225_600_000_000_000) == "2026-01-01T00:00:00.000000000Z"
    assert hvdlog.stamp(1_767_225_599_120_000_007) == "2025-12-31T23:59:59.120000007Z"


def test_lines_are_cut_where_they_end_and_long_ones_in_pieces():
    cutter = hvdlog.Cutter(longest=4)
    assert cutter.feed(b"ab") == []
    assert cutter.feed(b"c\n\nd\r\n\0\xff") == [b"abc", b"", b"d\r"]
    assert cutter.feed(b"xyz") == [b"\0\xffxy", b"z"]
    assert cutter.feed(b"123456789\nend") == [b"1234", b"5678", b"9"]
    assert cutter.rest() == [b"end"]
    assert cutter.rest() == []


LINES = [
    (b"[2]<stdout>:epoch 1", 2, "epoch 1"),
    (b"[2]<stderr>:  indented", 2, "  indented"),
    (b"[1,2]<stdout>:epoch 1", 2, "epoch 1"),
    (b"[1,2]<stderr>: epoch 1", 2, "epoch 1"),
    (b"[1,2]<stderr>:   [1,2]<stderr>:globals()[1,2]<stderr>:", 2, "  globals()"),
    (b"Tue Dec  1 12:00:00 2026[11]<stdout>:epoch 1", 11, "epoch 1"),
    (b"hvdcompose: run r1: 4 ranks", None, "hvdcompose: run r1: 4 ranks"),
    (b"[2] epoch", None, "[2] epoch"),
    (b"[0]<stdout>:bar\r", 0, "bar"),
    (b"[0]<stdout>:\xff\0", 0, "\ufffd\0"),
]


@pytest.mark.parametrize(("line", "rank", "text"), LINES)
def test_whose_line_it_is(line, rank, text):
    book = hvdlog.Book()
    book.note(line)
    assert book.tails() == {rank: [text]}


def test_the_last_lines_of_each_rank_are_kept():
    book = hvdlog.Book(kept=2)
    for number in range(3):
        book.note(b"[0]<stdout>:%d" % number)
        book.note(b"[1,1]<stdout>:%d" % (10 * number))
    assert book.tails() == {0: ["1", "2"], 1: ["10", "20"]}


def test_the_last_json_object_of_a_rank_is_what_it_measured():
    book = hvdlog.Book()
    for line in (
        b'[0]<stdout>:{"accuracy": 0.1}',
        b'[1,1]<stdout>: {"accuracy": 0.9, "loss": {"test": 1}}',
        b"[0]<stdout>:{torn",
        b"[0]<stdout>:[1]",
        b'{"accuracy": 0.2}',
    ):
        book.note(line)
    assert book.metrics == {"accuracy": 0.9, "loss": {"test": 1}}


def test_nothing_measured():
    assert hvdlog.Book().metrics is None


CAPTURE = """
import os, subprocess, sys, time, hvdlog
book = hvdlog.Book()
with hvdlog.Capture(hvdlog.LogFile(sys.argv[1]), book.note) as capture:
    exec(sys.argv[2])
"""


def capturing(log: Path, program: str, **pipes: object) -> subprocess.Popen:
    env = {"PYTHONPATH": str(Path(hvdlog.__file__).parent), "PATH": "/usr/bin:/bin"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    return subprocess.Popen([sys.executable, "-c", CAPTURE, str(log), program], env=env, **pipes)


def lines_in(log: Path) -> list[bytes]:
    """Return the lines of a log without their stamps, which must all be there, in order and of now."""
    found = [STAMP.match(line) for line in log.read_bytes().split(b"\n")[:-1]]
    assert all(found)
    stamps = [match.group(1).decode() for match in found]
    assert stamps == sorted(stamps)
    if stamps:
        last = datetime.strptime(stamps[-1][:26], "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC)
        assert abs(last.timestamp() - time.time()) < 60
    return [match.string[match.end() :] for match in found]


def test_all_that_is_printed_goes_where_it_went_and_into_the_file(tmp_path):
    program = (
        "print('own', flush=True); sys.stderr.write('own error\\n');"
        "subprocess.run(['sh', '-c', 'echo out; echo err >&2'])"
    )
    process = capturing(tmp_path / "log", program)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"own\nout\n", b"own error\nerr\n")
    assert sorted(lines_in(tmp_path / "log")) == [b"err", b"out", b"own", b"own error"]


def test_a_line_comes_at_once(tmp_path):
    process = capturing(tmp_path / "log", "print('now', flush=True); time.sleep(30)")
    assert process.stdout.readline() == b"now\n"
    limit = time.monotonic() + 10
    while not (tmp_path / "log").read_bytes():
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.kill()
    process.communicate()


def test_a_part_of_a_line_comes_at_once(tmp_path):
    process = capturing(tmp_path / "log", "print('50 %', end='', flush=True); time.sleep(30)")
    assert process.stdout.read(4) == b"50 %"
    process.kill()
    process.communicate()


def test_bytes_of_any_kind_and_very_long_lines(tmp_path):
    program = "os.write(1, bytes(range(256)) + b'x' * 3_000_000 + b'\\nend')"
    process = capturing(tmp_path / "log", program)
    out, err = process.communicate(timeout=60)
    whole = bytes(range(256)) + b"x" * 3_000_000 + b"\nend"
    assert (out, err) == (whole, b"")
    lines = [STAMP.sub(b"", line) for line in (tmp_path / "log").read_bytes().split(b"\n")]
    assert b"".join(lines) == whole.replace(b"\n", b"")
    assert max(map(len, lines)) == hvdlog.LONGEST_LINE


def test_a_process_left_behind_with_the_pipe_is_not_waited_for(tmp_path):
    begin = time.monotonic()
    program = "child = subprocess.Popen(['sleep', '60']); print(child.pid)"
    process = capturing(tmp_path / "log", program)
    process.wait(timeout=20)
    assert time.monotonic() - begin < 10
    subprocess.run(["kill", process.stdout.readline().decode().strip()], check=True)
    process.communicate()


def test_one_that_writes_on_and_on_is_not_waited_for_either(tmp_path):
    program = (
        "child = subprocess.Popen(['sh', '-c', 'while echo y; do :; done']); print(child.pid, file=open('%s', 'w'))"
    )
    log = tmp_path / "log"
    process = capturing(log, program % (tmp_path / "pid"), stdout=subprocess.DEVNULL)
    process.wait(timeout=30)
    subprocess.run(["kill", (tmp_path / "pid").read_text().strip()], check=False)
    process.communicate()


def test_a_traceback_after_its_end_is_shown(tmp_path):
    process = capturing(tmp_path / "log", "raise ValueError('seen')")
    _, err = process.communicate(timeout=60)
    assert err.endswith(b"ValueError: seen\n")
    assert process.returncode == 1


def test_all_is_taken_in_once_it_is_settled(tmp_path):
    program = (
        "subprocess.run(['sh', '-c', 'seq 20000 | sed s/^/[0]\\\\<stdout\\\\>:/']); capture.settle();"
        "assert book.tails()[0][-1] == '20000', book.tails()"
    )
    process = capturing(tmp_path / "log", program)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert len(lines_in(tmp_path / "log")) == 20000


def test_a_full_disk_is_told_and_the_run_goes_on(tmp_path):
    (tmp_path / "log").symlink_to("/dev/full")
    process = capturing(tmp_path / "log", "print('one'); print('two')")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"one\ntwo\n")
    assert err.decode() == f"hvdcompose: {tmp_path}/log is not whole: No space left on device\n"


def test_a_reader_that_is_gone_does_not_end_the_run(tmp_path):
    process = capturing(tmp_path / "log", "time.sleep(0.5); print('unseen'); capture.settle(); print('after')")
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert lines_in(tmp_path / "log") == [b"unseen", b"after"]
    process.stderr.close()


def test_a_file_has_its_limit(tmp_path):
    file = hvdlog.LogFile(str(tmp_path / "log"), limit=50)
    for _ in range(3):
        file.write([b"0123456789"])
    file.close()
    assert lines_in(tmp_path / "log") == [
        b"0123456789",
        b"0123456789",
        b"hvdcompose: this file is full: what follows is in `docker logs` only",
    ]


def test_a_file_that_rolls_is_never_full(tmp_path):
    for _ in range(2):  # a container that is started once more goes on in it
        file = hvdlog.RollingFile(str(tmp_path / "log"), limit=150)
        for number in range(7):
            file.write([b"line %d" % number])
        file.close()
    lines = lines_in(tmp_path / "log.1") + lines_in(tmp_path / "log")
    assert lines == [b"line %d" % number for number in (*range(7), *range(7))][-len(lines) :]
    assert 5 <= len(lines) < 14
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * (150 + 40)
