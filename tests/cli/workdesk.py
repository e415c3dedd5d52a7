"""A folder to work in with the real program, and `docker` as a stand-in: for tests of the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import standin

MAIN = (sys.executable, "-c", "from hvdcompose.cli.main import main; main()")
CONTEXTS = """
case "$*" in
"context ls"*)
  echo '{"Name": "default", "DockerEndpoint": "unix:///nowhere/docker.sock"}'
  echo '{"Name": "alpha", "DockerEndpoint": "unix:///nowhere/alpha.sock"}'
  echo '{"Name": "beta", "DockerEndpoint": "unix:///nowhere/beta.sock"}' ;;
*) echo 'Cannot connect to the Docker daemon at unix:///nowhere. Is the docker daemon running?' >&2; exit 1 ;;
esac
"""


class Desk:
    """A folder to work in, with stand-ins first on PATH and no settings of the person who runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }

    def write(self, text: str, name: str = "cluster.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def docker(self, script: str) -> None:
        path = self.bin / "docker"
        path.write_text(f"#!/bin/sh\n{standin.DIAL}{script}")
        path.chmod(0o755)

    def start(self, *words: str, **more) -> subprocess.Popen:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*MAIN, *words], cwd=self.folder, env=self.env, text=True, **{**pipes, **more})

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return process.returncode, out, err
