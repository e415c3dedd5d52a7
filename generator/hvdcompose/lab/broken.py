"""What is broken in a lab, as files in its state folder: there from before the first change until all is undone."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping

from hvdcompose.errors import HvdError
from hvdcompose.lab.plan import Broken
from hvdcompose.lab.spec import Lab

FILE = "fault.json"


def read_broken(lab: Lab) -> dict[str, Broken]:
    """Return what is broken, by host. Raises HvdError for a file that is not ours."""
    broken = {}
    for path in sorted(lab.broken("").glob(f"*/{FILE}")):
        try:
            told = json.loads(path.read_text())
            broken[path.parent.name] = Broken(path.parent.name, told["fault"], told["values"], told["since"])
        except (ValueError, KeyError, TypeError):
            raise HvdError(f"{path} cannot be read", hint=f"hvdcompose lab down{lab.option}") from None
    return broken


def write_broken(lab: Lab, host: str, fault: str, values: Mapping[str, str]) -> Broken:
    """Note that a host is being broken."""
    folder = lab.broken(host)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    since = time.time()
    (folder / FILE).write_text(json.dumps({"fault": fault, "values": dict(values), "since": since}))
    return Broken(host, fault, values, since)


def forget(lab: Lab, host: str) -> None:
    """Note that a host is sound."""
    shutil.rmtree(lab.broken(host))
