"""One ssh login per host and command: a master connection that every docker call to that host shares.

Without it each `docker` over an ssh:// context logs in anew, which is most of what such a call costs
(ssh_config(5): ControlMaster, ControlPath, ControlPersist).
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hvdcompose.hosts import process

LOGIN_SECONDS = 15.0
CLOSE_SECONDS = 2.0
IDLE_SECONDS = 30  # so long a master outlives a client that was killed
# who shares the master of a host that froze learns it after 15 s; each call's own deadline holds besides
ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")


def destination(url: str) -> list[str]:
    """Return the words by which docker itself names the end of an ssh:// endpoint to ssh."""
    parts = urlsplit(url)
    # not `parts.hostname`: it is lower case, and the Host lines of ssh's config are not
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}").strip("[]")
    user = ["-l", parts.username] if parts.username else []
    return [*user, *(["-p", str(parts.port)] if parts.port else []), "--", host]


def wrapper_text(real: str, folder: Path) -> str:
    """Return the `ssh` that docker finds first on its PATH: the real one, sharing the master where there is one.

    ControlMaster=no: a login of docker's own that became a master would keep docker's pipes open.
    """
    return f'#!/bin/sh\nexec "{real}" -o ControlMaster=no -o "ControlPath={folder}/%C" "$@"\n'


@dataclass
class Logins:
    """The masters of this process; none outlives it by more than `IDLE_SECONDS`."""

    real: str = ""
    folder: Path | None = None
    urls: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def share(self, url: str) -> None:
        """Log in where an ssh:// endpoint leads, once. A login that fails is told by the docker call that follows."""
        with self.lock:
            if urlsplit(url).scheme != "ssh" or url in self.urls:
                return
            folder = self.folder or self._prepare()
            self.urls.append(url)
        if folder is not None:
            persist = ("-o", f"ControlPersist={IDLE_SECONDS}")
            # -f: it goes to the background once it is logged in; on no pipe of ours, which it would keep open
            words = [self.real, "-f", "-N", *self._path(folder), "-o", "ControlMaster=yes", *persist, *ALIVE]
            process.run_silent([*words, *destination(url)], deadline=LOGIN_SECONDS)

    def close(self) -> None:
        """End the masters, and remove the folder of their sockets."""
        if self.folder is None:
            return
        words, nothing = [self.real, "-O", "exit", *self._path(self.folder)], subprocess.DEVNULL
        # not by `process`: after Ctrl-C it starts nothing more
        ending = [
            subprocess.Popen([*words, *destination(url)], stdin=nothing, stdout=nothing, stderr=nothing)
            for url in self.urls
        ]
        for one in ending:
            try:
                one.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                one.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder, self.urls = None, []

    def _path(self, folder: Path) -> tuple[str, str]:
        return ("-o", f"ControlPath={folder}/%C")

    def _prepare(self) -> Path | None:
        """Put an `ssh` of ours first on the PATH of all children; return its folder, None without a real one."""
        real = shutil.which("ssh")
        if real is None:
            return None
        # short: the path of a socket has 107 characters at most (unix(7)), and ssh adds 17 while it makes one
        folder = Path(tempfile.mkdtemp(prefix="hvd-"))
        wrapper = folder / "ssh"
        wrapper.write_text(wrapper_text(real, folder))
        wrapper.chmod(0o700)
        self.real, self.folder = real, folder
        process.put_first_on_path(folder)
        atexit.register(self.close)
        return folder


logins = Logins()
