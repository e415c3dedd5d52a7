"""Tar archives as `docker cp` takes and gives them."""

from __future__ import annotations

import io
import tarfile

from hvdcompose.hosts.tars import Entry, file_of, files_of, lines_of, pack

ENTRIES = (
    Entry("/hvd/code", None, 0o755),
    Entry("/hvd/code/run.sh", b"#!/bin/sh\n", 0o755),
    Entry("/hvd/code/" + "long/" * 60 + "näme 🚀", b"\0\xff" * 700, 0o644),
)


def members(tar: bytes):
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return [(m.name, m.isdir(), m.mode, m.uid, m.gid, m.size) for m in archive]


def test_everything_is_root_s_and_relative_to_the_root_of_the_container():
    assert members(pack(ENTRIES)) == [
        ("hvd/code", True, 0o755, 0, 0, 0),
        ("hvd/code/run.sh", False, 0o755, 0, 0, 10),
        ("hvd/code/" + "long/" * 60 + "näme 🚀", False, 0o644, 0, 0, 1400),
    ]


def test_contents_come_back():
    assert files_of(pack(ENTRIES)) == {
        "hvd/code/run.sh": b"#!/bin/sh\n",
        "hvd/code/" + "long/" * 60 + "näme 🚀": b"\0\xff" * 700,
    }


def test_the_same_entries_give_the_same_bytes():
    assert pack(ENTRIES) == pack(list(ENTRIES))
    assert pack(ENTRIES) != pack(ENTRIES[:2])


def test_names_that_are_not_utf_8_come_back():
    name = b"caf\xe9".decode(errors="surrogateescape")
    assert list(files_of(pack([Entry(f"/{name}", b"x", 0o644)]))) == [name]


def test_the_first_file():
    assert file_of(pack(ENTRIES)) == b"#!/bin/sh\n"
    assert file_of(pack([Entry("/empty", b"", 0o644)])) == b""
    assert file_of(pack([Entry("/folder", None, 0o755)])) is None
    assert file_of(pack([])) is None


def test_links_in_a_tar_of_somebody_else_are_passed_over():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("id_ed25519")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
        tar.addfile(link)
    assert files_of(buffer.getvalue()) == {}


def test_lines_of_several_files_are_read_as_they_are_asked_for():
    entries = [
        Entry("/run/a.log", b"a1\na2\r\na3", 0o644),
        Entry("/run/b.log", b"b1\n\xff\n", 0o644),
        Entry("/run/rank-0.json", b"{}", 0o644),
    ]
    logs = lines_of(io.BytesIO(pack(entries)), ".log")
    assert list(logs) == ["a.log", "b.log"]
    assert [next(logs["a.log"]), next(logs["b.log"]), next(logs["a.log"])] == ["a1", "b1", "a2"]
    assert (list(logs["a.log"]), list(logs["b.log"])) == (["a3"], ["\ufffd"])
