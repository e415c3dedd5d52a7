"""What a plain YAML scalar is to a YAML reader, and where that differs from what a person sees."""

from __future__ import annotations

import math
import re

from yaml import ScalarNode
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
# Numbers to YAML 1.2 readers, text to PyYAML; which reader meets the file is not ours to choose.
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+")
_TAG = "tag:yaml.org,2002:"
_LONGEST = 60

_resolver = Resolver()


def is_decimal(text: str) -> bool:
    """True for a number written the way every reader and every person takes it: 4, -1, 0.50."""
    return _DECIMAL.fullmatch(text) is not None


def reading(text: str) -> str | None:
    """Say what a plain scalar is to YAML ("the number 1342"), or None where it is text."""
    kind = _kind(text)
    if kind == "bool":
        return f"the boolean {str(SafeConstructor.bool_values[text.lower()]).lower()}"
    if kind in ("int", "float"):
        return _number(text, kind)
    return {"null": "null", "timestamp": "a date", "merge": "a merge key"}.get(kind)


def shown(text: str) -> str:
    """Return the text as a message shows it: on one line, and not longer than a line."""
    visible = text if text.isprintable() else repr(text)[1:-1]
    return visible if len(visible) <= _LONGEST else visible[: _LONGEST - 3] + "..."


def _kind(text: str) -> str:
    tag: str = _resolver.resolve(ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    kind = tag.removeprefix(_TAG)
    if kind == "str" and _NUMBER_ELSEWHERE.fullmatch(text):
        return "float"
    return kind


def _number(text: str, kind: str) -> str:
    value = _value(text, kind)
    if value is None or str(value) == text:
        return "a number"
    if math.isinf(value):
        return "infinity"
    return "not a number" if math.isnan(value) else f"the number {value}"


def _value(text: str, kind: str) -> int | float | None:
    """Return the number that YAML makes of the text; None where it is too long to show or none."""
    if len(text) > _LONGEST:
        return None
    try:
        if text.startswith("0o"):
            return int(text, 8)
        node = ScalarNode(_TAG + kind, text)
        build = SafeConstructor()
        number = build.construct_yaml_int(node) if kind == "int" else build.construct_yaml_float(node)
    except (ValueError, OverflowError):  # PyYAML takes 0x_ for a number and then cannot read it
        return None
    return int(number) if float(number).is_integer() else float(number)
