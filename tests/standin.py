"""The engine's HTTP API for a stand-in of the docker command: each question becomes a call of it, in docker's words.

So one shell script plays a host, whichever way it is asked. `docker ... system dial-stdio` is this program.
"""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, unquote

# the first lines of every stand-in for docker
DIAL = f'case "$*" in *"system dial-stdio") exec "{sys.executable}" -S "{__file__}" "$0" "$@" ;; esac\n'
INSPECTED = {"containers": "container", "images": "image", "volumes": "volume"}


def listed(service: str, state: str = "running", status: str = "Up 2 hours", **labels: str) -> dict[str, Any]:
    """Return a container as the engine lists it; labels are hvdcompose's own."""
    compose = {"com.docker.compose.project": "demo", "com.docker.compose.service": service}
    return {
        "Id": f"id-{service}",
        "Names": [f"/demo-{service}-1"],
        "State": state,
        "Status": status,
        "Image": "trainer:1",
        "Created": int(time.time()) - 7200,
        "Labels": {**compose, **{f"hvdcompose.{name}": value for name, value in labels.items()}},
    }


class Refused(Exception):
    """The stand-in failed: (status, its last words)."""


def answer(target: str, docker: list[str]) -> bytes:
    """Return the body of an answer."""

    def call(*words: str) -> str:
        done = subprocess.run([*docker, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            missing = "no such" in done.stderr.lower() or "not found" in done.stderr
            raise Refused(404 if missing else 500, done.stderr.strip())
        return done.stdout

    path, _, query = target.partition("?")
    kind, *rest = unquote(path).strip("/").split("/")
    if path == "/_ping":
        return b"OK"
    if path == "/info":
        return call("info").encode()
    if path == "/containers/json":
        return json.dumps([json.loads(line) for line in call("ps", "--all").splitlines() if line]).encode()
    if path == "/images/json":
        return json.dumps([{"RepoTags": call("image", "ls").split()}]).encode()
    if path == "/volumes":
        labels = json.loads(parse_qs(query).get("filters", ["{}"])[0]).get("label", [])
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        names = call("volume", "ls", "--quiet", *filters).split()
        return json.dumps({"Volumes": [{"Name": name} for name in names]}).encode()
    if rest[-1] == "logs":
        text = call("logs", rest[0]).encode()
        return b"\1\0\0\0" + len(text).to_bytes(4, "big") + text
    name = "/".join(rest[:-1] if kind != "volumes" else rest)
    found = json.loads(call(INSPECTED[kind], "inspect", name) or "[]")
    if not found:
        raise Refused(404, f"no such {INSPECTED[kind]}: {name}")
    return json.dumps(found[0]).encode()


def serve(requests: IO[bytes], answers: IO[bytes], docker: list[str]) -> None:
    """Answer one connection's requests."""
    while line := requests.readline():
        while requests.readline().strip():
            pass
        try:
            status, body = 200, answer(line.split()[1].decode(), docker)
        except Refused as refused:
            status, body = refused.args[0], json.dumps({"message": refused.args[1]}).encode()
        answers.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        answers.flush()


class Socket(socketserver.ThreadingUnixStreamServer):
    """An engine's socket, behind which is a stand-in for docker, as its context `context`."""

    daemon_threads = True  # connections may outlive it

    def __init__(self, path: Path, docker: Path, context: str = "alpha") -> None:
        self.words = [str(docker), "--context", context]
        super().__init__(str(path), Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_close(self) -> None:
        self.shutdown()
        super().server_close()


class Answers(socketserver.StreamRequestHandler):
    """One connection to it."""

    server: Socket

    def handle(self) -> None:
        serve(self.rfile, self.wfile, self.server.words)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, [str(Path(sys.argv[1])), *sys.argv[2:-2]])
