"""Tar archives, as `docker cp` takes and gives them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True)
class Entry:
    """A file (or, with content None, a folder) at an absolute path, owned by root."""

    path: str
    content: bytes | None
    mode: int


def pack(entries: Iterable[Entry]) -> bytes:
    """Return a tar of the entries, the same bytes for the same entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path.lstrip("/"))
            info.mode, info.mtime = entry.mode, 1
            if entry.content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
    return buffer.getvalue()


def files_of(tar: bytes) -> dict[str, bytes]:
    """Return {path: content} of the regular files in a tar."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            reader = archive.extractfile(member) if member.isfile() else None
            if reader is not None:
                found[member.name] = reader.read()
    return found


def file_of(tar: bytes) -> bytes | None:
    """Return the content of the first regular file in a tar, or None."""
    return next(iter(files_of(tar).values()), None)


def lines_of(file: IO[bytes], ending: str) -> dict[str, Iterator[str]]:
    """Return {name without folders: lines} of the regular files in a tar whose names end so, read one by one."""
    file.seek(0)
    archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - the readers need it
    found: dict[str, Iterator[str]] = {}
    for member in archive:
        reader = archive.extractfile(member) if member.isfile() and member.name.endswith(ending) else None
        if reader is not None:
            found[member.name.rpartition("/")[2]] = (line.decode(errors="replace").rstrip("\r\n") for line in reader)
    return found
