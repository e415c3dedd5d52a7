"""The image on the client and on the hosts: which one it is, and how a host gets it without a registry."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdcompose.errors import HostError
from hvdcompose.hosts import process
from hvdcompose.hosts.code import read_build
from hvdcompose.hosts.engine import CLIENT, Engine, client_words

BUILD_SECONDS = 7200.0
PULL_SECONDS = 3600.0
STALLED_SECONDS = 60.0
BUILD_LABEL = "hvdcompose.build"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the old builder paints what goes to stderr, into a pipe as well
Progress = Callable[[str], None]


@dataclass(frozen=True)
class ImageFacts:
    """An image as an engine has it. `digest` is the same on every engine and image store (see `identity`)."""

    digest: str
    architecture: str
    size: int  # bytes
    build: str  # digest of what hvdcompose built it from, or ""


def identity(told: Mapping[str, Any]) -> str:
    """Return 12 hex digits that name an image by its content.

    Image IDs differ between overlay2 and the containerd image store; architecture, layers and configuration agree.
    """
    config = told.get("Config") or {}
    parts = {
        "architecture": told.get("Architecture"),
        "layers": (told.get("RootFS") or {}).get("Layers"),
        "config": {
            name: config.get(name) or None for name in ("Env", "Cmd", "Entrypoint", "WorkingDir", "User", "Labels")
        },
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def parse_image(told: Mapping[str, Any]) -> ImageFacts:
    """Return the facts in the JSON of `docker image inspect`. Pure."""
    labels = (told.get("Config") or {}).get("Labels") or {}
    return ImageFacts(
        identity(told),
        str(told.get("Architecture", "")),
        int(told.get("Size", 0)),
        str(labels.get(BUILD_LABEL, "")),
    )


def image_facts(engine: Engine, name: str) -> ImageFacts | None:
    """Return the image of that name on an engine, or None. Raises HostError."""
    told = engine.inspect("image", name)
    return parse_image(told) if told else None


def client_image(name: str) -> ImageFacts | None:
    """Return the client's own image of that name; None without one, or without an engine here."""
    try:
        return image_facts(Engine("this machine", CLIENT), name)
    except (HostError, FileNotFoundError):
        return None


def build_digest(folder: Path, args: Mapping[str, str]) -> str:
    """Return 12 hex digits over a build folder and the build arguments."""
    content = read_build(folder).digest
    return hashlib.sha256(f"{content}{json.dumps(dict(args), sort_keys=True)}".encode()).hexdigest()[:12]


def build_words(name: str, folder: Path, args: Mapping[str, str], digest: str) -> list[str]:
    """Return the words of `docker build` for this machine's engine."""
    options = [word for key, value in args.items() for word in ("--build-arg", f"{key}={value}")]
    # --force-rm: without BuildKit a step that fails would leave its container
    label = f"{BUILD_LABEL}={digest}"
    return client_words("build", "--force-rm", "--label", label, "-t", name, *options, str(folder))


def build(name: str, folder: Path, args: Mapping[str, str], digest: str, say: Progress) -> None:
    """Build the image on the client's engine, telling its lines. Raises HostError with the last of them."""
    tail: list[str] = []
    with process.child(
        build_words(name, folder, args, digest),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    ) as running:
        timer = threading.Timer(BUILD_SECONDS, lambda: process.end(running))
        timer.daemon = True  # Ctrl-C must not wait for it
        timer.start()
        assert running.stdout is not None
        try:
            for line in running.stdout:
                text = COLOUR.sub("", line.decode(errors="replace")).rstrip()
                if text:
                    tail = [*tail[-29:], text]
                    say(text)
            code = running.wait()
        finally:
            timer.cancel()
    if code:
        raise HostError("this machine", f"building {name} from {folder} failed (exit {code})", output="\n".join(tail))


def pull(engine: Engine, name: str) -> None:
    """Have a host pull the image from its registry. Raises HostError."""
    engine.call("pull", "--quiet", name, doing=f"pulling {name}", deadline=PULL_SECONDS)


def send(engine: Engine, name: str, size: int, say: Progress) -> None:
    """Send the client's image to a host: `docker save | docker load`, telling the share sent about every second.

    Raises HostError, also when nothing moves for 60 s.
    """
    save_words = client_words("save", name)
    with (
        process.child(save_words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as saving,
        process.child(
            engine.words("load", "--quiet"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as loading,
    ):
        moved = _Moved()
        watch = threading.Thread(target=_end_when_stalled, args=(moved, saving, loading), daemon=True)
        watch.start()
        try:
            whole = _pump(saving, loading, moved, size, say)
            output = loading.communicate()[0].decode(errors="replace")  # the watch bounds it
        finally:
            moved.done = True
        if moved.stalled:
            raise HostError(engine.host, f"sending {name}: nothing moved for {STALLED_SECONDS:.0f} s")
        if whole and saving.wait(STALLED_SECONDS):
            told = saving.stderr.read().decode(errors="replace") if saving.stderr else ""
            raise HostError("this machine", f"docker save {name} failed", output=told)
        if loading.returncode or not whole:
            raise engine.fail(process.Completed(loading.returncode, output, ""), f"sending {name}", 0)


@dataclass
class _Moved:
    at: float = 0.0
    done: bool = False
    stalled: bool = False

    def __post_init__(self) -> None:
        self.at = time.monotonic()


def _pump(
    saving: subprocess.Popen[bytes], loading: subprocess.Popen[bytes], moved: _Moved, size: int, say: Progress
) -> bool:
    """Move all bytes from one to the other; return False where the host took only a part."""
    assert saving.stdout is not None and loading.stdin is not None
    sent, told = 0, time.monotonic()
    while chunk := saving.stdout.read(1 << 20):
        try:
            loading.stdin.write(chunk)
            loading.stdin.flush()
        except BrokenPipeError:
            return False
        sent += len(chunk)
        moved.at = time.monotonic()
        if moved.at - told > 1.0 and size:
            told = moved.at
            say(f"image {min(99, 100 * sent // size)} %")
    loading.stdin.close()
    loading.stdin = None
    say("image unpacking")
    moved.at = time.monotonic() + STALLED_SECONDS * 9  # the engine unpacks without a word
    return True


def _end_when_stalled(moved: _Moved, *running: subprocess.Popen[bytes]) -> None:
    while not moved.done:
        time.sleep(0.5)
        if time.monotonic() - moved.at > STALLED_SECONDS:
            moved.stalled = True
            for child in running:
                process.end(child)
            return
