"""The JSON Schema of cluster.yaml, for editors: all forms that our reader takes. Pure."""

from __future__ import annotations

from typing import Any

from hvdcompose.config.keys import HOST_KEYS, REQUIRED, SECTIONS, SETTINGS, Key, Schema

ID = "urn:hvdcompose:cluster:1"  # 1 is the version of the file's format
_HOST_NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


def schema() -> dict[str, Any]:
    """Return the schema as JSON's own types."""
    keys = {section.path: section for section in SECTIONS}
    top = {key.name: _described(key) for key in keys[""].keys}
    named = {path: _object(section.keys, section.about) for path, section in keys.items() if path}
    image = named["image"]
    hosts = {
        "type": "object",
        "description": keys["hosts.<host>"].about,
        "propertyNames": {"pattern": _HOST_NAME},
        "additionalProperties": {"$ref": "#/$defs/host"},
        "minProperties": 1,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "cluster.yaml of hvdcompose",
        "type": "object",
        "properties": {
            **top,
            "image": {"description": image.pop("description"), "anyOf": [{"type": "string", "maxLength": 255}, image]},
            "ssh": _may_be_empty(named["ssh"]),
            "defaults": _may_be_empty(named["defaults"]),
            "hosts": hosts,
            "train": named["train"],
            "horovod": _may_be_empty(named["horovod"]),
            "runs": _may_be_empty(named["runs"]),
        },
        "patternProperties": {"^x-": {}},
        "required": ["name", "image", "hosts", "train"],
        "additionalProperties": False,
        "$defs": {"host": _object((*HOST_KEYS, *SETTINGS), keys["hosts.<host>"].about)},
    }


def _object(keys: tuple[Key, ...], about: str) -> Schema:
    required = [key.name for key in keys if key.default == REQUIRED]
    return {
        "description": about,
        "type": "object",
        "properties": {key.name: _described(key) for key in keys},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _described(key: Key) -> Schema:
    default = "" if key.default == REQUIRED else f" Default: {key.default}."
    return {"description": f"{key.about}{default}", **key.schema}


def _may_be_empty(mapping: Schema) -> Schema:
    """Return the schema of a section under which every line may be commented out."""
    return {**mapping, "type": ["object", "null"]}
