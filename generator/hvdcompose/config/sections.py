"""The other sections of a cluster.yaml: image, ssh, train, horovod, runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hvdcompose.config.cursor import Cursor, Found, read_integer, read_word
from hvdcompose.config.horovodrun import argument_complaint
from hvdcompose.config.model import Image, Mount, Secret
from hvdcompose.config.settings import read_env, read_secrets, read_volumes
from hvdcompose.config.words import (
    build_argument_complaint,
    file_complaint,
    folder_complaint,
    image_complaint,
    output_complaint,
    ssh_volume_complaint,
)

IsFolder = Callable[[str], bool]

_TRAIN_KEYS = ("command", "np", "code", "prepare", "volumes", "output", "env", "secrets")
_LATER = {"elastic": "not accepted yet by this version of hvdcompose"}
_HOROVOD_KEYS = (
    *("controller", "fusion_threshold_mb", "cycle_time_ms", "timeline"),
    *("start_timeout", "stall_shutdown", "args"),
)
_SHELL_WORDS = ("&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>&1")
_MOST_PROCESSES = 1_048_576
_HIGHEST_PORT = 65_535
_SYSTEM_SSH_PORT = 22
_DAY = 86_400
_MOST_MEGABYTES = 65_536
_LONGEST_CYCLE = 60_000
_MOST_RUNS = 10_000


@dataclass(frozen=True)
class TrainDraft:
    """The run as far as it could be read; None stands for what is absent or wrong."""

    command: tuple[str, ...] | None = None
    np: Found[int] | None = None
    code: str | None = None
    prepare: tuple[str, ...] | None = None
    output: Found[str] | None = None
    env: dict[str, Found[str]] = field(default_factory=dict)
    volumes: dict[str, Found[Mount]] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)


def read_image(cursor: Cursor, is_folder: IsFolder) -> Image | None:
    """Read an image's name, or a mapping that says where it comes from."""
    keys = ("name", "build", "args", "pull")
    fields = cursor.fields(keys) if cursor.is_mapping else {"name": cursor}
    if "name" not in fields:
        cursor.missing("name")
    name = read_word(fields["name"], image_complaint) if "name" in fields else None
    values: dict[str, Any] = {}
    if "build" in fields:
        values["build"] = _folder(fields["build"], is_folder, _no_complaint)
    if "args" in fields:
        values["args"] = _build_arguments(fields["args"])
        if "build" not in fields:
            fields["args"].key_error("build arguments need build, the folder of the Dockerfile")
    if "pull" in fields:
        values["pull"] = fields["pull"].choice(("missing", "always", "never"))
    return None if name is None or None in values.values() else Image(name=name.value, **values)


def read_ssh(cursor: Cursor | None) -> tuple[dict[str, Any], Found[str] | None]:
    """Read what `ssh` says, as arguments for the model, and its volume with its place; both may be absent."""
    fields = cursor.fields(("port", "volume")) if cursor else {}
    given: dict[str, Any] = {}
    volume = None
    if "port" in fields:
        given["port"] = fields["port"].integer(1, _HIGHEST_PORT)
        if given["port"] == _SYSTEM_SSH_PORT:
            fields["port"].error("22 is the sshd of the machine itself; take another port, such as 12345")
    if "volume" in fields:
        volume = read_word(fields["volume"], ssh_volume_complaint)
        given["volume"] = volume.value if volume else None
    return given, volume


def read_train(cursor: Cursor, is_folder: IsFolder) -> TrainDraft:
    """Read the run: its command and what that needs."""
    fields = cursor.fields(_TRAIN_KEYS, refused=_LATER)
    if "command" not in fields and (cursor.is_mapping or cursor.is_empty):
        cursor.missing("command")
    return TrainDraft(
        command=_command(fields["command"]) if "command" in fields else None,
        np=read_integer(fields["np"], 1, _MOST_PROCESSES) if "np" in fields else None,
        code=_folder(fields["code"], is_folder, folder_complaint) if "code" in fields else None,
        prepare=_command(fields["prepare"]) if "prepare" in fields else None,
        output=read_word(fields["output"], output_complaint) if "output" in fields else None,
        env=read_env(fields["env"]) if "env" in fields else {},
        volumes=read_volumes(fields["volumes"]) if "volumes" in fields else {},
        secrets=read_secrets(fields["secrets"]) if "secrets" in fields else {},
    )


def read_runs(cursor: Cursor | None) -> dict[str, Any]:
    """Read what is kept of past runs, as arguments for the model; the section may be absent."""
    fields = cursor.fields(("keep",)) if cursor else {}
    return {name: field.integer(1, _MOST_RUNS) for name, field in fields.items()}


def read_horovod(cursor: Cursor | None) -> dict[str, Any]:
    """Read horovodrun's settings, as arguments for the model; the section may be absent."""
    fields = cursor.fields(_HOROVOD_KEYS) if cursor else {}
    readers: dict[str, Callable[[Cursor], Any]] = {
        "controller": lambda field: field.choice(("auto", "gloo", "mpi")),
        "fusion_threshold_mb": lambda field: field.integer(0, _MOST_MEGABYTES),
        "cycle_time_ms": lambda field: field.decimal(0, _LONGEST_CYCLE),
        "timeline": _file,
        "start_timeout": lambda field: field.integer(1, _DAY),
        "stall_shutdown": lambda field: field.integer(0, _DAY),
        "args": _arguments,
    }
    return {name: readers[name](field) for name, field in fields.items()}


def _command(cursor: Cursor) -> tuple[str, ...] | None:
    words = _words(cursor, "a list of words") if cursor.is_list else _split(cursor)
    if words is None:
        return None
    if not words or not words[0].strip():
        cursor.error("names no program to run")
        return None
    return words


def _split(cursor: Cursor) -> tuple[str, ...] | None:
    """Split a string as a shell would, and expand nothing; words that only a shell knows are mistakes."""
    text = cursor.text("a string or a list of words")
    if text is None:
        return None
    try:
        words = shlex.split(text)
    except ValueError:
        cursor.error("a quote is not closed, or a backslash ends the string")
        return None
    for word in words:
        if word in _SHELL_WORDS:
            cursor.error(f'"{word}" is for a shell: write ["sh", "-c", "..."]; to pass it on, write a list of words')
            return None
    return tuple(words)


def _words(cursor: Cursor, expected: str) -> tuple[str, ...] | None:
    items = cursor.items(expected)
    words = [item.text(numbers=True) for item in items or []]
    return None if items is None or None in words else tuple(word for word in words if word is not None)


def _arguments(cursor: Cursor) -> tuple[str, ...] | None:
    items = cursor.items("a list of words for horovodrun") or []
    found = [read_word(item, argument_complaint, numbers=True) for item in items]
    return tuple(word.value for word in found if word is not None)


def _build_arguments(cursor: Cursor) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, entry in cursor.entries("a mapping: name to value").items():
        complaint = build_argument_complaint(name)
        if complaint:
            entry.key_error(complaint)
        values[name] = entry.text(numbers=True) or ""
    return values


def _folder(cursor: Cursor, is_folder: IsFolder, complaint: Callable[[str], str | None]) -> str | None:
    found = read_word(cursor, lambda folder: complaint(folder) if folder else "must name a folder")
    if found is None:
        return None
    if not is_folder(found.value):
        cursor.error(f"there is no folder {cursor.shown}; it is looked for from the folder of this file")
        return None
    return found.value


def _file(cursor: Cursor) -> str | None:
    found = read_word(cursor, file_complaint)
    return found.value if found else None


def _no_complaint(_: str) -> None:
    return None
