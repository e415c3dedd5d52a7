"""Every key of a cluster.yaml, said once: its forms, its default, what it does. Schema and docs are made from it. Pure.

`config/source.py` is the judge of a file; tests hold this table against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hvdcompose.config.model import Horovod, Image, Runs, Ssh

Schema = dict[str, Any]
REQUIRED = "required"

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NUMBER: Schema = {"type": ["string", "number"]}
_WORDS: Schema = {"type": "array", "items": _TEXT_OR_NUMBER, "minItems": 1}
_COMMAND: Schema = {"anyOf": [{"type": "string", "pattern": r"\S"}, _WORDS]}
_VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"
_ABSOLUTE = "^/"
_CONTAINER_PATH: Schema = {"pattern": "^/[^:]*$"}
_SOURCE: Schema = {"type": "string", "pattern": r"^(/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]+)$"}
_SIZE: Schema = {"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?([kKmMgG]?[bB]|[kKmMgG])?$"}
_LIMIT: Schema = {"type": "integer", "minimum": -1}
_ULIMIT: Schema = {
    "anyOf": [
        _LIMIT,
        {
            "type": "object",
            "properties": {"soft": _LIMIT, "hard": _LIMIT},
            "required": ["soft", "hard"],
            "additionalProperties": False,
        },
    ]
}
_ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice"),
    *("nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack"),
)
_GPUS: Schema = {
    "anyOf": [
        {"enum": ["all", "none"]},
        {"type": "integer", "minimum": 0, "maximum": 1024},
        {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1, "uniqueItems": True},
        {
            "type": "object",
            "properties": {
                "driver": {"const": "cdi"},
                "ids": {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True},
            },
            "required": ["driver", "ids"],
            "additionalProperties": False,
        },
    ]
}


def _mapping(values: Schema, names: str | None = None) -> Schema:
    """Return the schema of a mapping with free keys; an empty value counts as an empty mapping."""
    keys = {"propertyNames": {"pattern": names}} if names else {}
    return {"type": ["object", "null"], "additionalProperties": values, **keys}


_MOUNT: Schema = {
    "anyOf": [
        _SOURCE,
        {
            "type": "object",
            "properties": {
                "source": _SOURCE,
                "read_only": {"type": "boolean"},
            },
            "required": ["source"],
            "additionalProperties": False,
        },
    ]
}
_SECRET: Schema = {
    "type": "object",
    "properties": {"env": {"type": "string", "pattern": _VARIABLE}, "file": {"type": "string", "pattern": "[^/]$"}},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Key:
    """One key: its forms in words and as JSON Schema, its default in words, what it does, and an example in YAML."""

    name: str
    form: str
    schema: Schema
    default: str
    about: str
    example: str


@dataclass(frozen=True)
class Section:
    """A mapping of the file; `path` is where it stands, `<host>` in it a host's name."""

    path: str
    about: str
    keys: tuple[Key, ...]


