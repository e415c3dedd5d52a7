"""What the end-to-end tests stand on: one lab of four hosts for the session, and clusters on it."""

from __future__ import annotations

import os
import shutil
import subprocess
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


@pytest.fixture(scope="session")
def odd(lab4: Desk) -> Iterator[Desk]:
    """Two hosts that will not do, of the same user: 1 has no GPUs and a disk of 100 MB, 2 is rootless."""
    user = lab4.beside()
    label = f"hvdcompose.lab={user.name}"
    disk = ("--driver", "local", "--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=size=100m")
    try:
        user.engine("volume", "create", *disk, "--label", label, f"hvdcompose-{user.host(1)}-docker")
        user.lab("up", "--hosts", "1", "--gpus", "0", "--subnet", user.subnet)
        user.lab("up", "--hosts", "2", "--rootless", user.host(2))
        yield user
    finally:
        user.lab("down")


@pytest.fixture(scope="session")
def tiny(lab4: Desk) -> Iterator[str]:
    """An image of 4 MB on the client, with a shell and little else: for what has to be sent and never runs."""
    name = f"{lab4.name}-tiny:1"
    script = (
        "cd / && for program in sh ls cat true; do echo bin/$program; ldd /bin/$program | grep -o '/[^ ]*'; done"
        " | sed 's,^/,,' | sort -u | tar -chf - -T -"
    )
    words = ["docker", "--context", "default"]
    files = subprocess.run(
        [*words, "exec", f"hvdcompose-{lab4.host(1)}", "sh", "-c", script], check=True, capture_output=True
    )
    subprocess.run([*words, "import", "-", name], input=files.stdout, check=True, capture_output=True)
    yield name
    lab4.engine("image", "rm", "--force", name)


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
