"""Runs in a helper container on the primary: lists what a run wrote, and sends it. Python 3.8, standard library.

`python3 -c THIS ROOT`, with one request a line on stdin, as JSON; the answers are lines of JSON on stdout, and after
the one to `get` the bytes that it announces. It ends with its stdin, and when nobody takes what it says for a minute:
a client that was killed leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable

CHUNK = 1 << 20
PATIENCE_SECONDS, IDLE_SECONDS = 60, 600
BEAT_SECONDS = 1.0


def tell(**answer: object) -> None:
    """Write one line of JSON; names that are no text keep their bytes as lone surrogates."""
    send(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def send(data: bytes) -> None:
    """Write bytes; it is the end when nobody takes them."""
    signal.alarm(PATIENCE_SECONDS)
    sys.stdout.buffer.write(data)


def names(folder: str) -> list[str]:
    """Return what a folder holds, nothing where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def runs(root: str) -> None:
    """Tell the folders that hold something, each of a run."""
    tell(runs=[name for name in names(root) if names(os.path.join(root, name))])


def manifest(root: str, run: str) -> None:
    """Tell every file with its size and sha256, every link with its target, and what is neither."""
    top = os.path.join(root, run)
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted([*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]):
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, top)
            try:
                kind = os.lstat(path).st_mode
                if stat.S_ISLNK(kind):
                    tell(path=shown, link=os.readlink(path))
                elif stat.S_ISREG(kind):
                    size, digest = checked(path)
                    tell(path=shown, size=size, sha256=digest)
                else:
                    tell(path=shown, odd="neither a file nor a link")
            except OSError as error:
                tell(path=shown, fault=error.strerror or "it cannot be read")
    tell(end=True)


def checked(path: str) -> tuple[int, str]:
    """Return a file's size and sha256; tells now and then how far it is."""
    digest, size, told = hashlib.sha256(), 0, time.monotonic()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        while True:
            data = file.read(CHUNK)
            if not data:
                return size, digest.hexdigest()
            signal.alarm(PATIENCE_SECONDS)
            digest.update(data)
            size += len(data)
            if time.monotonic() - told > BEAT_SECONDS:
                told = time.monotonic()
                tell(checked=size)


def get(root: str, run: str, path: str, at: int, size: int) -> None:
    """Send a file from byte `at` to byte `size`; what it no longer has is sent as zeros, which its sha256 finds."""
    try:
        descriptor = os.open(os.path.join(root, run, path), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        tell(fault=error.strerror or "it cannot be read")
        return
    with open(descriptor, "rb") as file:
        tell(size=size - at)
        file.seek(at)
        left = size - at
        while left:
            data = file.read(min(CHUNK, left)) or bytes(min(CHUNK, left))
            send(data)
            left -= len(data)
    sys.stdout.buffer.flush()


def main() -> None:
    """Answer requests until stdin ends."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.alarm(IDLE_SECONDS)
    answers: dict[str, Callable[..., None]] = {"runs": runs, "manifest": manifest, "get": get}
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(PATIENCE_SECONDS)
        answers[request.pop("do")](sys.argv[1], **request)
        signal.alarm(IDLE_SECONDS)  # the client may compare what it has


if __name__ == "__main__":
    main()
