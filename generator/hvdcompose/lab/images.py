"""The image of a virtual host: named by a digest of its recipe, so built once and found again."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hvdcompose.errors import HvdError
from hvdcompose.hosts import process
from hvdcompose.lab.engine import Engine, Report, reason

RECIPE = Path(__file__).parent / "image"
Kind = Literal["plain", "rootless", "old"]


@dataclass(frozen=True)
class Recipe:
    """What an image of one kind is made of: its Dockerfiles, the last being its own, and a release of Debian."""

    repository: str
    files: tuple[str, ...]
    suite: str = "trixie"

    @property
    def bases(self) -> tuple[str, str]:
        """Debian's own image, and the one made by debootstrap where no registry is in reach."""
        return f"debian:{self.suite}-slim", f"hvdcompose-lab-base:{self.suite}"


KINDS: dict[Kind, Recipe] = {
    "plain": Recipe("hvdcompose-lab-host", ("Dockerfile",)),
    "rootless": Recipe("hvdcompose-lab-host-rootless", ("Dockerfile", "Dockerfile.rootless")),  # made from the plain
    "old": Recipe("hvdcompose-lab-host-old", ("Dockerfile.old",), "bookworm"),
}
PULL_SECONDS, BOOTSTRAP_SECONDS, BUILD_SECONDS = 120, 600, 1200
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def digest(files: Iterable[tuple[str, bytes]]) -> str:
    """Digest of a recipe: twelve hex digits that change with any byte of any file."""
    whole = hashlib.sha256()
    for name, content in sorted(files):
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:12]


def image_name(kind: Kind = "plain") -> str:
    """Name of the image that the recipe in this package makes."""
    recipe = KINDS[kind]
    files = [path for path in RECIPE.iterdir() if path.is_file()]
    used = [path for path in files if not path.name.startswith("Dockerfile") or path.name in recipe.files]
    return f"{recipe.repository}:{digest((path.name, path.read_bytes()) for path in used)}"


def build_words(image: str, base: str, file: str) -> list[str]:
    """Words after `docker` that build an image of the lab."""
    words = ["build", "--network", "host", "--label", "hvdcompose.lab.image=1", "--build-arg", f"BASE={base}"]
    # without a value the client takes it from its own environment
    words += [word for name in PROXIES if name in os.environ for word in ("--build-arg", name)]
    return [*words, "--tag", image, "--file", str(RECIPE / file), str(RECIPE)]


def ensure_image(engine: Engine, report: Report, kind: Kind = "plain") -> str:
    """Build the image unless it is there; its name."""
    image = image_name(kind)
    if _present(engine, image):
        return image
    base = ensure_image(engine, report) if kind == "rootless" else _ensure_base(engine, report, KINDS[kind])
    report("", f"building {image}, once; this takes a minute or two")
    # without the buildx plugin only the old builder works, and it has to be asked for
    builder = () if engine.attempt("buildx", "version").ok else ("env", "DOCKER_BUILDKIT=0")
    words = build_words(image, base, KINDS[kind].files[-1])
    done = Engine((*builder, *engine.words)).attempt(*words, seconds=BUILD_SECONDS)
    if not done.ok:
        raise HvdError(f"{image} cannot be built: {reason(done)}", hint=f"its recipe is in {RECIPE}")
    for old in _tags(engine, image.partition(":")[0]):
        if old != image:
            engine.attempt("image", "rm", old)  # refused, rightly, while a host is made of it
    return image


def _present(engine: Engine, image: str) -> bool:
    return engine.attempt("image", "inspect", "--format", "{{.Id}}", image).ok


def _tags(engine: Engine, repository: str) -> list[str]:
    return engine.call("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository).split()


def _ensure_base(engine: Engine, report: Report, recipe: Recipe) -> str:
    theirs, own = recipe.bases
    for base in (theirs, own):
        if _present(engine, base):
            return base
    report("", f"pulling {theirs}")
    try:
        pulled = engine.attempt("pull", theirs, seconds=PULL_SECONDS)
        why = reason(pulled)
    except HvdError as late:
        pulled, why = None, late.message
    if pulled is not None and pulled.ok:
        return theirs
    debootstrap = shutil.which("debootstrap")
    if debootstrap is None or os.geteuid() != 0:
        raise HvdError(
            f"{theirs} cannot be pulled ({why}), and only root with debootstrap can make one here",
            hint=f"docker load an image {theirs}, or apt install debootstrap and try again as root",
        )
    report("", f"{theirs} cannot be pulled: making one with debootstrap, once; this takes a minute")
    with tempfile.TemporaryDirectory(prefix="hvdcompose-base-") as folder:
        for words in (
            [debootstrap, "--variant=minbase", recipe.suite, f"{folder}/root"],
            ["tar", "-C", f"{folder}/root", "-cf", f"{folder}/root.tar", "."],
            [*engine.words, "import", f"{folder}/root.tar", own],
        ):
            done = process.run(words, deadline=BOOTSTRAP_SECONDS)
            if not done.ok:
                raise HvdError(f"{theirs} cannot be pulled ({why}), nor made: {words[0]}: {reason(done)}")
    return own


def remove_images(engine: Engine, report: Report) -> None:
    """Remove every image of the lab, also those of earlier recipes; one in use by another lab stays."""
    for recipe in reversed(KINDS.values()):  # what is made from another goes first
        for name in _tags(engine, recipe.repository):
            done = engine.attempt("image", "rm", name)
            report("", f"image {name} removed" if done.ok else f"image {name} stays: {reason(done)}")
