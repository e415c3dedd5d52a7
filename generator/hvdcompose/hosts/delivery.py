"""What a host's volumes get before its container starts, keys and code; and the way back, from the launcher's."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hvdcompose.errors import HostError
from hvdcompose.hosts.code import Code
from hvdcompose.hosts.engine import ACT_SECONDS, Engine
from hvdcompose.hosts.keys import FILLED, KEY_FILE, ClusterKey, key_in_tar
from hvdcompose.hosts.observed import Container
from hvdcompose.hosts.tars import file_of, files_of, lines_of
from hvdcompose.stack.plan import CODE_TARGET, HOST_TARGET, RUNS_TARGET, SSH_TARGET

FILL = "fill"  # service label of our helpers: what an interrupted client left is known by it
LAUNCHED, RECORDS = f"{RUNS_TARGET}/launched", f"{RUNS_TARGET}/records"


class Unread(Exception):
    """A volume cannot be read before the image is there."""


def code_volume(cluster: str, digest: str) -> str:
    """Return the name of the volume of one version of the code; a volume is filled once and never changed."""
    return f"{cluster}-code-{digest}"


def full_mark(cluster: str, digest: str) -> str:
    """Return the name of the empty volume that is made once that of the code is full: without it, fill it again."""
    return f"{cluster}-full-{digest}"


def _code_labels(cluster: str) -> tuple[str, str]:
    return f"com.docker.compose.project={cluster}", "com.docker.compose.volume=code"


@dataclass(frozen=True)
class Versions:
    """Digests of the code: of those that have a volume on a host, and of those whose volume was filled to the end."""

    volumes: frozenset[str]
    marks: frozenset[str]

    @property
    def whole(self) -> frozenset[str]:
        """The versions that the host has."""
        return self.volumes & self.marks


def code_versions(engine: Engine, cluster: str) -> Versions:
    """Return which versions of the code are on a host. Raises HostError."""
    listed = engine.volumes(_code_labels(cluster))

    def digests(prefix: str) -> frozenset[str]:
        return frozenset(name.removeprefix(prefix) for name in listed if name.startswith(prefix))

    return Versions(digests(code_volume(cluster, "")), digests(full_mark(cluster, "")))


def helper_labels(cluster: str) -> list[str]:
    """Return the options that label a helper container, so that the next snapshot knows it."""
    told = {"com.docker.compose.project": cluster, "com.docker.compose.service": FILL, "hvdcompose.cluster": cluster}
    return [word for name, value in told.items() for word in ("--label", f"{name}={value}")]


def mount_words(kind: str, source: str, target: str, *options: str) -> list[str]:
    """Return the options of `docker run` that mount a host path (bind) or a volume at a path of the container."""
    quoted = f"source={source}".replace('"', '""')  # quoted as CSV wants it: a path may hold a comma
    return ["--mount", ",".join([f'type={kind},"{quoted}"', f"target={target}", *options])]


def _helper(engine: Engine, cluster: str, image: str, *options: str, doing: str = "making a helper container") -> str:
    """Make a container that is never started; return its id."""
    words = ("create", "--pull", "never", "--entrypoint", "true", *helper_labels(cluster), *options, image)
    return engine.call(*words, doing=doing, deadline=ACT_SECONDS).strip()


def remove_containers(engine: Engine, containers: Iterable[Container]) -> None:
    """Remove containers, running or not. Raises HostError."""
    for container in containers:
        _remove(engine, container.id)


def _remove(engine: Engine, container: str) -> None:
    engine.call("rm", "--force", container, doing="removing a container", deadline=ACT_SECONDS)


def fill_code(engine: Engine, cluster: str, image: str, code: Code) -> bool:
    """Make and fill the volume of this version of the code; return False where the host has it. Raises HostError.

    A client may be killed between any two calls: a volume without its mark is filled again.
    """
    there = code_versions(engine, cluster)
    if code.digest in there.whole:
        return False
    mark, labels = full_mark(cluster, code.digest), _code_labels(cluster)
    if code.digest in there.marks:
        engine.call("volume", "rm", mark, doing="removing a volume")
    volume = f"type=volume,source={code_volume(cluster, code.digest)},target={CODE_TARGET},volume-nocopy"
    mount = ",".join([volume, *(f"volume-label={label}" for label in labels)])
    helper = _helper(engine, cluster, image, "--label", f"hvdcompose.code={code.digest}", "--mount", mount)
    engine.put(helper, code.tar())
    words = [word for label in labels for word in ("--label", label)]
    engine.call("volume", "create", *words, mark, doing="marking the code's volume as full")
    _remove(engine, helper)
    return True


def prune_code(engine: Engine, cluster: str, keep: str) -> None:
    """Remove the volumes of other versions of the code; those still in use stay, with their marks. Raises HostError."""
    there = code_versions(engine, cluster)
    volumes = [code_volume(cluster, digest) for digest in sorted(there.volumes - {keep})]
    removed = engine.ask("volume", "rm", *volumes, deadline=ACT_SECONDS).out.split() if volumes else []
    left = there.volumes - {name.removeprefix(code_volume(cluster, "")) for name in removed}
    marks = [full_mark(cluster, digest) for digest in sorted(there.marks - left)]
    if marks:
        engine.ask("volume", "rm", *marks, deadline=ACT_SECONDS)


def put_keys(engine: Engine, container: str, tar: bytes, digest: str) -> None:
    """Fill a container's volumes with its keys, unless they hold these: replacing them would disturb a login."""
    held = engine.get(container, f"{HOST_TARGET}/{FILLED}")
    if held is None or file_of(held) != f"{digest}\n".encode():
        engine.put(container, tar)


