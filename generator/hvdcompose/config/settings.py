"""What hosts, defaults and train share: GPUs, limits, variables and mounts, in all their short forms."""

from __future__ import annotations

from collections.abc import Callable

from hvdcompose.config.cursor import Cursor, Found, read_word
from hvdcompose.config.model import Gpus, Mount, Secret, Ulimit
from hvdcompose.config.words import (
    cdi_complaint,
    clean_path,
    client_file_complaint,
    env_name_complaint,
    env_variable_complaint,
    gpu_id_complaint,
    secret_complaint,
    source_complaint,
    target_complaint,
)

_MOST_GPUS = 1024
_GPU_FORMS = "all, none, a number of GPUs, a list of ids or {driver: cdi, ids: [...]}"
_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice"),
    *("nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack"),
)
_HIGHEST_LIMIT = 10**18 - 1
_LIMIT = "a whole number, or -1 for no limit"
_SECRET_FORMS = "{env: VARIABLE} or {file: path}, on this machine"


def read_gpus(cursor: Cursor) -> Found[Gpus] | None:
    """Read `all`, `none`, a count, a list of ids, or a mapping for CDI."""
    if cursor.is_list:
        ids = _ids(cursor, gpu_id_complaint)
        return Found(Gpus(kind="ids", ids=ids), cursor) if ids else None
    if cursor.is_mapping:
        return _cdi(cursor)
    if cursor.is_number:
        count = cursor.integer(0, _MOST_GPUS)
        gpus = Gpus(kind="count", count=count) if count else Gpus()
        return None if count is None else Found(gpus, cursor)
    word = cursor.text() if cursor.is_text else None
    if word == "all":
        return Found(Gpus(kind="all"), cursor)
    if word == "none":
        return Found(Gpus(), cursor)
    cursor.unexpected(_GPU_FORMS)
    return None


def read_ulimits(cursor: Cursor) -> dict[str, Found[Ulimit]]:
    """Read limits: one number for both, or {soft, hard}."""
    found = {name: _ulimit(entry) for name, entry in cursor.fields(_ULIMITS).items()}
    return {name: limit for name, limit in found.items() if limit is not None}


def read_env(cursor: Cursor) -> dict[str, Found[str]]:
    """Read variables; a plain number is taken as it is written."""
    found = {}
    for name, entry in cursor.entries("a mapping: name to value").items():
        complaint = env_name_complaint(name)
        if complaint:
            entry.key_error(complaint)
        value = entry.text(numbers=True)
        if value is not None:
            found[name] = Found(value, entry)
    return found


def read_secrets(cursor: Cursor) -> dict[str, Secret]:
    """Read secrets: name to where the client finds the value, never the value itself."""
    found = {}
    for name, entry in cursor.entries(f"a mapping: name to {_SECRET_FORMS}").items():
        complaint = secret_complaint(name)
        if complaint:
            entry.key_error(complaint)
        secret = _secret(entry)
        if secret is not None:
            found[name] = secret
    return found


def read_volumes(cursor: Cursor) -> dict[str, Found[Mount]]:
    """Read mounts: path in the container to what is mounted there; the keys returned are clean paths."""
    found: dict[str, Found[Mount]] = {}
    lines: dict[str, int] = {}
    for target, entry in cursor.entries("a mapping: path in the container to host path or volume").items():
        complaint = target_complaint(target)
        clean = clean_path(target)
        if complaint:
            entry.key_error(complaint)
        elif clean in lines:
            entry.key_error(f"the same path as on line {lines[clean]}")
        lines.setdefault(clean, entry.key.line)
        mount = _mount(clean, entry)
        if mount is not None and not complaint:
            found[clean] = Found(mount, entry)
    return found


def _ids(cursor: Cursor, complaint: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return the ids of a list, or none of them if one is wrong."""
    ids: list[str] = []
    items = cursor.items("a list of ids")
    if items == []:
        cursor.error("the list is empty; for no GPUs write gpus: none")
    for item in items or []:
        found = read_word(item, complaint, numbers=True)
        if found and found.value in ids:
            item.error(f"{found.value} is in the list twice")
        elif found:
            ids.append(found.value)
    return tuple(ids) if len(ids) == len(items or []) else ()


def _cdi(cursor: Cursor) -> Found[Gpus] | None:
    reason = "a count does not go with driver cdi; name the devices in ids"
    fields = cursor.fields(("driver", "ids"), refused={"count": reason})
    if "driver" not in fields:
        cursor.missing("driver", "is missing; a mapping is for {driver: cdi, ids: [...]}")
    elif fields["driver"].text() not in (None, "cdi"):
        fields["driver"].error(f"must be cdi, not {fields['driver'].shown}; other drivers need no mapping")
    if "ids" not in fields:
        cursor.missing("ids")
        return None
    ids = _ids(fields["ids"], cdi_complaint)
    return Found(Gpus(kind="cdi", ids=ids), cursor) if ids else None


def _ulimit(cursor: Cursor) -> Found[Ulimit] | None:
    if not cursor.is_mapping:
        both = cursor.integer(-1, _HIGHEST_LIMIT, _LIMIT)
        return None if both is None else Found(Ulimit(soft=both, hard=both), cursor)
    fields = cursor.fields(("soft", "hard"))
    for name in ("soft", "hard"):
        if name not in fields:
            cursor.missing(name)
    soft, hard = (
        fields[name].integer(-1, _HIGHEST_LIMIT, _LIMIT) if name in fields else None for name in ("soft", "hard")
    )
    if soft is None or hard is None:
        return None
    if hard != -1 and (soft == -1 or soft > hard):
        fields["soft"].error(f"the soft limit {soft} is above the hard limit {hard}")
        return None
    return Found(Ulimit(soft=soft, hard=hard), cursor)


def _secret(cursor: Cursor) -> Secret | None:
    if not cursor.is_mapping:
        # the value is not shown: it may be the secret itself
        cursor.error(f"must be {_SECRET_FORMS}; the value itself has no place in this file")
        return None
    fields = cursor.fields(("env", "file"))
    if not fields:
        cursor.missing("env", f"is missing; a secret is {_SECRET_FORMS}")
        return None
    if len(fields) > 1:
        cursor.error(f"must be {_SECRET_FORMS}, not both")
        return None
    if "env" in fields:
        variable = read_word(fields["env"], env_variable_complaint)
        return Secret(env=variable.value) if variable else None
    file = read_word(fields["file"], client_file_complaint)
    return Secret(file=file.value) if file else None


def _mount(target: str, cursor: Cursor) -> Mount | None:
    fields = cursor.fields(("source", "read_only")) if cursor.is_mapping else {"source": cursor}
    if "source" not in fields:
        cursor.missing("source")
        return None
    source = read_word(fields["source"], source_complaint)
    read_only = fields["read_only"].flag() if "read_only" in fields else False
    if source is None or read_only is None:
        return None
    return Mount(target=target, source=source.value, read_only=read_only)
