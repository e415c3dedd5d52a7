"""cluster.yaml -> `Cluster`, or a `ConfigError` with every mistake in it. Only `load_cluster` does I/O."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hvdcompose.config.cursor import Cursor, read_word, root_cursor
from hvdcompose.config.document import Problems, read_document
from hvdcompose.config.hosts import HostDraft, read_defaults, read_hosts
from hvdcompose.config.model import Cluster, Horovod, Runs, Ssh, Train
from hvdcompose.config.rules import check_hosts, check_own_volumes, check_train, primary_name
from hvdcompose.config.sections import (
    IsFolder,
    TrainDraft,
    read_horovod,
    read_image,
    read_runs,
    read_ssh,
    read_train,
)
from hvdcompose.config.words import project_complaint
from hvdcompose.errors import ConfigError, HvdError

_REQUIRED = ("name", "image", "hosts", "train")
_KEYS = ("version", "name", "image", "ssh", "defaults", "hosts", "train", "horovod", "runs")
_VERSION = "1"
_MOST_BYTES = 1024 * 1024


class UnreadableConfigError(ConfigError):
    """There is no text of a cluster.yaml to look at: no such file, a folder, not text."""

    def __init__(self, source: str, message: str, *, hint: str | None = None) -> None:
        HvdError.__init__(self, f"{source}: {message}", hint=hint)
        self.source = source
        self.problems = ()


def load_cluster(path: Path) -> Cluster:
    """Read and check the file at `path`; folders in it are looked for from the file's own folder.

    Raises `ConfigError`, for a file that cannot be read too.
    """
    return parse_cluster(_read_text(path), source=str(path), is_folder=lambda name: _is_folder(path.parent / name))


def parse_cluster(text: str, *, source: str, is_folder: IsFolder) -> Cluster:
    """Check the text of a cluster.yaml; `source` is its name in messages, `is_folder` what the client has.

    Pure. Raises `ConfigError` with every mistake, each with its line, column and dotted path.
    """
    problems = Problems()
    cluster = None
    node = read_document(text, problems)
    if node is not None:
        cluster = _read(root_cursor(node, problems), is_folder)
    if cluster is None:
        raise ConfigError(source, list(problems))
    return cluster


def _read(root: Cursor, is_folder: IsFolder) -> Cluster | None:
    fields = root.fields(_KEYS)
    if root.is_mapping:
        for key in _REQUIRED:
            if key not in fields:
                root.missing(key)
    if "version" in fields:
        _check_version(fields["version"])
    name = read_word(fields["name"], project_complaint) if "name" in fields else None
    image = read_image(fields["image"], is_folder) if "image" in fields else None
    ssh, ssh_volume = read_ssh(fields.get("ssh"))
    hosts = read_hosts(fields["hosts"], read_defaults(fields.get("defaults"))) if "hosts" in fields else []
    train = read_train(fields["train"], is_folder) if "train" in fields else TrainDraft()
    horovod = read_horovod(fields.get("horovod"))
    runs = read_runs(fields.get("runs"))
    check_hosts(hosts)
    check_train(train, hosts)
    if name:
        check_own_volumes(name.value, ssh_volume, train, hosts)
    if root.problems:
        return None
    assert name and image
    return Cluster(
        name=name.value,
        image=image,
        ssh=Ssh(**{"volume": f"{name.value}-ssh", **ssh}),
        hosts=tuple(host.build() for host in hosts),
        primary_name=primary_name(hosts),
        train=_build_train(train, hosts),
        horovod=Horovod(**horovod),
        runs=Runs(**runs),
    )


def _build_train(train: TrainDraft, hosts: Sequence[HostDraft]) -> Train:
    assert train.command
    return Train(
        command=train.command,
        np=train.np.value if train.np else sum(host.slots or 0 for host in hosts),
        code=train.code,
        prepare=train.prepare,
        output=train.output.value if train.output else None,
        env={name: found.value for name, found in train.env.items()},
        volumes=tuple(found.value for found in train.volumes.values()),
        secrets=train.secrets,
    )


def _check_version(cursor: Cursor) -> None:
    if cursor.shown != _VERSION:
        cursor.unexpected("1, the only version there is")


def _read_text(path: Path) -> str:
    source = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise UnreadableConfigError(
            source, "there is no such file", hint="hvdcompose init writes a first one; -f names another file"
        ) from None
    except IsADirectoryError:
        raise UnreadableConfigError(source, "is a folder, not a file", hint="name the file in it with -f") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise UnreadableConfigError(source, f"cannot be read: {reason or error}") from None
    if len(content) > _MOST_BYTES:
        raise UnreadableConfigError(source, "is larger than 1 MiB, which no cluster.yaml is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableConfigError(source, f"is not text in UTF-8 (line {line})") from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or a folder above that may not be read
        return False
