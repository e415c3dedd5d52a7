"""What the unit tests share: stand-in programs on PATH, and a client without settings of its own."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings
from standin import DIAL

from hvdcompose.hosts import process
from hvdcompose.hosts.api import close_all

# a busy machine is no fault of the code under test
settings.register_profile("hvdcompose", deadline=None)
settings.load_profile("hvdcompose")


def pytest_configure() -> None:
    """Have children hear Ctrl-C: the background jobs of a shell without job control inherit that it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """`make test` sets HVD_SKIP_NONE: a skipped test is then a failed one."""
    report = yield
    if report.skipped and os.environ.get("HVD_SKIP_NONE"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped: {report.longrepr}"
    return report


Program = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Write stand-ins for programs (`docker`, `ssh`), as shell scripts, into a folder that is first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name: str, script: str, *, answers: bool = True) -> Path:
        """`answers`: a docker also answers what is asked of its engine, with what it prints itself."""
        path = folder / name
        dial = DIAL if name == "docker" and answers else ""
        path.write_text(f"#!/bin/sh\n{dial}{textwrap.dedent(script)}")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture(autouse=True)
def fresh_connections() -> Generator[None]:
    """End the connections to stand-ins for engines."""
    yield
    close_all()


@pytest.fixture
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what `end_children` does for good: after it, a client starts nothing more."""
    monkeypatch.setattr(process, "_stopping", threading.Event())
