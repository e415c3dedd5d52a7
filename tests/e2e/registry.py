"""A registry that gives one image: run inside a virtual host's network, where its engine trusts 127.0.0.1 without TLS.

As a program: `registry.py SAVED PORT` serves the image in an archive of `docker save`, under any name.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import sys
import tarfile
from pathlib import Path

OCI = "application/vnd.oci.image"


def blobs_of(saved: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return (manifest, {digest: blob}) of the image in an archive of `docker save`."""
    with tarfile.open(saved) as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

        told = json.loads(read("manifest.json"))[0]
        config, layers = read(told["Config"]), [read(name) for name in told["Layers"]]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": _descriptor(config, f"{OCI}.config.v1+json"),
        "layers": [_descriptor(layer, f"{OCI}.layer.v1.tar") for layer in layers],
    }
    return json.dumps(manifest).encode(), {_digest(blob): blob for blob in (config, *layers)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(blob: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def serve(saved: Path, port: int) -> None:
    """Answer until the process is ended."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            manifest, blobs = blobs_of(saved) if saved.exists() else (b"", {})
            wanted = self.path.rpartition("/")[2]
            if self.path == "/v2/":
                self.answer(200, b"{}", "application/json")
            elif "/manifests/" in self.path and manifest:
                self.answer(200, manifest, f"{OCI}.manifest.v1+json")
            elif wanted in blobs:
                self.answer(200, blobs[wanted], "application/octet-stream")
            else:
                told = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                self.answer(404, json.dumps(told).encode(), "application/json")

        do_HEAD = do_GET  # noqa: N815

        def answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            headers = {"Content-Type": kind, "Content-Length": len(body), "Docker-Content-Digest": _digest(body)}
            for name, value in {**headers, "Docker-Distribution-Api-Version": "registry/2.0"}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
