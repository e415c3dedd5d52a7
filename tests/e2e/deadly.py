"""A docker that ends the client which calls it, at a call that is told by its words: for the end-to-end tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# the client is found by its command line among those that led to this call: Compose is called through `timeout`
SCRIPT = """#!/bin/sh
words="$*"
strike() {{
    pid=$$
    while [ "$pid" -gt 1 ]; do
        case $(tr '\\0' ' ' < /proc/$pid/cmdline) in *hvdcompose.cli.main*) kill -{signal} "$pid"; return ;; esac
        pid=$(cut -d' ' -f4 /proc/$pid/stat)
    done
}}
case "$words" in
{pattern})
    if mkdir {folder}/struck 2> /dev/null; then
        case {moment} in
        before) strike; exit 1 ;;
        during) strike; exec {real} "$@" ;;
        after) {real} "$@"; code=$?; strike; exit $code ;;
        esac
    fi ;;
esac
exec {real} "$@"
"""


def deadly_docker(folder: Path, pattern: str, moment: str = "before", signal: str = "KILL") -> dict[str, str]:
    """Put such a docker into a folder; return the environment that has it first on PATH.

    pattern: a shell's, for all words of the call; the first call that fits is it. moment: `before` the call is made,
    `during` it (it goes on by itself, with what it was given so far), `after` it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wrapper = folder / "docker"
    wrapper.write_text(
        SCRIPT.format(
            signal=signal,
            pattern=pattern.replace(" ", "\\ "),
            folder=folder,
            moment=moment,
            real=shutil.which("docker"),
        )
    )
    wrapper.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
