"""The user's code: a folder on the client -> a digest and a tar that is unpacked on every host."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hvdcompose.errors import UsageError
from hvdcompose.hosts.tars import Entry, pack
from hvdcompose.stack.plan import CODE_TARGET

LIMIT_BYTES = 200 * 1024 * 1024
IGNORED_FOLDERS = frozenset(
    (".git", "__pycache__", ".venv", "venv", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules")
)
BUILD_IGNORED_FOLDERS = frozenset((".git", "__pycache__"))  # a build may COPY all others
IGNORED_ENDINGS = (".pyc", ".pyo", ".swp", "~")
Skips = Callable[[str, bool], bool]  # (path below the folder, whether it is a folder) -> whether it is left out


@dataclass(frozen=True)
class Code:
    """A code folder as it is now: entries under /hvd/code/<name>, sorted by path."""

    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def digest(self) -> str:
        """12 hex digits over names, modes and contents."""
        digest = hashlib.sha256()
        for entry in self.entries:
            content = b"" if entry.content is None else hashlib.sha256(entry.content).digest()
            digest.update(f"{entry.path}\0{entry.mode:o}\0".encode(errors="surrogateescape") + content)
        return digest.hexdigest()[:12]

    def tar(self) -> bytes:
        """Return the tar to unpack at /."""
        return pack(self.entries)


def read_code(folder: Path) -> Code:
    """Read a code folder; links are followed, caches and version control left out.

    Raises UsageError for a folder that cannot be read or is too large.
    """
    return _read(
        folder, "train.code", lambda path, is_folder: is_folder and posixpath.basename(path) in IGNORED_FOLDERS
    )


def script_of(command: Sequence[str]) -> str | None:
    """Return the script that `python [OPTIONS] SCRIPT.py ...` runs, None for a command of another form."""
    words = iter(command)
    if not re.fullmatch(r"python[\d.]*", posixpath.basename(next(words, ""))):
        return None
    for word in words:
        if word in ("-W", "-X"):  # the options of python(1) that take the next word
            next(words, None)
        elif not word.startswith("-"):
            return word if word.endswith(".py") else None
        elif word[1:2] in ("m", "c"):
            return None
    return None


def missing_script(code: Code, command: Sequence[str], mounted: Iterable[str] = ()) -> tuple[str, str] | None:
    """Return (what is wrong, remedy) where a command runs a script that is not among the code, else None.

    The command runs in the folder above the code's own. mounted: paths in the containers that hold something else.
    """
    script = script_of(command)
    if script is None:
        return None
    path, there = posixpath.normpath(posixpath.join(CODE_TARGET, script)), {entry.path for entry in code.entries}
    if not path.startswith(f"{CODE_TARGET}/") or path in there:
        return None
    if any(f"{path}/".startswith(f"{target}/") for target in mounted):
        return None
    lies = f"{CODE_TARGET}/{code.name}"
    inside = f"{lies}/{script}" in there
    told = f"the command runs {script}, and there is no such file where it runs: in {CODE_TARGET}, the code is {lies}"
    return told, f"write {code.name}/{script}" if inside else f"name a file of that folder: {code.name}/..."


def read_build(folder: Path) -> Code:
    """Read a build folder: what `docker build` would send, but for version control and Python's own caches.

    Raises UsageError for a folder that cannot be read or is too large.
    """
    unsent = _dockerignore(folder)
    return _read(
        folder,
        "image.build",
        lambda path, is_folder: (
            (is_folder and posixpath.basename(path) in BUILD_IGNORED_FOLDERS) or unsent(path, is_folder)
        ),
    )


def _dockerignore(folder: Path) -> Skips:
    """Return what .dockerignore leaves out. A pattern with [...] is not understood and leaves out nothing."""
    try:
        lines = (folder / ".dockerignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return lambda path, is_folder: False
    rules = []
    for line in map(str.strip, lines):
        pattern = posixpath.normpath(line.removeprefix("!").strip()).lstrip("/")
        if line and not line.startswith("#") and pattern != ".":
            rules.append((_docker_pattern(pattern), not line.startswith("!")))
    no_exceptions = all(out for _, out in rules)

    def skips(path: str, is_folder: bool) -> bool:
        if path in ("Dockerfile", ".dockerignore") or (is_folder and not no_exceptions):
            return False
        return next((out for rule, out in reversed(rules) if rule.fullmatch(path)), False)

    return skips


def _docker_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of .dockerignore as an expression that also fits everything below what it names."""
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    return re.compile("".join(known.get(part) or re.escape(part) for part in parts) + "(?:/.*)?")


def _read(folder: Path, key: str, skips: Skips) -> Code:
    """Read a folder; `key` is what names it in cluster.yaml."""
    name = folder.resolve().name if folder.name in ("", ".", "..") else folder.name
    target = f"{CODE_TARGET}/{name}"
    entries, total = [Entry(target, None, 0o755)], 0
    for path in _walk(folder, key, skips):
        relative = f"{target}/{path.relative_to(folder).as_posix()}"
        try:
            if path.is_dir():
                entries.append(Entry(relative, None, 0o755))
                continue
            content = path.read_bytes()
            executable = os.access(path, os.X_OK)
        except OSError as error:
            raise UsageError(f"{key}: cannot read {path}: {error.strerror}") from None
        total += len(content)
        if total > LIMIT_BYTES:
            raise UsageError(
                f"{key}: {folder} holds more than {LIMIT_BYTES // 2**20} MB, the limit was passed at {path}",
                hint="data goes on the hosts and into `train.volumes`, not into a folder that is sent or built from"
                + "; what no COPY needs goes into .dockerignore" * (key == "image.build"),
            )
        entries.append(Entry(relative, content, 0o755 if executable else 0o644))
    return Code(name, tuple(entries))


def _walk(folder: Path, key: str, skips: Skips) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{key}: cannot read {error.filename}: {error.strerror}")

    def skipped(path: Path, *, is_folder: bool) -> bool:
        return skips(path.relative_to(folder).as_posix(), is_folder)

    found = []
    for root, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = sorted(
            name
            for name in folders
            if not skipped(Path(root, name), is_folder=True) and not _climbs(folder, Path(root, name))
        )
        found += [Path(root, name) for name in folders]
        found += [
            Path(root, name)
            for name in sorted(files)
            if not name.endswith(IGNORED_ENDINGS)
            and not skipped(Path(root, name), is_folder=False)
            and Path(root, name).is_file()
        ]
    return sorted(found)


def _climbs(top: Path, folder: Path) -> bool:
    """Tell whether a folder is a link back to where the walk came from: following it would never end."""
    if not folder.is_symlink():
        return False
    target, way = folder.resolve(), [top, *(above for above in folder.parents if above.is_relative_to(top))]
    return any(above.resolve().is_relative_to(target) for above in way)
