"""A user at this machine, apart from the real one: for the end-to-end tests."""

from __future__ import annotations

import copy
import json
import os
import random
import string
import subprocess
import sys
from pathlib import Path

MAIN = "from hvdcompose.cli.main import main; main()"


class Desk:
    """One user at this machine: a state folder and a Docker configuration apart from the real user's."""

    def __init__(self, folder: Path, name: str, subnet: str) -> None:
        self.folder, self.name, self.subnet = folder, name, subnet
        plugins = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
        (folder / "docker").mkdir()
        if plugins.is_dir():
            (folder / "docker" / "cli-plugins").symlink_to(plugins)
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in ("DOCKER_HOST", "DOCKER_CONTEXT")},
            "HVDCOMPOSE_LAB": name,
            "XDG_STATE_HOME": str(folder / "state"),
            "DOCKER_CONFIG": str(folder / "docker"),
        }

    def beside(self) -> Desk:
        """Return the same user with another lab: its contexts stand beside this one's."""
        other = copy.copy(self)
        other.name, other.subnet = _chance()
        other.env = {**self.env, "HVDCOMPOSE_LAB": other.name}
        return other

    def hvd_words(self, *arguments: str) -> list[str]:
        """Return the words that run hvdcompose."""
        return [sys.executable, "-c", MAIN, *arguments]

    def words(self, *arguments: str) -> list[str]:
        return self.hvd_words("lab", *arguments)

    def lab(self, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `hvdcompose lab ...` and check its exit code."""
        done = subprocess.run(
            self.words(*arguments), env={**self.env, **env}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def docker(self, *arguments: str, code: int | None = 0) -> str:
        """Run docker as this user; all that it printed."""
        done = subprocess.run(
            ["docker", *arguments],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert code is None or done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def engine(self, *arguments: str) -> str:
        """Run docker on this machine's own engine, whatever the current context is."""
        return self.docker("--context", "default", *arguments).strip()

    def hosts(self) -> dict[str, dict]:
        """Return what `lab status --json` says of each host."""
        data = json.loads(self.lab("status", "--json").stdout)["data"]
        assert data["lab"] == self.name
        return {host["name"]: host for host in data["hosts"]}

    def host(self, number: int) -> str:
        return f"{self.name}{number}"

    def address(self, number: int) -> str:
        return f"{self.subnet.rpartition('.')[0]}.{10 + number}"

    def contexts(self) -> set[str]:
        return set(self.docker("context", "ls", "--quiet").split()) - {"default"}

    def remains(self) -> list[str]:
        """Return all that a lab of this name leaves in the engine and in the user's folders."""
        label = f"label=hvdcompose.lab={self.name}"
        left = self.engine("ps", "--all", "--quiet", "--filter", label).split()
        left += self.engine("volume", "ls", "--quiet", "--filter", label).split()
        left += self.engine("network", "ls", "--quiet", "--filter", label).split()
        left += sorted(self.contexts())
        return left + [str(path) for path in (self.folder / "state").rglob("*") if not path.is_dir()]


def new_desk(folder: Path) -> Desk:
    return Desk(folder, *_chance())


def _chance() -> tuple[str, str]:
    """Return a lab's name and subnet: chance keeps two test runs on one machine apart."""
    name = "t" + "".join(random.choices(string.ascii_lowercase, k=5))
    return name, f"10.{random.randint(214, 250)}.{random.randint(0, 255)}.0/24"
