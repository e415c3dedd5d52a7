"""A value of the document on its way to the model: typed reading, with one sentence per mistake."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hvdcompose.config.document import Broken, Listing, Mapping, Mark, Node, Problems, Scalar
from hvdcompose.config.scalars import is_decimal, reading, shown

T = TypeVar("T")
_BOOLEANS = {"true": True, "false": False}
_LONGEST_NUMBER = 18


@dataclass(frozen=True)
class Cursor:
    """One value with its dotted path and the place of its key.

    The reading methods return the value, or None after noting in `problems` why there is none.
    """

    node: Node
    path: str
    key: Mark
    problems: Problems

    def error(self, message: str) -> None:
        """Note a mistake in the value."""
        self.problems.add(self.node.mark, self.path, message)

    def key_error(self, message: str) -> None:
        """Note a mistake in the key, or one of something that should stand under it."""
        self.problems.add(self.key, self.path, message)

    def missing(self, name: str, message: str = "is missing") -> None:
        """Note that the key `name` should stand under this one."""
        self.problems.add(self.key, self._join(name), message)

    def unexpected(self, expected: str) -> None:
        """Note that the value is not what is expected."""
        if self.is_empty:
            self.error(f"has no value; it must be {expected}")
        elif not isinstance(self.node, Broken):
            self.error(f"must be {expected}, not {self.shown}")

    @property
    def shown(self) -> str:
        """The value as a message names it."""
        if isinstance(self.node, Scalar):
            text = shown(self.node.text)
            return text if self.node.plain else f'"{text}"'
        return "a list" if isinstance(self.node, Listing) else "a mapping"

    @property
    def is_empty(self) -> bool:
        """True where nothing stands after the key."""
        return isinstance(self.node, Scalar) and self.node.plain and not self.node.text

    @property
    def is_mapping(self) -> bool:
        """True for a mapping."""
        return isinstance(self.node, Mapping)

    @property
    def is_list(self) -> bool:
        """True for a list."""
        return isinstance(self.node, Listing)

    @property
    def is_text(self) -> bool:
        """True for one value that YAML takes for text."""
        return isinstance(self.node, Scalar) and not (self.node.plain and reading(self.node.text))

    @property
    def is_number(self) -> bool:
        """True for a whole number in plain digits."""
        node = self.node
        return isinstance(node, Scalar) and node.plain and is_decimal(node.text) and "." not in node.text

    def fields(self, known: Collection[str], refused: dict[str, str] | None = None) -> dict[str, Cursor]:
        """Return the values in a mapping with known keys; `refused` tells why some others are no typo.

        An empty value counts as an empty mapping, so that every line under a key can be commented out.
        """
        found: dict[str, Cursor] = {}
        for name, _, value in self._children("a mapping with " + _listed(known)):
            if name in known:
                found[name] = value
            elif name in (refused or {}):
                value.key_error((refused or {})[name])
            elif not name.startswith("x-") or self.path:
                value.key_error(f"unknown key; {_suggestion(name, known)}")
        return found

    def entries(self, expected: str) -> dict[str, Cursor]:
        """Return the values of a mapping whose keys are free; `expected` describes it in a message."""
        found: dict[str, Cursor] = {}
        for name, is_plain, value in self._children(expected):
            taken_for = reading(name) if is_plain and not is_decimal(name) else None
            if taken_for:
                value.key_error(_quote(f"the key {shown(name)}", taken_for, name))
            found[name] = value
        return found

    def items(self, expected: str) -> list[Cursor] | None:
        """Return the values of a list."""
        if isinstance(self.node, Listing):
            return [
                replace(self, node=item, path=f"{self.path}[{number}]", key=item.mark)
                for number, item in enumerate(self.node.items)
            ]
        self.unexpected(expected)
        return None

    def text(self, expected: str = "text", *, numbers: bool = False) -> str | None:
        """Return text; with `numbers`, a plain decimal too, exactly as it is written."""
        if not isinstance(self.node, Scalar) or self.is_empty:
            self.unexpected(expected)
            return None
        text = self.node.text
        if self.node.plain and not (numbers and is_decimal(text)):
            taken_for = reading(text)
            if taken_for:
                self.error(_quote(shown(text), taken_for, text))
                return None
        return text

    def choice(self, options: Collection[str]) -> str | None:
        """Return one of a few words."""
        text = self.text(f"one of {_listed(options)}")
        if text is None or text in options:
            return text
        self.error(f"must be one of {_listed(options)}, not {self.shown}")
        return None

    def flag(self) -> bool | None:
        """Return true or false, in no other spelling."""
        if isinstance(self.node, Scalar) and self.node.plain and self.node.text in _BOOLEANS:
            return _BOOLEANS[self.node.text]
        self.unexpected("true or false")
        return None

    def integer(self, low: int, high: int, expected: str = "") -> int | None:
        """Return a whole number within bounds."""
        number = self._number(expected or f"a whole number from {low} to {high}", low, high, whole=True)
        return None if number is None else int(number)

    def decimal(self, low: int, high: int) -> float | None:
        """Return a number within bounds."""
        number = self._number(f"a number from {low} to {high}", low, high, whole=False)
        return None if number is None else float(number)

    def _number(self, expected: str, low: int, high: int, *, whole: bool) -> str | None:
        node = self.node
        if not isinstance(node, Scalar) or not node.plain or self.is_empty:
            self.unexpected(expected)
            return None
        taken_for = reading(node.text)
        if taken_for and taken_for.startswith("the number") and not is_decimal(node.text):
            self.error(f"{shown(node.text)} is {taken_for} to YAML; write it in plain digits")
            return None
        fits = is_decimal(node.text) and len(node.text) <= _LONGEST_NUMBER and not (whole and "." in node.text)
        if fits and low <= float(node.text) <= high:
            return node.text
        self.unexpected(expected)
        return None

    def _children(self, expected: str) -> Iterator[tuple[str, bool, Cursor]]:
        if isinstance(self.node, Mapping):
            for name, entry in self.node.entries.items():
                yield name, entry.plain, replace(self, node=entry.value, path=self._join(name), key=entry.mark)
        elif not self.is_empty:
            self.unexpected(expected)

    def _join(self, name: str) -> str:
        return f"{self.path}.{shown(name)}" if self.path else shown(name)


@dataclass(frozen=True)
class Found(Generic[T]):
    """A value that passed its own checks, and where it stands, for the rules that compare values."""

    value: T
    at: Cursor


def read_word(cursor: Cursor, complaint: Callable[[str], str | None], *, numbers: bool = False) -> Found[str] | None:
    """Read text about which `complaint` has nothing to say."""
    text = cursor.text(numbers=numbers)
    if text is None:
        return None
    message = complaint(text)
    if message is None:
        return Found(text, cursor)
    cursor.error(message)
    return None


def read_integer(cursor: Cursor, low: int, high: int) -> Found[int] | None:
    """Read a whole number within bounds."""
    number = cursor.integer(low, high)
    return None if number is None else Found(number, cursor)


def root_cursor(node: Node, problems: Problems) -> Cursor:
    """Return the cursor of the whole document."""
    return Cursor(node, "", node.mark, problems)


def _quote(what: str, taken_for: str, text: str) -> str:
    return f'{what} is {taken_for} to YAML; quote it: "{shown(text)}"'


def _listed(words: Collection[str]) -> str:
    return ", ".join(words)


def _suggestion(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else f"allowed: {_listed(known)}"
