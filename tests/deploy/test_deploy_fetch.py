"""What is here against what is there; and no byte is sent where there is no room for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hvdcompose.deploy import fetch
from hvdcompose.deploy.fetch import Source, bring, compare
from hvdcompose.errors import HvdError
from hvdcompose.hosts import local
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.output import Remote

SOURCE = Source(Engine("alpha", "c1"), "demo", "img", "demo-output")


class Silent:
    """Takes what happens, and tells nobody."""

    def host(self, host: str, text: str) -> None: ...

    def progress(self, host: str, text: str, percent: int) -> None: ...


def remote(path: str, data: bytes) -> Remote:
    return Remote(path, len(data), hashlib.sha256(data).hexdigest())


def test_every_entry_is_compared(tmp_path: Path):
    (tmp_path / "same").write_bytes(b"1")
    (tmp_path / "longer").write_bytes(b"11")
    (tmp_path / "other").write_bytes(b"2")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("same")
    (tmp_path / "linked").symlink_to("same")
    entries = [remote(name, b"1") for name in ("same", "longer", "other", "folder", "linked", "new", "same/below")]
    links = [Remote("link", link="same"), Remote("out", link="/data"), Remote("bad", fault="Input/output error")]
    sight = compare("r1", [*entries, *links], tmp_path)
    assert [entry.path for entry in sight.same] == ["same", "link"]
    assert [entry.path for entry in sight.different] == ["longer", "other", "folder", "linked"]
    assert [entry.path for entry in sight.missing] == ["new", "same/below"]
    assert set(sight.left) == {"out", "bad"}
    assert sight.unreadable


def test_a_disk_without_room_is_told_before_anything_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def sent(*_: object) -> None:
        raise AssertionError("a helper was started")

    monkeypatch.setattr(local, "free_bytes", lambda _: 2_000_000)
    monkeypatch.setattr(fetch, "open_output", sent)
    (tmp_path / "a.part").write_bytes(bytes(1_000_000))
    sight = compare("r1", [Remote("a", 5_000_000, "x")], tmp_path)
    with pytest.raises(HvdError, match=r"no room for 4\.0 MB, there are 2\.0 MB"):
        bring(SOURCE, sight, tmp_path, Silent())


def test_the_room_of_a_folder_that_is_not_made_yet(tmp_path: Path):
    assert local.free_bytes(tmp_path / "a" / "b") == pytest.approx(local.free_bytes(tmp_path), rel=0.1)
