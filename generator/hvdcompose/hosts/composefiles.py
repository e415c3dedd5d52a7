"""The rendered files on the client: compose/<host>/compose.yaml, and .env beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdcompose.errors import UsageError
from hvdcompose.stack.render import header_of, render_command

COMPOSE, ENV, COMMAND = "compose.yaml", ".env", ".command.yaml"


@dataclass(frozen=True)
class Rendered:
    """A file of ours found on disk: whose it is."""

    host: str
    context: str


def compose_file(root: Path, host: str) -> Path:
    """Return the path of a host's Compose file below the compose folder."""
    return root / host / COMPOSE


def read_text(path: Path) -> str | None:
    """Return a file's text, or None when it is not there."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole or not at all; an unchanged one is not touched."""
    try:
        if path.exists() and path.read_bytes() == text.encode():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_text(text, encoding="utf-8")
            part.chmod(mode)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def foreign(root: Path, cluster: str, hosts: Mapping[str, str]) -> list[str]:
    """Return a sentence for each file that would be overwritten and is not this cluster's."""
    found = []
    for host in hosts:
        path = compose_file(root, host)
        text = read_text(path)
        header = header_of(text) if text is not None else None
        if text is not None and (header is None or header["cluster"] != cluster):
            whose = f"cluster {header['cluster']}" if header else "somebody else"
            found.append(f"{path} belongs to {whose}: it is not overwritten")
    return found


def write_all(root: Path, cluster: str, texts: Mapping[str, str]) -> None:
    """Write every host's Compose file. Raises UsageError before the first when one is not ours."""
    others = foreign(root, cluster, texts)
    if others:
        raise UsageError("\n".join(others), hint="give each cluster.yaml a folder of its own, or move that file away")
    for host, text in texts.items():
        write_text(compose_file(root, host), text)


def stale(root: Path, texts: Mapping[str, str]) -> list[str]:
    """Return the hosts whose file is missing or not what would be rendered, in order."""
    return [host for host, text in texts.items() if read_text(compose_file(root, host)) != text]


def rendered(root: Path, cluster: str) -> list[Rendered]:
    """Return the files of a cluster that are on disk, sorted by host."""
    found = []
    for path in sorted(root.glob(f"*/{COMPOSE}")):
        header = header_of(read_text(path) or "")
        if header and header["cluster"] == cluster:
            found.append(Rendered(path.parent.name, header["context"]))
    return found


def remove_host(root: Path, host: str) -> None:
    """Delete a host's folder: only what we wrote into it."""
    folder = root / host
    for name in (COMPOSE, ENV, COMMAND):
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        shutil.rmtree(folder)


def write_env(root: Path, host: str, variables: Mapping[str, str]) -> None:
    """Write a host's .env, which Compose reads beside the file."""
    lines = "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))
    write_text(root / host / ENV, f"# written by hvdcompose apply: what changes without cluster.yaml\n{lines}")


def write_command(root: Path, host: str, words: Sequence[str]) -> None:
    """Write the file that lays another launcher command over a host's Compose file, for one run."""
    write_text(root / host / COMMAND, render_command(words))
