"""A record as the launcher writes it, for tests."""

from __future__ import annotations

import json
from typing import Any

from hvdcompose.report.records import Record, parse_record

BEGIN = 1796119718.0  # 2026-12-01 10:08:38 UTC


def rank(number: int, host: str, code: int = 0, ended: str = "itself") -> dict[str, Any]:
    return {
        "rank": number,
        "host": host,
        "code": code,
        "ended": ended,
        "begin": BEGIN + 4,
        "end": BEGIN + 94,
        "user": 80.5,
        "sys": 2.0,
        "oom": False,
        "command": ["python", "-m", "trainer.mnist"],
    }


RECORD: dict[str, Any] = {
    "version": 1,
    "run": "20261201-100838-32c",
    "launch": "1a0c",
    "command": ["horovodrun", "-np", "3", "/hvd/rank", "python"],
    "train_command": ["python", "-m", "trainer.mnist", "--note", "two words"],
    "np": 3,
    "hosts": ["alpha", "alpha", "beta"],
    "image": "sha256:abc",
    "code": 0,
    "code_digest": "c0de",
    "begin": BEGIN,
    "end": BEGIN + 94.4,
    "real": 94.4,
    "user": 80.2,
    "sys": 4.5,
    "ranks": [rank(0, "alpha"), rank(1, "alpha"), rank(2, "beta")],
    "metrics": {"accuracy": 0.8691, "loss": 0.356506},
    "cause": None,
    "prepare": {
        "alpha": {"code": 0, "seconds": 3.5, "skipped": False},
        "beta": {"code": None, "seconds": None, "skipped": True},
    },
}
FAILED: dict[str, Any] = {
    "code": 1,
    "ranks": [rank(0, "alpha", -15, "signal"), rank(1, "alpha"), rank(2, "beta", 3)],
    "cause": {
        "rank": 2,
        "host": "beta",
        "code": 3,
        "oom": False,
        "told": "rank 2 on beta: exit 3",
        "lines": ["Traceback (most recent call last):", "SystemExit: 3"],
    },
}


def record_of(**changes: Any) -> Record:
    """Return the record with other values."""
    return parse_record(json.dumps({**RECORD, **changes}))
