"""The image on the client and on the hosts: which one it is, how it is built and pulled."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdcompose.errors import HostError
from hvdcompose.hosts import process
from hvdcompose.hosts.code import read_build
from hvdcompose.hosts.engine import CLIENT, Engine
from hvdcompose.hosts.transfer import pulled

BUILD_SECONDS = 7200.0
PULL_SECONDS = 3600.0
BUILD_LABEL = "hvdcompose.build"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the old builder paints what goes to stderr, into a pipe as well
HERE = Engine("this machine", CLIENT)
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
    """Return the client's own image of that name, None without one. Raises HostError without an engine here."""
    return image_facts(HERE, name)


def build_digest(folder: Path, args: Mapping[str, str]) -> str:
    """Return 12 hex digits over a build folder and the build arguments."""
    content = read_build(folder).digest
    return hashlib.sha256(f"{content}{json.dumps(dict(args), sort_keys=True)}".encode()).hexdigest()[:12]


def build_words(engine: Engine, name: str, folder: Path, args: Mapping[str, str], digest: str) -> list[str]:
    """Return the words of `docker build` for an engine: the client sends it the folder."""
    options = [word for key, value in args.items() for word in ("--build-arg", f"{key}={value}")]
    # --force-rm: without BuildKit a step that fails would leave its container
    label = f"{BUILD_LABEL}={digest}"
    return engine.words("build", "--force-rm", "--label", label, "-t", name, *options, str(folder))


def build(engine: Engine, name: str, folder: Path, args: Mapping[str, str], digest: str, say: Progress) -> None:
    """Build the image on an engine, telling its lines. Raises HostError with the last of them."""

    def tell(line: str) -> None:
        text = COLOUR.sub("", line).rstrip()
        if text:
            say(text)

    completed = process.tell_lines(build_words(engine, name, folder, args, digest), tell, deadline=BUILD_SECONDS)
    if not completed.ok:
        why = f"no end within {BUILD_SECONDS:.0f} s" if completed.timed_out else f"exit {completed.code}"
        lines = (COLOUR.sub("", line).rstrip() for line in completed.out.splitlines())
        output = "\n".join(line for line in lines if line)
        raise HostError(engine.host, f"building {name} from {folder} failed ({why})", output=output)


def pull(engine: Engine, name: str, progress: Callable[[str, int], None]) -> None:
    """Have a host pull the image from its registry, telling how far that is, in percent. Raises HostError."""
    layers: dict[str, bool] = {}

    def tell(line: str) -> None:
        told = pulled(layers, line)
        if told:
            progress(*told)

    completed = process.tell_lines(engine.words("pull", name), tell, deadline=PULL_SECONDS)
    if not completed.ok:
        raise engine.fail(completed, f"pulling {name}", PULL_SECONDS)
