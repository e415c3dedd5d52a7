"""Progress of many hosts: one line each that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from hvdcompose.console import HostLines, fitting, worth_a_line

SCRIPT = """
import time
from hvdcompose import console
from hvdcompose.errors import HvdError
names = [f"host{number}" for number in range(1, 17)]
lines = console.HostLines(names)
lines.host("host1", "image is sent")
for percent in (10, 50, 90):
    for name in names:
        lines.progress(name, f"image {percent} %", percent)
for name in names[:15]:
    lines.host(name, "image is there")
console.show_error(HvdError("it went wrong"))
"""


def on_a_terminal(script: str, **env: str) -> str:
    """Return what a program writes to a terminal of 80 x 24."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    words = ["sh", "-c", 'stty cols 80 rows 24 < /dev/stderr; exec "$@"', "sh", sys.executable, "-c", script]
    done = subprocess.run(words, stderr=slave, env={**os.environ, "TERM": "xterm", **env}, timeout=60)
    os.close(slave)
    told = b""
    try:
        while chunk := os.read(master, 1 << 16):
            told += chunk
    except (BlockingIOError, OSError):
        pass
    os.close(master)
    assert done.returncode == 0
    return told.decode()


def screen(told: str) -> list[str]:
    """Return what stands on the terminal at the end: only the codes that are used here are understood."""
    lines: list[str] = [""]
    for part in re.split(r"(\x1b\[\d*[A-Za-z]|\r\n|\x1b\[[\d;]*m)", told):
        up = re.fullmatch(r"\x1b\[(\d+)A", part)
        if up:
            lines = [*lines[: -1 - int(up.group(1))], ""]  # what follows clears all below
        elif part == "\r\n":
            lines.append("")
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return [line.rstrip() for line in lines]


def test_one_line_per_host_on_a_terminal():
    told = screen(on_a_terminal(SCRIPT))
    assert told == [
        "host1   image is sent",
        *(f"host{number:<3} image is there" for number in range(1, 16)),
        "error: it went wrong",
        "",
    ]


def test_the_lines_that_change_stand_below_all_others():
    running = SCRIPT.partition("for name in names[:15]")[0] + 'lines.host("host2", "image is there")\n'
    told = screen(on_a_terminal(running))
    below = [f"host{number:<3} image 90 %" for number in range(1, 17) if number != 2]
    assert told == ["host1   image is sent", "host2   image is there", *below, ""]


@pytest.mark.parametrize("env", [{"TERM": "dumb"}], ids=["a terminal that cannot go up"])
def test_nothing_is_drawn_where_a_line_cannot_change(env):
    assert "\x1b[" not in re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(SCRIPT, **env))


def test_without_a_terminal_every_event_is_a_line_and_fast_progress_is_none(capsys):
    lines = HostLines(["a", "gamma"])
    lines.host("a", "image is sent")
    for percent in range(100):
        lines.progress("a", f"image {percent} %", percent)
    lines.host("a", "image is there")
    assert capsys.readouterr().err == "a      image is sent\na      image is there\n"


@pytest.mark.parametrize(
    ("percent", "now", "worth"),
    [(20, 105.0, True), (20, 104.9, False), (19, 900.0, False), (99, 100.1, False)],
    ids=["a tenth more, 5 s later", "too soon", "hardly more", "fast"],
)
def test_progress_that_is_worth_a_line(percent, now, worth):
    assert worth_a_line((10, 100.0), percent, now) is worth


def test_lines_that_fit():
    assert fitting(["x" * 100, "y"], 80, 24) == ["x" * 79, "y"]
    lines = [str(number) for number in range(16)]
    assert fitting(lines, 80, 24) == lines
    assert fitting(lines, 80, 10) == [*lines[:7], "... and 9 more"]
    assert fitting(lines, 80, 1) == ["... and 16 more"]
