#!/usr/bin/env python3
"""Make .venv with this project and its tools in it; again only when pyproject.toml or Python changed.

Runs on any Python 3, so that an old one is told in a sentence and not by a SyntaxError.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)  # what pyproject.toml's requires-python says
GROUPS_PIP = (25, 1)  # the first pip that knows --group
NEWER_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")


class VenvError(Exception):
    """One sentence: why there is no environment, and what to do about it."""


def say(text: str) -> None:
    """Tell the user, at once, also through make."""
    print("venv: " + text, file=sys.stderr, flush=True)


def run(*words: str) -> None:
    """Run a command that shows its own output; stop at its failure."""
    if subprocess.call(words, cwd=str(ROOT)):
        raise VenvError("`{}` failed; what it printed is above.".format(" ".join(words)))


def ask(python: str, code: str) -> str:
    """Return what a Python prints for a line of code; "" if it fails."""
    try:
        return subprocess.check_output([python, "-c", code], stderr=subprocess.DEVNULL).decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def find_python() -> str:
    """Find a Python that is new enough: the one that runs this, else another on the PATH."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for name in NEWER_PYTHONS:
        found = shutil.which(name)
        if found and ask(found, "print(1)"):
            say("python3 is {}.{}: taking {}".format(*sys.version_info[:2], found))
            return found
    raise VenvError(
        "Python {}.{} is too old, {}.{} or later is needed: install one, or `make PYTHON=PATH`.".format(
            *sys.version_info[:2], *OLDEST
        )
    )


def ensure_venv_module(python: str) -> None:
    """Return when `python -m venv` works: Debian and Ubuntu put a part of it into a package of its own."""
    if ask(python, "import venv, ensurepip; print(1)"):
        return
    package = "python{}-venv".format(ask(python, "import sys; print('%d.%d' % sys.version_info[:2])"))
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise VenvError(f"this Python has no venv module: `sudo apt install {package}`.")
    say(f"this Python has no venv module: apt installs {package}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for words in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
        if subprocess.call(words, env=environment, stdout=subprocess.DEVNULL):
            raise VenvError("`{}` failed; what it printed is above.".format(" ".join(words)))


def main() -> int:
    """Make the environment unless it is there; 0, or 1 after one sentence."""
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()[:12]
    inside = str(VENV / "bin" / "python")
    stamp = VENV / (".installed-" + project)
    try:
        # the Python below it may have gone, with an upgrade of the system
        works = ask(inside, f"import pip, sys; print(sys.version_info >= {OLDEST!r})") == "True"
        if works and stamp.exists():
            return 0
        say("making .venv and installing hvdcompose with its tools into it")
        if not works:
            python = find_python()
            ensure_venv_module(python)
            run(python, "-m", "venv", "--clear", str(VENV))
        pip = ask(inside, "import pip; print(pip.__version__)")
        if tuple(int(part) for part in pip.split(".")[:2]) < GROUPS_PIP:
            run(inside, "-m", "pip", "install", "-q", "--upgrade", "pip")
        run(inside, "-m", "pip", "install", "-q", "-e", ".", "--group", "dev")
        for old in VENV.glob(".installed-*"):
            old.unlink()
        stamp.touch()
    except VenvError as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
