#!/usr/bin/env python3
"""Build the images of this project, only when something they are made of changed.

python tools/images.py trainer        hvd-trainer:cpu, what every container of the demo runs
python tools/images.py base trixie    debian:trixie-slim, pulled, or made with debootstrap without a registry
python tools/images.py wheel          the patched Horovod wheel, for use outside Docker, in dist/wheels/

Standard library only, any Python from 3.11. What takes long is said before it starts.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import io
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
TRAINER = ROOT / "trainer"
CACHE = ROOT / ".cache"

TAG = "hvd-trainer:cpu"
BASE_REPOSITORY = "hvd-trainer-base"
DIGEST_LABEL = "hvdcompose.digest"
SUITE_PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
"""The Python that a Debian release carries decides which wheels fit."""
BUILD_STAGE = "runtime"
"""The Dockerfile's last stage but one: everything except our own code."""

REGISTRY_SILENCE = 20.0
"""Seconds a registry may say nothing before debootstrap makes the base image instead."""
HEARTBEAT = 30.0
"""Seconds between signs of life while Docker builds."""


class ImageError(Exception):
    """Something a person has to see to; the message is one sentence."""


def say(line: str) -> None:
    """Tell the person what happens; stdout stays free for results."""
    print(line, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- running other programs


def run(words: Sequence[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program and return its result, whatever its exit code."""
    try:
        return subprocess.run([str(word) for word in words], text=True, capture_output=True, **options)  # type: ignore[call-overload,no-any-return]
    except FileNotFoundError:
        raise ImageError(f"{words[0]} is not installed here") from None


def checked(words: Sequence[str | Path], doing: str) -> str:
    """Run a program that has to succeed and return its output."""
    result = run(words)
    if result.returncode != 0:
        raise ImageError(f"{doing} failed: {last_lines(result.stderr or result.stdout, 3)}")
    return result.stdout


def last_lines(text: str, count: int) -> str:
    """Return the last lines of a program's output, as one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "it said nothing"


def image_label(image: str, label: str) -> str | None:
    """Return a label of an image ('' when it lacks the label), or None when there is no such image."""
    result = run(["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{label}"}}}}', image])
    if result.returncode == 0:
        return result.stdout.strip()
    if "No such image" in result.stderr:
        return None
    raise ImageError(f"Docker does not answer: {last_lines(result.stderr, 1)}")


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Let one such job run at a time; a second one waits and then mostly finds the work done."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another tools/images.py is at work: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- the base image


def base_image(suite: str) -> str:
    """Return the name of a Debian release's small image."""
    return f"debian:{suite}-slim"


def ensure_base(suite: str) -> str:
    """Make sure that a Debian base image is there: pulled, or made here. Returns its name."""
    image = base_image(suite)
    if image_label(image, DIGEST_LABEL) is not None:
        return image
    say(f"{image}: pulling it")
    why = pull(image)
    if why is not None:
        say(f"{image}: no registry gave it ({why}); making it with debootstrap, which takes about a minute")
        make_base(suite, image)
    return image


def pull(image: str) -> str | None:
    """Pull an image, giving up early on a registry that does not answer. Returns why it failed, or None."""
    process = subprocess.Popen(["docker", "pull", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    # A slow registry that answers is waited for: what counts is the first word.
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        answered = bool(selector.select(REGISTRY_SILENCE))
    if not answered:
        process.kill()
        process.wait()
        return f"no answer within {REGISTRY_SILENCE:.0f} s"
    output = process.stdout.read()
    return None if process.wait() == 0 else last_lines(output, 1)


def make_base(suite: str, image: str) -> None:
    """Make a base image from Debian's packages and import it into Docker."""
    if os.geteuid() != 0:
        raise ImageError(f"{image} is not here, no registry gives it, and only root can make it with debootstrap")
    if shutil.which("debootstrap") is None:
        if shutil.which("apt-get") is None:
            raise ImageError(f"{image} cannot be made here: install debootstrap, or load the image by hand")
        say("installing debootstrap")
        checked(["apt-get", "update"], "apt-get update")
        checked(["apt-get", "install", "-y", "--no-install-recommends", "debootstrap"], "installing debootstrap")
    CACHE.mkdir(exist_ok=True)
    tree = CACHE / f"debootstrap-{suite}"
    shutil.rmtree(tree, ignore_errors=True)
    try:
        checked(["debootstrap", "--variant=minbase", suite, tree, "http://deb.debian.org/debian"], "debootstrap")
        # What the official slim images leave out as well.
        for folder in (
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
            "usr/share/info",
            "var/lib/apt/lists",
        ):
            shutil.rmtree(tree / folder, ignore_errors=True)
        for package in (tree / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        words = ["docker", "import", "--change", 'CMD ["bash"]', "-", image]
        archive = subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE)
        imported = run(words, stdin=archive.stdout)
        if archive.wait() != 0 or imported.returncode != 0:
            raise ImageError(f"importing {image} failed: {last_lines(imported.stderr, 1)}")
    finally:
        shutil.rmtree(tree, ignore_errors=True)


# ---------------------------------------------------------------- the wheelhouse


@dataclass(frozen=True)
class Versions:
    """What the Dockerfile's ARG lines pin."""

    torch: str
    torchvision: str
    horovod: str
    torch_index: str


def read_versions(dockerfile: str) -> Versions:
    """Read the pinned versions from the Dockerfile, their only home."""
    found = dict(re.findall(r"^ARG (\w+)=(\S*)$", dockerfile, re.MULTILINE))
    try:
        return Versions(
            torch=found["TORCH_VERSION"],
            torchvision=found["TORCHVISION_VERSION"],
            horovod=found["HOROVOD_VERSION"],
            torch_index=found["TORCH_INDEX"],
        )
    except KeyError as error:
        raise ImageError(f"trainer/Dockerfile has no line ARG {error.args[0]}=...") from None


def reachable(url: str) -> bool:
    """Tell whether a web server takes connections."""
    parts = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=5).close()
    except OSError:
        return False
    return True


def find_pip() -> list[str] | None:
    """Return the words that run pip: this Python's, or that of a virtual environment made for it."""
    own = [sys.executable, "-m", "pip"]
    if run([*own, "--version"]).returncode == 0:
        return own
    environment = CACHE / "pip"
    if run([sys.executable, "-m", "venv", environment]).returncode == 0:
        return [str(environment / "bin" / "python"), "-m", "pip"]
    return None


def docker_machine() -> str:
    """Return the processor architecture that Docker builds for, as wheels name it."""
    arch = checked(["docker", "version", "--format", "{{.Server.Arch}}"], "docker version").strip()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)


def ensure_wheelhouse(versions: Versions, python: str) -> Path | None:
    """Download once what the image's pip installs; returns None when this machine has no pip to do it with.

    Inside a build pip may lack a way out, or the certificate of a company's proxy.
    """
    machine = docker_machine()
    folder = CACHE / f"wheelhouse-cp{python.replace('.', '')}-{machine}"
    complete = folder / ".complete"
    if complete.is_file() and complete.read_text() == repr(versions):
        return folder
    pip = find_pip()
    if pip is None:
        say("no pip here: the build downloads PyTorch for itself")
        return None
    say(f"downloading PyTorch {versions.torch} and Horovod {versions.horovod}'s source, 250 MB, into .cache/")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # pip takes a platform literally, so every older one whose wheels also run has to be named.
    platforms = [f"manylinux_2_{minor}" for minor in range(36, 4, -1)]
    platforms += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
    words = [*pip, "download", "--quiet", "--dest", str(folder), "--only-binary", ":all:"]
    words += ["--implementation", "cp", "--python-version", python]
    words += [word for name in platforms for word in ("--platform", f"{name}_{machine}")]
    if reachable(versions.torch_index):
        words += ["--extra-index-url", versions.torch_index]
    words += [f"torch=={versions.torch}", f"torchvision=={versions.torchvision}"]
    words += ["cffi", "cloudpickle", "numpy", "packaging", "psutil", "pyyaml", "setuptools<82", "wheel"]
    checked(words, "downloading the wheels")
    words = [*pip, "download", "--quiet", "--dest", str(folder), "--no-deps", "--no-binary", "horovod"]
    checked([*words, f"horovod=={versions.horovod}"], "downloading Horovod's source")
    if machine == "x86_64" and not list(folder.glob("torch-*+cpu-*.whl")):
        say("PyTorch's CPU index was out of reach: this is PyPI's build for CUDA, and the image becomes large")
    complete.write_text(repr(versions))
    return folder


# ---------------------------------------------------------------- building


def split_dockerfile(text: str) -> tuple[str, str]:
    """Split a Dockerfile before its last FROM: the stages that take long, and our own code on top."""
    start = text.rindex("\nFROM ") + 1
    return text[:start], text[start:]


def digest(*parts: bytes | str) -> str:
    """Return a short digest of some contents."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        # The length keeps "ab", "c" apart from "a", "bc".
        whole.update(b"%d:" % len(data))
        whole.update(data)
    return whole.hexdigest()[:16]


def write_context(stream: IO[bytes], files: dict[str, bytes], wheelhouse: Path | None) -> None:
    """Write a build context as a tar stream, so that nothing is copied together on disk."""
    # GNU format: with the default one Docker's client takes the stream for a Dockerfile.
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            # Fixed rights and owners, so that a checkout's umask does not count as a change.
            entry.mode = 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(entry, io.BytesIO(data))
        if wheelhouse is not None:
            for path in sorted(wheelhouse.glob("[!.]*")):
                archive.add(path, arcname=f"wheelhouse/{path.name}", filter=plain_entry)


def plain_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop what differs from one checkout to the next."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


def build(image: str, files: dict[str, bytes], wheelhouse: Path | None, options: Sequence[str]) -> None:
    """Build an image, telling the steps; the whole output goes to a log."""
    buildkit = run(["docker", "buildx", "version"]).returncode == 0
    environment = dict(os.environ, DOCKER_BUILDKIT="1" if buildkit else "0")
    words = ["docker", "build", "--tag", image, *options]
    # The old builder's containers reach the net more surely through the host; BuildKit may forbid that.
    words += ["--progress", "plain"] if buildkit else ["--network", "host"]
    CACHE.mkdir(exist_ok=True)
    log_path = CACHE / "trainer-build.log"
    process = subprocess.Popen(
        [*words, "-"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None and process.stdout is not None
    feeder = threading.Thread(target=feed, args=(process.stdin, files, wheelhouse))
    feeder.start()
    started = time.monotonic()
    done = threading.Event()
    heart = threading.Thread(target=beat, args=(done, started), daemon=True)
    heart.start()
    tail: list[str] = []
    with log_path.open("w") as log:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            log.write(line + "\n")
            tail = [*tail[-14:], line]
            step = re.match(r"(?:Step (\d+/\d+) : |#\d+ \[\w+ +(\d+/\d+)\] )(.*)", line)
            if step:
                say(f"  {step[1] or step[2]} {step[3][:90]}")
    done.set()
    feeder.join()
    if process.wait() != 0:
        for line in tail:
            say(f"  | {line[:200]}")
        raise ImageError(f"building {image} failed; the whole output is in {log_path.relative_to(ROOT)}")
    say(f"{image}: built in {time.monotonic() - started:.0f} s")


def feed(stream: IO[bytes], files: dict[str, bytes], wheelhouse: Path | None) -> None:
    """Send the build context; a build that ends early is reported by its own exit code."""
    try:
        write_context(stream, files, wheelhouse)
        stream.close()
    except BrokenPipeError:
        pass


def beat(done: threading.Event, started: float) -> None:
    """Show that a silent build is alive."""
    while not done.wait(HEARTBEAT):
        say(f"  ... {time.monotonic() - started:.0f} s")


def build_jobs() -> int:
    """Return how many compilers may run at once where Docker builds: one per core and per 2 GB of memory."""
    answer = checked(["docker", "info", "--format", "{{.NCPU}} {{.MemTotal}}"], "docker info").split()
    return max(1, min(int(answer[0]), int(answer[1]) // 2_000_000_000))


def ensure_trainer(tag: str, suite: str) -> str:
    """Make sure that the trainer's image is there and current; returns the image below our own code."""
    dockerfile = (TRAINER / "Dockerfile").read_text()
    below, top = split_dockerfile(dockerfile)
    inputs = {name: (TRAINER / name).read_bytes() for name in ("patch-horovod.sh", "tv_cpu_shim.py")}
    code = {path.name: path.read_bytes() for path in sorted(TRAINER.glob("*.py"))}

    lower_digest = digest(below, suite, *inputs.values())
    lower = f"{BASE_REPOSITORY}:{lower_digest}"
    whole_digest = digest(lower_digest, top, *(part for item in code.items() for part in item))
    if image_label(tag, DIGEST_LABEL) == whole_digest:
        say(f"{tag}: up to date")
        return lower
    with only_one("images"):
        if image_label(lower, DIGEST_LABEL) != lower_digest:
            versions = read_versions(dockerfile)
            image = ensure_base(suite)
            wheelhouse = ensure_wheelhouse(versions, SUITE_PYTHONS[suite])
            say(f"{lower}: building it; Horovod is compiled, which takes 5 to 15 minutes on 2 cores")
            build(
                lower,
                {"Dockerfile": dockerfile.encode(), **inputs},
                wheelhouse,
                [
                    *("--target", BUILD_STAGE),
                    *("--label", f"{DIGEST_LABEL}={lower_digest}"),
                    *("--build-arg", f"BASE_IMAGE={image}"),
                    *("--build-arg", f"JOBS={build_jobs()}"),
                ],
            )
        thin = re.sub(r"^FROM .*$", f"FROM {lower}", top, count=1, flags=re.MULTILINE)
        build(
            tag,
            {"Dockerfile": thin.encode(), **code},
            None,
            ["--label", f"{DIGEST_LABEL}={whole_digest}"],
        )
    return lower


def extract_wheel(image: str, folder: Path) -> list[Path]:
    """Copy the Horovod wheel out of an image."""
    container = checked(["docker", "create", image, "true"], "docker create").strip()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checked(["docker", "cp", f"{container}:/opt/wheels/.", folder], "docker cp")
    finally:
        run(["docker", "rm", "--force", container])
    return sorted(folder.glob("horovod-*.whl"))


# ---------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="tools/images.py", description="Build this project's images, only when something changed."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    trainer = commands.add_parser("trainer", help=f"build {TAG}, the image that trains")
    trainer.add_argument("--tag", default=TAG, help=f"the image's name (default: {TAG})")
    trainer.add_argument("--suite", choices=sorted(SUITE_PYTHONS), default="bookworm", help="Debian release below it")
    base = commands.add_parser("base", help="provide debian:SUITE-slim, pulled or made here")
    base.add_argument("suite", help="a Debian release: bookworm, trixie")
    wheel = commands.add_parser("wheel", help="put the patched Horovod wheel into a folder")
    wheel.add_argument("--out", type=Path, default=ROOT / "dist" / "wheels", help="the folder (default: dist/wheels)")
    wheel.add_argument("--suite", choices=sorted(SUITE_PYTHONS), default="bookworm", help="bookworm: for Python 3.11")
    options = parser.parse_args(arguments)
    try:
        if options.command == "trainer":
            ensure_trainer(options.tag, options.suite)
            print(options.tag)
        elif options.command == "base":
            if not re.fullmatch(r"[a-z]+", options.suite):
                raise ImageError(f"'{options.suite}' is no name of a Debian release")
            with only_one("base"):
                print(ensure_base(options.suite))
        else:
            tag = TAG if options.suite == "bookworm" else f"hvd-trainer:{options.suite}"
            for path in extract_wheel(ensure_trainer(tag, options.suite), options.out):
                print(path)
    except ImageError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
