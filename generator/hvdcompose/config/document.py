"""YAML text -> a tree that knows where everything stands. Knows YAML, and nothing about clusters."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hvdcompose.config.scalars import shown
from hvdcompose.errors import Problem

_MAX_DEPTH = 40
_MAX_VALUES = 100_000
_MERGE = "<<"
_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True)
class Mark:
    """A place in the file; both numbers start at 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Scalar:
    """One value as it is written; `plain` where no quotes stand around it."""

    mark: Mark
    text: str
    plain: bool


@dataclass(frozen=True)
class Listing:
    """A YAML sequence."""

    mark: Mark
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Entry:
    """One key of a mapping: where it stands, `plain` where no quotes stand around it, and its value."""

    mark: Mark
    plain: bool
    value: Node


@dataclass(frozen=True)
class Mapping:
    """A YAML mapping with its merge keys worked in."""

    mark: Mark
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Broken:
    """A value whose mistake is already noted; nothing more can be said about it."""

    mark: Mark


Node = Scalar | Listing | Mapping | Broken


class Problems:
    """The mistakes found so far; one that is met again by another way (an anchor, a default) counts once."""

    def __init__(self) -> None:
        self._found: dict[tuple[Mark, str, str], Problem] = {}

    def add(self, mark: Mark, path: str, message: str) -> None:
        """Note a mistake at `mark`, in the value that the dotted `path` names."""
        key = (mark, path.rpartition(".")[2], message)
        self._found.setdefault(key, Problem(mark.line, mark.column, path, message))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found.values())

    def __bool__(self) -> bool:
        return bool(self._found)


def read_document(text: str, problems: Problems) -> Node | None:
    """Return the tree of the one document in `text`, or None where there is nothing to check further.

    Doubled keys, tags and aliases that contain themselves are noted in `problems`; in the tree they are left
    out or `Broken`.
    """
    places = _Places(text)
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        problems.add(places.at(_index(error.problem_mark)), "", _syntax(error, places))
        return None
    except yaml.reader.ReaderError as error:
        problems.add(places.at(error.position), "", f"the character U+{int(error.character):04X} is not allowed")
        return None
    except (ValueError, OverflowError):  # PyYAML on an escape above U+10FFFF
        problems.add(places.at(_index(loader.get_mark())), "", "an escape here names no character")
        return None
    if root is None or (_is_plain(root) and not root.value):
        problems.add(Mark(1, 1), "", "the file is empty; it needs at least name, image, hosts and train")
        return None
    try:
        return _Converter(places, problems, loader.tags).convert(root, "")
    except _TooLargeError:
        problems.add(Mark(1, 1), "", f"aliases make this file larger than {_MAX_VALUES} values")
        return None


class _TooLargeError(Exception):
    """The document grows beyond bounds once its aliases are worked in."""


class _Places:
    """Turns PyYAML's index of a character into the line and column of an editor, always inside the file."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
        self._last = len(text.rstrip("\r\n"))

    def at(self, index: int) -> Mark:
        index = min(index, self._last)
        line = bisect.bisect_right(self._starts, index)
        return Mark(line, index - self._starts[line - 1] + 1)


class _Loader(yaml.SafeLoader):
    """Composes nodes, remembers explicit tags and stops before the nesting exhausts the stack."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.tags: dict[int, str] = {}  # by id() of the node
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if self._depth == _MAX_DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"nested deeper than {_MAX_DEPTH} levels", event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.tags[id(node)] = tag
        return node


