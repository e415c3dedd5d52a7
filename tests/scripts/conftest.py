"""The scripts under templates/hvd are no part of the package: they run inside the user's image."""

from __future__ import annotations

import sys
import textwrap

import pytest

from hvdcompose.stack.render import templates

sys.path.insert(0, str(templates() / "hvd"))


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Stand-ins for ssh to a worker: a script per address; they share a folder to remember things in."""
    import hvdlib
    import launcher

    scripts = tmp_path / "ssh"
    scripts.mkdir()
    monkeypatch.setattr(launcher, "RETRY_SECONDS", (0.05,))
    monkeypatch.setattr(
        hvdlib, "ssh", lambda port, address, *words: ["/bin/sh", str(scripts / address), str(port), *words]
    )

    def write(address: str, script: str) -> None:
        (scripts / address).write_text(f"cd {tmp_path}\n{textwrap.dedent(script)}")

    return write
