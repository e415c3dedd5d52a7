"""The values of the user's secrets, from this machine's environment and files: they go into volumes, nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hvdcompose.config.model import Secret
from hvdcompose.errors import Refused

LIMIT_BYTES = 500 * 1024  # Docker's own for a secret


def read_secrets(secrets: Mapping[str, Secret], base: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return {name: value}; files are looked for from `base`, the folder of cluster.yaml.

    Raises Refused with every secret that cannot be had.
    """
    values, faults = {}, []
    for name, secret in secrets.items():
        value = (
            _of_variable(secret.env, environ) if secret.env else _of_file(base / Path(str(secret.file)).expanduser())
        )
        if isinstance(value, bytes):
            values[name] = value
        else:
            faults.append(f"train.secrets.{name}: {value}")
    if faults:
        raise Refused("\n".join(faults), hint="give the values where cluster.yaml says that they are, then once more")
    return values


def _of_variable(name: str, environ: Mapping[str, str]) -> bytes | str:
    """Return the value, or what is wrong."""
    if name not in environ:
        return f"the variable {name} is not set in this environment"
    return environ[name].encode(errors="surrogateescape") or f"the variable {name} is empty"


def _of_file(path: Path) -> bytes | str:
    """Return the content, or what is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    except ValueError:
        return f"{path} is no path"
    if len(content) > LIMIT_BYTES:
        return f"{path} is larger than {LIMIT_BYTES // 1024} KiB"
    return content or f"{path} is empty"
