"""Files on the client that hvdcompose writes for the user: whole, or not at all under their own name."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from hvdcompose.errors import HvdError

CHUNK = 1 << 20
State = Literal["missing", "same", "differs"]


def shown(path: str | Path) -> str:
    """Return a path as it can be printed: bytes that are no text stand as escapes."""
    return str(path).encode("utf-8", "backslashreplace").decode()


@contextlib.contextmanager
def told_faults(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into an HvdError that names it."""
    try:
        yield
    except OSError as error:
        raise HvdError(f"cannot write {shown(path)}: {error.strerror}") from None


def write_page(path: Path, text: str, mark: str, *, replace: bool) -> bool:
    """Write a page; return False where the file is there and holds no `mark` of an older one.

    replace: write in any case. Raises HvdError where it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    with told_faults(path):
        if path.exists() and not replace and mark not in path.read_text(encoding="utf-8", errors="replace"):
            return False
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    return True


def state_of_file(path: Path, size: int, sha256: str) -> State:
    """Return how a file compares with one that is wanted there; a link is never followed. Raises HvdError."""
    with told_faults(path):
        found = _lstat(path)
        if found is None:
            return "missing"
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return "differs"
        return "same" if digest_of(path) == sha256 else "differs"


def state_of_link(path: Path, target: str) -> State:
    """Return how a link compares with one that is wanted there. Raises HvdError."""
    with told_faults(path):
        found = _lstat(path)
        if found is None:
            return "missing"
        return "same" if stat.S_ISLNK(found.st_mode) and str(path.readlink()) == target else "differs"


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def digest_of(path: Path) -> str:
    """Return the sha256 of a file. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()


def make_folder(root: Path, below: Path) -> None:
    """Make a folder below `root`, which is made too. Raises HvdError where a link or a file stands in its way."""
    with told_faults(root / below):
        root.mkdir(parents=True, exist_ok=True)
        at = root
        for name in below.parts:
            at /= name
            if at.is_symlink():
                raise HvdError(f"{shown(at)} is a link: nothing is written through it", hint="remove it")
            at.mkdir(exist_ok=True)


def part_size(part: Path) -> int:
    """Return how much of a file an interrupted fetch left, in bytes."""
    found = _lstat(part)
    return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0


def append(part: Path, at: int, chunks: Iterable[bytes]) -> Iterator[int]:
    """Write chunks to a file from byte `at` on, which is cut there; yield the length of each once it is written.

    Raises HvdError where it cannot be written, or another process writes it.
    """
    with told_faults(part):
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise HvdError(f"another fetch writes {shown(part)}", hint="wait for its end") from None
        with told_faults(part):
            file.truncate(at)
            file.seek(at)
        for data in chunks:
            with told_faults(part):
                written = memoryview(data)
                while written:
                    written = written[file.write(written) :]
            yield len(data)


def finish(part: Path, path: Path, sha256: str) -> bool:
    """Give a file that is whole its name; return False, and remove it, where its sha256 is another."""
    with told_faults(path):
        if digest_of(part) != sha256:
            part.unlink()
            return False
        part.replace(path)
        return True


def make_link(part: Path, path: Path, target: str) -> None:
    """Make a link, first under the name `part`, in the place of what stands there. Raises HvdError."""
    with told_faults(path):
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        part.replace(path)


def free_bytes(folder: Path) -> int:
    """Return the room on the disk where a folder is, or is to be made. Raises HvdError."""
    at = folder.absolute()
    while not at.exists():
        at = at.parent
    with told_faults(folder):
        return shutil.disk_usage(at).free
