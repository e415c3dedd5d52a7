"""What the primary keeps of past runs: their records and logs, read through its launcher's container or a helper."""

from __future__ import annotations

from dataclasses import dataclass

from hvdcompose.deploy.look import refuse_foreign
from hvdcompose.deploy.target import Target
from hvdcompose.deploy.watch import Stamped, split_stamp
from hvdcompose.errors import HostError
from hvdcompose.hosts.delivery import Unread, run_files
from hvdcompose.hosts.observed import Container, observe


@dataclass(frozen=True)
class Kept:
    """The records as they are written, {run: text}, and the run whose launcher lives: "" for one started by hand."""

    texts: dict[str, str]
    live: str | None


def records_of(target: Target) -> Kept:
    """Return the records of all runs that the primary keeps. Raises HostError."""
    launcher = _launcher(target)
    files = _files(target, launcher, "records")
    texts = {
        name.rpartition("/")[2].removesuffix(".json"): content.decode(errors="replace")
        for name, content in files.items()
        if name.endswith(".json")
    }
    return Kept(texts, launcher.run if launcher is not None and launcher.live else None)


def logs_of(target: Target, run: str) -> dict[str, list[Stamped]]:
    """Return {file: lines in the order of time} of what was logged in a run. Raises HostError."""
    files = _files(target, _launcher(target), run)
    return {
        name.rpartition("/")[2]: sorted(
            (split_stamp(line) for line in content.decode(errors="replace").splitlines()), key=lambda line: line[0]
        )
        for name, content in sorted(files.items())
        if name.endswith(".log")
    }


def _launcher(target: Target) -> Container | None:
    primary = target.primary.host
    seen = observe(target.engines[primary], target.cluster.name)
    refuse_foreign(target, {primary: seen})
    return seen.service("launcher")


def _files(target: Target, launcher: Container | None, path: str) -> dict[str, bytes]:
    primary = target.primary
    name = launcher.name if launcher else None
    try:
        return run_files(target.engines[primary.host], target.cluster.name, primary.image, name, path)
    except Unread:
        raise HostError(
            primary.host,
            f"its runs cannot be read without an image, and it has no {primary.image}",
            hint="hvdcompose apply brings it",
        ) from None