@dataclass
class _Converter:
    """PyYAML's node graph -> our tree. An aliased node is converted once and then shared."""

    places: _Places
    problems: Problems
    tags: dict[int, str]
    _done: dict[int, tuple[Node, int]] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    def convert(self, node: yaml.Node, path: str) -> Node:
        return self._convert(node, path)[0]

    def _convert(self, node: yaml.Node, path: str) -> tuple[Node, int]:
        """Return the tree and the number of values in it, aliases counted wherever they are used."""
        if id(node) in self._done:
            return self._done[id(node)]
        mark = self._mark(node)
        if id(node) in self.tags:
            self.problems.add(mark, path, f"YAML tags are not used here; leave out {_tag(self.tags[id(node)])}")
            return Broken(mark), 1
        if id(node) in self._open:
            self.problems.add(mark, path, "an alias in it leads back to itself")
            return Broken(mark), 1
        self._open.add(id(node))
        tree, size = self._build(node, mark, path)
        self._open.remove(id(node))
        if size > _MAX_VALUES:
            raise _TooLargeError
        self._done[id(node)] = tree, size
        return tree, size

    def _build(self, node: yaml.Node, mark: Mark, path: str) -> tuple[Node, int]:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, mark, path)
        if isinstance(node, yaml.SequenceNode):
            parts = [self._convert(item, f"{path}[{number}]") for number, item in enumerate(node.value)]
            return Listing(mark, tuple(part for part, _ in parts)), 1 + sum(size for _, size in parts)
        return self._scalar(node, mark, path), 1

    def _scalar(self, node: yaml.Node, mark: Mark, path: str) -> Scalar | Broken:
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in node.value):
            self.problems.add(mark, path, "holds a NUL or half a character")
            return Broken(mark)
        return Scalar(mark, node.value, _is_plain(node))

    def _mapping(self, node: yaml.MappingNode, mark: Mark, path: str) -> tuple[Mapping, int]:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        size = 1
        for key_node, value_node in self._without_doubles(node, path):
            key: str = key_node.value
            here = f"{path}.{shown(key)}" if path else shown(key)
            value, below = self._convert(value_node, here)
            size += 1 + below
            if _is_plain(key_node) and key == _MERGE:
                merged = self._merged(value, here)
            else:
                entries[key] = Entry(self._mark(key_node), _is_plain(key_node), value)
        return Mapping(mark, {**merged, **entries}), size + len(merged)

    def _without_doubles(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """Yield the keys and values, each key as a scalar and once; note those that are not."""
        lines: dict[str, int] = {}
        for key, value in node.value:
            mark = self._mark(key)
            if not isinstance(key, yaml.ScalarNode) or id(key) in self.tags:
                self.problems.add(mark, path, "a key must be a word")
            elif isinstance(self._scalar(key, mark, path), Broken):
                continue
            elif not key.value and _is_plain(key):
                self.problems.add(mark, path, "a key is missing before the colon")
            elif key.value in lines:
                here = f"{path}.{shown(key.value)}" if path else shown(key.value)
                self.problems.add(mark, here, f"doubled key, first on line {lines[key.value]}")
            else:
                lines[key.value] = mark.line
                yield key, value

    def _merged(self, value: Node, path: str) -> dict[str, Entry]:
        """Return what `<<` brings in; of several mappings the earlier one wins, as YAML has it."""
        sources = value.items if isinstance(value, Listing) else (value,)
        merged: dict[str, Entry] = {}
        for source in sources:
            if isinstance(source, Broken):
                continue
            if not isinstance(source, Mapping):
                self.problems.add(source.mark, path, "only a mapping can be merged, or a list of mappings")
                continue
            merged = {**source.entries, **merged}
        return merged

    def _mark(self, node: yaml.Node) -> Mark:
        return self.places.at(_index(node.start_mark))


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _tag(tag: str) -> str:
    return shown(tag.replace("tag:yaml.org,2002:", "!!"))


def _index(mark: Any) -> int:
    return int(mark.index) if mark is not None else 0


def _syntax(error: yaml.MarkedYAMLError, places: _Places) -> str:
    """Return PyYAML's complaint as one sentence, with the line on which the broken part began."""
    problem = str(error.problem)
    if error.context == "expected a single document in the stream":
        return "a second document begins here; a file describes one cluster"
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    if error.context_mark is None:
        return f"not valid YAML: {problem}"
    began = places.at(_index(error.context_mark)).line
    return f"not valid YAML: {problem} ({error.context}, line {began})"
