"""The values of secrets: from variables and files of this machine, with every one that is missing told at once."""

from __future__ import annotations

import pytest

from hvdcompose.config.model import Secret
from hvdcompose.errors import REFUSED, Refused
from hvdcompose.hosts.secrets import read_secrets


def test_values_come_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "netrc").write_bytes(b"login\n")
    (tmp_path / "b").write_bytes(b"\0\xff\n")
    secrets = {"A": Secret(env="X"), "B": Secret(file="b"), "C": Secret(file="~/netrc")}
    assert read_secrets(secrets, tmp_path, {"X": "s3cret $HOME"}) == {
        "A": b"s3cret $HOME", "B": b"\0\xff\n", "C": b"login\n"
    }  # fmt: skip


def test_everything_that_is_missing_is_told_at_once_without_a_value(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "big").write_bytes(b"x" * (500 * 1024 + 1))
    secrets = {
        "A": Secret(env="NOT_SET"),
        "B": Secret(file="nowhere"),
        "C": Secret(env="GIVEN"),
        "D": Secret(env="BLANK"),
        "E": Secret(file="empty"),
        "F": Secret(file="big"),
        "G": Secret(file="."),
    }
    with pytest.raises(Refused) as caught:
        read_secrets(secrets, tmp_path, {"GIVEN": "s3cret", "BLANK": ""})
    assert caught.value.exit_code == REFUSED
    assert str(caught.value).splitlines() == [
        "train.secrets.A: the variable NOT_SET is not set in this environment",
        f"train.secrets.B: cannot read {tmp_path}/nowhere: No such file or directory",
        "train.secrets.D: the variable BLANK is empty",
        f"train.secrets.E: {tmp_path}/empty is empty",
        f"train.secrets.F: {tmp_path}/big is larger than 500 KiB",
        f"train.secrets.G: cannot read {tmp_path}: Is a directory",
    ]
    assert "s3cret" not in str(caught.value)


def test_without_secrets_nothing_is_asked(tmp_path):
    assert read_secrets({}, tmp_path, {}) == {}
