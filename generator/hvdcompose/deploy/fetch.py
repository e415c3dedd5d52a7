"""Bring home what a run wrote on the primary: look, compare with what is here, then get what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hvdcompose.deploy.arrivals import newest, part_of, refusal
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError, HvdError
from hvdcompose.hosts import local
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.output import Reader, Remote, open_output
from hvdcompose.hosts.transfer import percent, told_size

TRIES, WAIT_SECONDS = 3, 2.0  # when the way to the host breaks and nothing came since the last try
TELL_SECONDS = 0.5
GOES_ON = "the same command goes on from there"
CHANGED = "its checksum is wrong: it was written to while it was fetched"


@dataclass(frozen=True)
class Source:
    """Where the output of all runs is: a volume or a path of the primary, and what is needed to read it."""

    engine: Engine
    cluster: str
    image: str
    place: str


@dataclass(frozen=True)
class Sight:
    """What a run wrote, compared with the folder here. `different` are files here that are others."""

    run: str
    missing: tuple[Remote, ...] = ()
    different: tuple[Remote, ...] = ()
    same: tuple[Remote, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)  # {path: why it is not brought home}
    unreadable: bool = False  # one of these should have been
    taken: frozenset[str] = frozenset()  # all names the run used

    def size(self, entries: Sequence[Remote]) -> int:
        """Return the bytes of entries."""
        return sum(entry.size for entry in entries)


def source_of(target: Target, output: str) -> Source:
    """Return where the output is, after asking the primary whether it is there. Raises HostError."""
    engine, image = target.engines[target.primary.host], target.primary.image
    engine.reach()
    if not output.startswith("/") and engine.inspect("volume", output) is None:
        raise HostError(engine.host, f"there is no volume {output}: no run wrote anything yet", hint="hvdcompose run")
    if engine.inspect("image", image) is None:
        raise HostError(
            engine.host, f"the output cannot be read without an image, and it has no {image}",
            hint="hvdcompose apply brings it",
        )  # fmt: skip
    return Source(engine, target.cluster.name, image, output)


def look_at_output(
    source: Source, choose: Callable[[list[str]], str], folder_of: Callable[[str], Path], report: Reporter
) -> Sight:
    """Return what a run wrote, beside what is here.

    choose: picks the run from all that wrote something, the newest first. Raises HostError, HvdError.
    """
    with open_output(source.engine, source.cluster, source.image, source.place) as reader:
        run = choose(newest(reader.runs()))
        entries = _listed(reader, run, report)
    return compare(run, entries, folder_of(run))


def _listed(reader: Reader, run: str, report: Reporter) -> list[Remote]:
    """Return all entries of a run; tells how far it is, since every byte there is read for its checksum."""
    entries, read, told = [], 0, time.monotonic()
    for entry in reader.manifest(run):
        if isinstance(entry, Remote):
            entries.append(entry)
            read += entry.size
        if time.monotonic() - told > 2:
            told = time.monotonic()
            now = read + (entry if isinstance(entry, int) else 0)
            report.host(reader.host, f"looking at run {run}: {len(entries)} files, {told_size(now)}")
    return entries


def compare(run: str, entries: Sequence[Remote], folder: Path) -> Sight:
    """Return what of the entries is here and what is not. Raises HvdError where a file cannot be read."""
    sorted_by: dict[local.State, list[Remote]] = {"missing": [], "same": [], "differs": []}
    left = {}
    for entry in entries:
        why = refusal(entry)
        if why:
            left[entry.path] = why
            continue
        path = folder / entry.path
        state = (
            local.state_of_file(path, entry.size, entry.sha256)
            if entry.link is None
            else local.state_of_link(path, entry.link)
        )
        sorted_by[state].append(entry)
    return Sight(
        run,
        missing=tuple(sorted_by["missing"]),
        different=tuple(sorted_by["differs"]),
        same=tuple(sorted_by["same"]),
        left=left,
        unreadable=any(entry.fault for entry in entries),
        taken=frozenset(entry.path for entry in entries),
    )


def bring(source: Source, sight: Sight, folder: Path, report: Reporter) -> int:
    """Get what is missing or different, links last; return the bytes that came over the network.

    A file that is not whole stays as FILE.part and goes on from there, also when the way to the host breaks in between.
    Raises HostError, HvdError.
    """
    wanted = [*sight.missing, *sight.different]
    files = [entry for entry in wanted if entry.link is None]
    parts = {entry.path: folder / part_of(entry.path, sight.taken) for entry in files}
    there = sum(min(local.part_size(parts[entry.path]), entry.size) for entry in files)
    if local.free_bytes(folder) < sight.size(files) - there:
        raise HvdError(
            f"{folder}: no room for {told_size(sight.size(files) - there)}, "
            f"there are {told_size(local.free_bytes(folder))}"
        )
    meter = _Meter(report, source.engine.host, sight.size(files), there)
    changed = _get_all(source, sight.run, files, parts, folder, meter)
    for entry in wanted:
        if entry.link is not None:
            local.make_folder(folder, Path(entry.path).parent)
            local.make_link(folder / part_of(entry.path, sight.taken), folder / entry.path, entry.link)
    if changed:
        told = "\n".join(f"{local.shown(entry.path)}: {CHANGED}" for entry in changed)
        raise HvdError(told, hint="hvdcompose fetch, once the run has ended")
    return meter.came


def _get_all(
    source: Source, run: str, files: list[Remote], parts: dict[str, Path], folder: Path, meter: _Meter
) -> list[Remote]:
    """Get files; return those that changed meanwhile, of which nothing is kept."""
    left, tries, changed = list(files), 0, []
    while left:
        before = meter.came
        try:
            with open_output(source.engine, source.cluster, source.image, source.place) as reader:
                while left:
                    if not _get(reader, run, left[0], parts[left[0].path], folder, meter):
                        changed.append(left[0])
                    left.pop(0)
        except HostError as error:
            tries = 0 if meter.came > before else tries + 1
            if tries >= TRIES:
                raise HostError(error.host, error.message, hint=error.hint or GOES_ON, output=error.output) from None
            meter.tell(f"{error.message}; once more")
            time.sleep(WAIT_SECONDS)
    return changed


def _get(reader: Reader, run: str, entry: Remote, part: Path, folder: Path, meter: _Meter) -> bool:
    """Get one file, from where an earlier try ended; once more from its begin where that was of another content.

    Returns False where it is not what was listed.
    """
    path = folder / entry.path
    local.make_folder(folder, Path(entry.path).parent)
    at = min(local.part_size(part), entry.size)
    while True:
        for length in local.append(part, at, reader.read(run, entry, at)):
            meter.more(length, entry.path)
        if local.finish(part, path, entry.sha256):
            return True
        if not at:
            return False
        meter.again(at)
        at = 0


class _Meter:
    """Counts bytes, and tells of them now and then."""

    def __init__(self, report: Reporter, host: str, whole: int, there: int) -> None:
        self.came = 0
        self._report, self._host, self._whole, self._there = report, host, whole, there
        self._began = self._told = time.monotonic()

    def more(self, length: int, path: str) -> None:
        """Count bytes that came."""
        self.came += length
        now = time.monotonic()
        if now - self._told > TELL_SECONDS:
            self._told = now
            done, share = self._there + self.came, percent(self._there + self.came, self._whole)
            rate = f"{told_size(self.came / (now - self._began))}/s"
            told = f"{told_size(done)} of {told_size(self._whole)}, {share} %, {rate}, {local.shown(path)}"
            self._report.progress(self._host, told, share)

    def again(self, length: int) -> None:
        """Take back bytes that were of something else."""
        self._there -= length

    def tell(self, text: str) -> None:
        """Tell what happens."""
        self._report.host(self._host, text)
