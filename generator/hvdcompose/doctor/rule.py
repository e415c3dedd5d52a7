"""What a rule is: a small pure function facts -> what it finds, with its place on the screen and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from hvdcompose.doctor.facts import Facts

Level = Literal["error", "note"]
Needs = Literal[
    "client", "host", "engine", "image", "container", "probe", "gpus", "worker gpus", "ports", "login"
]  # fmt: skip
CLIENT = ""  # in the place of a host: this machine


@dataclass(frozen=True)
class At:
    """What a rule found, at which host; `fields` fill its remedy, `remedy` replaces it (that of an engine's error)."""

    host: str
    message: str
    fields: Mapping[str, object] = field(default_factory=dict)
    found: str = ""
    wanted: str = ""
    peers: tuple[str, ...] = ()  # the hosts at the other end, for what lies between hosts
    remedy: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something that would stop the run (error), or that a person may want to know (note), and what to do."""

    level: Level
    check: str
    host: str
    message: str
    remedy: str
    found: str = ""
    wanted: str = ""
    peers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.host}: {self.message}" if self.host else self.message

    def to_json(self) -> dict[str, object]:
        """Return it for `--json`."""
        return {
            "level": self.level, "check": self.check, "host": self.host, "peers": list(self.peers),
            "message": self.message, "found": self.found, "wanted": self.wanted, "remedy": self.remedy,
        }  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One rule. `cases` are the field reports it answers, in words for the manual; `needs` is what it looks at."""

    check: str
    level: Level
    needs: Needs
    remedy: str
    find: Callable[[Facts], Iterator[At]]

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.find.__name__

    @property
    def text(self) -> str:
        """What it says of itself: the docstring of its function, unfolded."""
        return " ".join((self.find.__doc__ or "").split())

    def finding(self, at: At) -> Finding:
        """Return what it found, with its remedy."""
        remedy = self.remedy.format(host=at.host, **at.fields) if at.remedy is None else at.remedy
        return Finding(self.level, self.check, at.host, at.message, remedy, at.found, at.wanted, at.peers)

    def __call__(self, facts: Facts) -> list[Finding]:
        """Return what it finds."""
        return [self.finding(at) for at in self.find(facts)]


def rule(
    check: str, *, needs: Needs, remedy: str, level: Level = "error"
) -> Callable[[Callable[[Facts], Iterator[At]]], Rule]:
    """Make a rule of a function. `remedy` may hold {host} and the fields of what is found."""
    return lambda find: Rule(check, level, needs, remedy, find)
