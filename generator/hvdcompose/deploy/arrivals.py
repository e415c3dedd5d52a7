"""What of a run's output may be written where on the client. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable

from hvdcompose.hosts.output import Remote


def refusal(entry: Remote) -> str:
    """Return why an entry is not brought home, "" where it is: nothing is ever written outside of the folder."""
    if entry.fault or entry.odd:
        return entry.fault or entry.odd
    if not _stays(entry.path):
        return "its name leads out of the folder"
    if entry.link is not None and not _link_stays(entry.path, entry.link):
        return f"a link that leads out of the folder, to {entry.link}"
    return ""


def _stays(path: str) -> bool:
    names = path.split("/")
    return bool(path) and not set(names) & {"", ".", ".."} and "\0" not in path


def _link_stays(path: str, target: str) -> bool:
    """Tell whether a link leads to what is below the folder, whatever links there are on its way."""
    names = target.split("/")
    ups = 0
    while ups < len(names) and names[ups] == "..":
        ups += 1
    plain = not set(names[ups:]) & {"", ".", ".."} and "\0" not in target
    return plain and not posixpath.normpath(f"{posixpath.dirname(path)}/{target}".lstrip("/")).startswith("..")


def part_of(path: str, taken: Collection[str]) -> str:
    """Return the name under which a file arrives: FILE.part, or another where the run wrote one of that name too."""
    part = f"{path}.part"
    while part in taken:
        part += ".part"
    return part


def newest(runs: Iterable[str]) -> list[str]:
    """Return runs with the newest first, by their names, which begin with a time."""
    return sorted(runs, key=lambda name: name.removeprefix("by-hand-"), reverse=True)
