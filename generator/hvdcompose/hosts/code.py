"""The user's code: a folder on the client -> a digest and a tar that is unpacked on every host."""

from __future__ import annotations

import hashlib
import os
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
IGNORED_ENDINGS = (".pyc", ".pyo", ".swp", "~")


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


def read_code(folder: Path, *, key: str = "train.code") -> Code:
    """Read a code folder; links are followed, caches and version control left out.

    Raises UsageError, which names the `key` of cluster.yaml, for a folder that cannot be read or is too large.
    """
    name = folder.resolve().name if folder.name in ("", ".", "..") else folder.name
    target = f"{CODE_TARGET}/{name}"
    entries, total = [Entry(target, None, 0o755)], 0
    for path in _walk(folder, key):
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
                hint="data goes on the hosts and into `train.volumes`, not into a folder that is sent or built from",
            )
        entries.append(Entry(relative, content, 0o755 if executable else 0o644))
    return Code(name, tuple(entries))


def _walk(folder: Path, key: str) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{key}: cannot read {error.filename}: {error.strerror}")

    found = []
    for root, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = sorted(
            name for name in folders if name not in IGNORED_FOLDERS and not _climbs(folder, Path(root, name))
        )
        found += [Path(root, name) for name in folders]
        found += [
            Path(root, name)
            for name in sorted(files)
            if not name.endswith(IGNORED_ENDINGS) and Path(root, name).is_file()
        ]
    return sorted(found)


def _climbs(top: Path, folder: Path) -> bool:
    """Tell whether a folder is a link back to where the walk came from: following it would never end."""
    if not folder.is_symlink():
        return False
    target, way = folder.resolve(), [top, *(above for above in folder.parents if above.is_relative_to(top))]
    return any(above.resolve().is_relative_to(target) for above in way)
