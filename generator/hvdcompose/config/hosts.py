"""The hosts and what `defaults` gives each of them; every value still knows where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hvdcompose.config.cursor import Cursor, Found, read_integer, read_word
from hvdcompose.config.model import Gpus, Host, Mount, Ulimit
from hvdcompose.config.settings import read_env, read_gpus, read_ulimits, read_volumes
from hvdcompose.config.words import (
    address_complaint,
    context_complaint,
    host_complaint,
    interface_complaint,
    size_complaint,
)

_MOST_SLOTS = 1024
_SETTINGS = ("gpus", "slots", "interface", "shm_size", "ulimits", "env", "volumes")
_HOST_KEYS = ("context", "address", "primary", *_SETTINGS)
_NOT_A_DEFAULT = "belongs under each host, not in defaults"


@dataclass(frozen=True)
class Settings:
    """What a host and `defaults` may both say; in `single`, None is a value that is given and wrong."""

    single: dict[str, Found[Any] | None] = field(default_factory=dict)
    ulimits: dict[str, Found[Ulimit]] = field(default_factory=dict)
    env: dict[str, Found[str]] = field(default_factory=dict)
    volumes: dict[str, Found[Mount]] = field(default_factory=dict)

    def under(self, own: Settings) -> Settings:
        """Return these as defaults under a host's own: maps are merged by key, anything else is replaced."""
        return Settings(
            single={**self.single, **own.single},
            ulimits={**self.ulimits, **own.ulimits},
            env={**self.env, **own.env},
            volumes={**self.volumes, **own.volumes},
        )


@dataclass(frozen=True)
class HostDraft:
    """One host as far as it could be read; None stands for what is missing or wrong."""

    name: str
    at: Cursor
    context: Found[str] | None
    address: Found[str] | None
    primary: Found[bool] | None
    settings: Settings

    @property
    def gpus(self) -> Gpus | None:
        """The host's GPUs; None where they are given and wrong."""
        if "gpus" not in self.settings.single:
            return Gpus()
        found = self.settings.single["gpus"]
        return None if found is None else found.value

    @property
    def slots(self) -> int | None:
        """The host's slots, by default its GPUs, and at least 1; None where nothing can be said."""
        if "slots" in self.settings.single:
            found = self.settings.single["slots"]
            return None if found is None else found.value
        return None if self.gpus is None else (self.gpus.reserved or 1)

    def build(self) -> Host:
        """Return the host of the model; only for a draft without mistakes."""
        single = {name: found.value for name, found in self.settings.single.items() if found is not None}
        assert self.context and self.address and self.gpus and self.slots
        return Host(
            name=self.name,
            context=self.context.value,
            address=self.address.value,
            gpus=self.gpus,
            slots=self.slots,
            slots_given="slots" in single,
            interface=single.get("interface"),
            shm_size=single.get("shm_size"),
            ulimits={name: found.value for name, found in self.settings.ulimits.items()},
            env={name: found.value for name, found in self.settings.env.items()},
            volumes=tuple(found.value for found in self.settings.volumes.values()),
        )


def read_defaults(cursor: Cursor | None) -> Settings:
    """Read `defaults`, which may be absent."""
    if cursor is None:
        return Settings()
    refused = dict.fromkeys(("context", "address", "primary"), _NOT_A_DEFAULT)
    return _settings(cursor.fields(_SETTINGS, refused))


def read_hosts(cursor: Cursor, defaults: Settings) -> list[HostDraft]:
    """Read all hosts, in the order of the file."""
    entries = cursor.entries("a mapping: host name to its settings")
    if not entries:
        if cursor.is_mapping or cursor.is_empty:
            cursor.key_error("at least one host is needed")
        return []
    return [_host(name, entry, defaults) for name, entry in entries.items()]


def _host(name: str, cursor: Cursor, defaults: Settings) -> HostDraft:
    complaint = host_complaint(name)
    if complaint:
        cursor.key_error(complaint)
    fields = cursor.fields(_HOST_KEYS)
    if "address" not in fields and (cursor.is_mapping or cursor.is_empty):
        cursor.missing("address")
    return HostDraft(
        name=name,
        at=cursor,
        context=read_word(fields["context"], context_complaint) if "context" in fields else Found(name, cursor),
        address=read_word(fields["address"], address_complaint) if "address" in fields else None,
        primary=_flag(fields["primary"]) if "primary" in fields else None,
        settings=defaults.under(_settings(fields)),
    )


def _settings(fields: dict[str, Cursor]) -> Settings:
    readers: dict[str, Callable[[Cursor], Found[Any] | None]] = {
        "gpus": read_gpus,
        "slots": lambda cursor: read_integer(cursor, 1, _MOST_SLOTS),
        "interface": lambda cursor: read_word(cursor, interface_complaint),
        "shm_size": lambda cursor: read_word(cursor, size_complaint, numbers=True),
    }
    return Settings(
        single={name: read(fields[name]) for name, read in readers.items() if name in fields},
        ulimits=read_ulimits(fields["ulimits"]) if "ulimits" in fields else {},
        env=read_env(fields["env"]) if "env" in fields else {},
        volumes=read_volumes(fields["volumes"]) if "volumes" in fields else {},
    )


def _flag(cursor: Cursor) -> Found[bool] | None:
    flag = cursor.flag()
    return None if flag is None else Found(flag, cursor)
