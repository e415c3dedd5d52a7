"""What the end-to-end tests stand on: one lab of four hosts for the session, and clusters on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk import Desk, new_desk
from made import Made, new_made


@pytest.fixture(scope="session")
def lab4() -> Iterator[Desk]:
    """Four virtual hosts with two stub GPUs each, for all tests of the session."""
    with tempfile.TemporaryDirectory(prefix="hvd-") as folder:
        user = new_desk(Path(folder))
        try:
            user.lab("up", "--hosts", "4", "--gpus", "2", "--subnet", user.subnet)
            yield user
        finally:
            user.lab("down")


@pytest.fixture
def cluster(lab4: Desk, tmp_path: Path) -> Iterator[Made]:
    """A cluster without a cluster.yaml yet; whatever it left on the hosts is removed afterwards."""
    made = new_made(lab4, tmp_path)
    yield made
    made.clear()


@pytest.fixture
def recording_docker(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], Callable[[], list[str]]]:
    """A docker first on PATH that notes its arguments and passes them on: (environment, what was called)."""
    folder = tmp_path_factory.mktemp("docker")
    log, real = folder / "calls", shutil.which("docker")
    wrapper = folder / "docker"
    wrapper.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    log.touch()
    return {"PATH": f"{folder}:{os.environ['PATH']}"}, lambda: log.read_text().splitlines()
