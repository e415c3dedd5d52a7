"""A command in a container: the words for docker, and what the script in the container does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvdcompose.deploy.inside import AS_A_RANK, exec_words
from hvdcompose.hosts.engine import Engine

SCRIPTS = Path(__file__).parents[2] / "templates" / "hvd"


@pytest.mark.parametrize(
    ("terminal", "stdin", "options"),
    [
        (True, True, ["--interactive", "--tty"]),
        (False, True, ["--interactive"]),
        (False, False, []),
    ],
)
def test_words(terminal, stdin, options):
    words = exec_words(Engine("beta", "c1"), "demo-worker-1", ["ls", "-l"], terminal=terminal, stdin=stdin)
    assert words[:4] == ["docker", "--context", "c1", "exec"]
    assert words[4:] == [*options, "demo-worker-1", "python3", "-c", AS_A_RANK, "ls", "-l"]


@pytest.fixture
def inside(tmp_path: Path):
    """Run the script as the container would, with /hvd in a folder."""
    for name in ("hvdlib.py", "hvdproc.py"):
        (tmp_path / name).write_text((SCRIPTS / name).read_text())
    (tmp_path / "host.json").write_text('{"host": "beta", "address": "127.0.0.1", "interface": "lo", "own_env": []}')

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        library = tmp_path / "hvdlib.py"
        library.write_text(library.read_text().replace("/hvd/", f"{tmp_path}/"))
        script = AS_A_RANK.replace("/hvd", str(tmp_path))
        env = {"PATH": os.environ["PATH"], "MINE": "1"}
        return subprocess.run([sys.executable, "-c", script, *command], env=env, capture_output=True, text=True)

    return run


def test_the_environment_is_that_of_a_rank(inside):
    done = inside("sh", "-c", 'echo "$MINE $HOROVOD_GLOO_IFACE $NCCL_SOCKET_IFNAME"; exit 3')
    assert (done.returncode, done.stdout) == (3, "1 lo =lo\n")


@pytest.mark.parametrize(
    ("program", "code", "told"),
    [("no-such-program", 127, "No such file or directory"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_program_that_cannot_be_run(program, code, told, inside):
    done = inside(program)
    assert done.returncode == code
    assert done.stderr + done.stdout == f"hvdcompose: cannot run '{program}': {told}\n"