_HOROVOD, _RUNS = Horovod(), Runs()
_VOLUMES = Key(
    "volumes",
    "mapping: path in the container to host path, named volume or {source, read_only}",
    _mapping(_MOUNT, _ABSOLUTE),
    "none",
    "What is mounted. A path on a host must exist there; a named volume is made by Docker.",
    "{/data: /srv/mnist, /cache: {source: cache, read_only: false}}",
)
_ENV_FORM = "mapping: name to value"
SETTINGS = (
    Key(
        "gpus",
        "`all`, `none`, a count, a list of ids, or {driver: cdi, ids: [...]}",
        _GPUS,
        "none",
        "The GPUs of the host that its containers get. An id is a GPU's number or its GPU-... or MIG-... name.",
        "[0, 2]",
    ),
    Key(
        "slots",
        "a whole number",
        {"type": "integer", "minimum": 1, "maximum": 1024},
        "the number of GPUs, at least 1",
        "How many processes Horovod places on the host. With `gpus: all`, apply counts them, and asks for slots where "
        "there is more than one.",
        "2",
    ),
    Key(
        "interface",
        "text",
        {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,15}$"},
        "the one that has the address, found when a rank starts",
        "The network interface that the ranks use.",
        "eth1",
    ),
    Key("shm_size", "an amount of memory", _SIZE, "Docker's, 64 MB", "The size of /dev/shm.", "1g"),
    Key(
        "ulimits",
        "mapping: resource to a number or {soft, hard}; -1 is no limit",
        {
            "type": ["object", "null"],
            "properties": dict.fromkeys(_ULIMITS, _ULIMIT),
            "additionalProperties": False,
        },
        "Docker's",
        "Limits of the processes in the containers.",
        "{memlock: -1, nofile: {soft: 65536, hard: 65536}}",
    ),
    Key(
        "env",
        _ENV_FORM,
        _mapping(_TEXT_OR_NUMBER, _VARIABLE),
        "none",
        "Variables for the ranks on this host.",
        "{NCCL_IB_HCA: mlx5_0}",
    ),
    _VOLUMES,
)
HOST_KEYS = (
    Key(
        "context",
        "text",
        {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.+-]*$"},
        "the host's name",
        "The Docker context that leads to the host's engine (`docker context ls`).",
        "ganymede",
    ),
    Key(
        "address",
        "an IPv4 address or a name",
        {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$"},
        REQUIRED,
        "How the other hosts reach this one.",
        "192.168.11.4",
    ),
    Key(
        "primary",
        "true or false",
        {"type": "boolean"},
        "true for the first host, unless another says it",
        "The primary launches the run, and runs rank 0.",
        "true",
    ),
)
SECTIONS = (
    Section(
        "",
        "The whole file. Keys that begin with `x-` are for YAML anchors and mean nothing.",
        (
            Key("version", "1", {"const": 1}, "1", "The version of this format.", "1"),
            Key(
                "name",
                "text",
                {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,39}$"},
                REQUIRED,
                "The cluster's name, and the Compose project's on every host.",
                "mnist",
            ),
        ),
    ),
    Section(
        "image",
        "What every container runs: a name, or a mapping with these keys. It needs Horovod, Python 3 and OpenSSH.",
        (
            Key("name", "text", {"type": "string", "maxLength": 255}, REQUIRED, "The image's name.", "hvd-trainer:cpu"),
            Key(
                "build",
                "a folder here",
                _TEXT,
                "none",
                "apply builds the image from the Dockerfile in it.",
                "./trainer",
            ),
            Key(
                "args",
                _ENV_FORM,
                _mapping(_TEXT_OR_NUMBER, _VARIABLE),
                "none",
                "Build arguments; they need `build`.",
                '{CUDA: "12.4"}',
            ),
            Key(
                "pull",
                "`missing`, `always` or `never`",
                {"enum": ["missing", "always", "never"]},
                Image(name="x").pull,
                "`missing`: a host that lacks it is sent this machine's. `always`: each host pulls it from a registry.",
                "missing",
            ),
        ),
    ),
    Section(
        "ssh",
        "How the launcher reaches the workers.",
        (
            Key(
                "port",
                "a whole number, not 22",
                {"type": "integer", "minimum": 1, "maximum": 65535, "not": {"const": 22}},
                str(Ssh(volume="x").port),
                "The port of sshd, one for all hosts. 22 is the machine's own.",
                "12345",
            ),
            Key(
                "volume",
                "a volume's name or an absolute path",
                _SOURCE,
                "<name>-ssh",
                "A Docker volume that hvdcompose fills with its own key, or a folder on every host (NFS) with yours.",
                "/mnt/nfs2/ssh",
            ),
        ),
    ),
    Section("defaults", "Merged under every host: mappings by their keys, anything else as a whole.", SETTINGS),
    Section(
        "hosts.<host>",
        "The machines, by name; the first is the primary. At least one.",
        (*HOST_KEYS, *SETTINGS),
    ),
    Section(
        "train",
        "The run.",
        (
            Key(
                "command",
                "text or a list of words",
                _COMMAND,
                REQUIRED,
                "What every rank runs. Text is split as a shell would, and nothing in it is expanded.",
                "python -m trainer.mnist --epochs 10",
            ),
            Key(
                "np",
                "a whole number",
                {"type": "integer", "minimum": 1, "maximum": 1_048_576},
                "all slots",
                "Processes in all.",
                "4",
            ),
            Key(
                "code",
                "a folder here",
                _TEXT,
                "none",
                "Sent to every host, read-only: ./trainer is /hvd/code/trainer, and the command runs in /hvd/code: "
                "`python trainer/x.py`. An edited line counts in the next run.",
                "./trainer",
            ),
            Key(
                "prepare",
                "text or a list of words",
                _COMMAND,
                "none",
                "Runs once on every host before the ranks, and not again while it is the same and went well.",
                "python -m trainer.data",
            ),
            _VOLUMES,
            Key(
                "output",
                "a volume's name or an absolute path on the primary",
                _SOURCE,
                "none",
                "Where the ranks write what shall stay: each run has a folder of its own there, `$HVD_OUTPUT`. "
                "`hvdcompose fetch` brings it home.",
                "mnist-output",
            ),
            Key(
                "env",
                _ENV_FORM,
                _mapping(_TEXT_OR_NUMBER, _VARIABLE),
                "none",
                "Variables for every rank.",
                "{NCCL_DEBUG: WARN}",
            ),
            Key(
                "secrets",
                "mapping: name to {env: VARIABLE} or {file: path}, on this machine",
                _mapping(_SECRET, "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"),
                "none",
                "Files under /run/secrets for every rank, with values that this machine has. The values are in no file "
                "of the cluster, no label and no environment.",
                "{WANDB_API_KEY: {env: WANDB_API_KEY}}",
            ),
        ),
    ),
    Section(
        "horovod",
        "How horovodrun is called. What is not given is Horovod's own default.",
        (
            Key(
                "controller",
                "`auto`, `gloo` or `mpi`",
                {"enum": ["auto", "gloo", "mpi"]},
                _HOROVOD.controller,
                "Who starts and connects the ranks.",
                "gloo",
            ),
            Key(
                "fusion_threshold_mb",
                "a whole number",
                {"type": "integer", "minimum": 0, "maximum": 65_536},
                "Horovod's",
                "The size of the buffer in which small tensors are put together.",
                "64",
            ),
            Key(
                "cycle_time_ms",
                "a number",
                {"type": "number", "minimum": 0, "maximum": 60_000},
                "Horovod's",
                "The time between two rounds of communication.",
                "3.5",
            ),
            Key(
                "timeline",
                "an absolute path",
                {"type": "string", **_CONTAINER_PATH},
                "none",
                "A file in rank 0's container for Horovod's timeline.",
                "/hvd/output/timeline.json",
            ),
            Key(
                "start_timeout",
                "seconds",
                {"type": "integer", "minimum": 1, "maximum": 86_400},
                str(_HOROVOD.start_timeout),
                "How long the launcher waits for the workers, and horovodrun for the ranks.",
                "120",
            ),
            Key(
                "stall_shutdown",
                "seconds",
                {"type": "integer", "minimum": 0, "maximum": 86_400},
                "none: a stalled run waits",
                "End the run when a rank keeps the others waiting for so long.",
                "600",
            ),
            Key(
                "args",
                "a list of words",
                {"type": "array", "items": _TEXT_OR_NUMBER},
                "none",
                "More options for horovodrun.",
                "[--log-level, INFO]",
            ),
        ),
    ),
    Section(
        "runs",
        "What is kept of past runs, on the primary.",
        (
            Key(
                "keep",
                "a whole number",
                {"type": "integer", "minimum": 1, "maximum": 10_000},
                str(_RUNS.keep),
                "Records and logs of that many runs; older ones go when a run begins.",
                "50",
            ),
        ),
    ),
)
