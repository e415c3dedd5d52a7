"""What tools/engine.py reads out of other programs' words."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "tools" / "engine.py"
SPEC = importlib.util.spec_from_file_location("tool_engine", PATH)
engine = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(engine)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.40.3", (2, 40, 3)),
        ("v2.23.0-desktop.1", (2, 23, 0)),
        ("1:2.26.1-4", (2, 26, 1)),
        ("2.37.1+ds1-0ubuntu2~24.04.1", (2, 37, 1)),
        ("1.29.2-3", (1, 29, 2)),
        ("dev", ()),
        ("", ()),
    ],
)
def test_versions(text, version):
    assert engine.version_of(text) == version


def test_no_version_is_older_than_any():
    assert engine.version_of("") < engine.OLDEST_COMPOSE <= engine.version_of("2.23")


def test_the_candidate_of_apt():
    policy = "docker-compose:\n  Installed: (none)\n  Candidate: 2.26.1-4\n  Version table:\n"
    assert engine.candidate(policy) == "2.26.1-4"
    assert engine.candidate("x:\n  Candidate: (none)\n") == ""
    assert engine.candidate("N: Unable to locate package x") == ""


def test_an_unknown_word_is_a_usage_error(capsys):
    assert engine.main(["strat"]) == 2
    assert "tools/engine.py stop" in capsys.readouterr().err


def test_stop_leaves_an_engine_alone_that_was_not_started_from_here(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(engine, "PID", tmp_path / "dockerd.pid")
    assert engine.main(["stop"]) == 0
    assert "nothing to stop" in capsys.readouterr().err


def test_stop_does_not_touch_a_process_that_only_has_the_old_number(monkeypatch, tmp_path):
    record = tmp_path / "dockerd.pid"
    record.write_text("1 99999999999\n")
    monkeypatch.setattr(engine, "PID", record)
    assert engine.main(["stop"]) == 0
    assert not record.exists()


def test_docker_host_without_an_engine_is_told_and_nothing_installed(monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    monkeypatch.setattr(engine, "apt", lambda packages: pytest.fail("installed"))
    assert engine.main([]) == 1
    assert "DOCKER_HOST=unix:///nonexistent.sock" in capsys.readouterr().err