def drop_keys(engine: Engine, container: str, volumes: tuple[str, ...]) -> None:
    """Remove a container and the volumes that hold keys which are no longer the cluster's. Raises HostError."""
    _remove(engine, container)
    for volume in volumes:
        completed = engine.ask("volume", "rm", "--force", volume)
        if not completed.ok:
            raise engine.fail(completed, f"removing the volume {volume} with the old keys", ACT_SECONDS)


@contextlib.contextmanager
def _holder(
    engine: Engine, cluster: str, image: str, container: str | None, volume: str, target: str
) -> Iterator[str | None]:
    """Give a container through which a volume is read, its own or a helper; None where there is no such volume.

    Raises Unread where there is a volume, and no image to make a helper of.
    """
    if container is not None:
        yield container
    elif engine.inspect("volume", volume) is None:
        yield None
    elif engine.inspect("image", image) is None:
        raise Unread
    else:
        helper = _helper(engine, cluster, image, "-v", f"{volume}:{target}")
        try:
            yield helper
        finally:
            _remove(engine, helper)


def _read(
    engine: Engine, cluster: str, image: str, container: str | None, volume: str, target: str, path: str
) -> bytes | None:
    """Return the tar of a path in a volume; None when it is not there. Raises HostError, Unread."""
    with _holder(engine, cluster, image, container, volume, target) as holder:
        return engine.get(holder, path) if holder else None


def adopt_key(engine: Engine, cluster: str, image: str, container: str | None, volume: str) -> ClusterKey | None:
    """Return the key that another client left on the primary, or None. Raises HostError, Unread."""
    tar = _read(engine, cluster, image, container, volume, SSH_TARGET, f"{SSH_TARGET}/{KEY_FILE}")
    return key_in_tar(tar) if tar else None


def launched(engine: Engine, cluster: str, image: str, container: str | None) -> frozenset[str]:
    """Return the digests of all launches that ever ran, as the launcher recorded them. Raises HostError, Unread."""
    tar = _read(engine, cluster, image, container, f"{cluster}-runs", RUNS_TARGET, LAUNCHED)
    return frozenset(name.rpartition("/")[2] for name in files_of(tar)) if tar else frozenset()


def run_records(engine: Engine, cluster: str, image: str, container: str | None) -> dict[str, str]:
    """Return {run: its record's text} of all runs that are kept. Raises HostError, Unread."""
    tar = _read(engine, cluster, image, container, f"{cluster}-runs", RUNS_TARGET, RECORDS)
    return {
        name.rpartition("/")[2].removesuffix(".json"): content.decode(errors="replace")
        for name, content in (files_of(tar) if tar else {}).items()
        if name.endswith(".json")
    }


def run_logs(engine: Engine, cluster: str, image: str, container: str | None, run: str) -> dict[str, Iterator[str]]:
    """Return {name: lines} of a run's logs, which are read as they are asked for: a log may be large.

    Raises HostError, Unread.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the last of its readers
    with _holder(engine, cluster, image, container, f"{cluster}-runs", RUNS_TARGET) as holder:
        found = holder is not None and engine.get_into(holder, f"{RUNS_TARGET}/{run}", file)
    return lines_of(file, ".log") if found else {}


def result_of(engine: Engine, container: str, run: str) -> dict[str, object] | None:
    """Return what the launcher recorded of a run that ended, or None. Raises HostError."""
    tar = engine.get(container, f"{RECORDS}/{run}.json")
    text = file_of(tar) if tar else None
    try:
        told = dict(json.loads(text)) if text else {}
        return told if told.get("code") is not None else None
    except (TypeError, ValueError):
        raise HostError(engine.host, f"the record of run {run} cannot be read") from None
