"""A terminal for programs that ask a person."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def at_a_terminal(
    words: Sequence[str], answers: Sequence[str] = (), *, cwd: Path, env: Mapping[str, str], seconds: float = 60
) -> tuple[int, str]:
    """Run a command at a terminal, type an answer after each question, which ends in `: `; return (code, shown)."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(words, cwd=cwd, env=env, stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
    os.close(inner)
    shown, left, limit = "", list(answers), time.monotonic() + seconds
    try:
        while time.monotonic() < limit:
            if not select.select([outer], [], [], 0.1)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                shown += os.read(outer, 4096).decode()
            except OSError:  # Linux: the other side is closed
                break
            if shown.endswith(": ") and left:
                os.write(outer, f"{left.pop(0)}\n".encode())
        code = process.wait(max(1.0, limit - time.monotonic()))
    finally:
        process.kill()
        os.close(outer)
    assert left == [], f"not asked for {left}: {shown}"
    return code, shown
