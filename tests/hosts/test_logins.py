"""One login per host and command, with a stand-in for ssh; tests/e2e/test_contexts.py counts real logins."""

from __future__ import annotations

import os

import pytest

from hvdcompose.hosts import process
from hvdcompose.hosts.logins import Logins, destination


@pytest.fixture
def ssh_calls(program, tmp_path, monkeypatch):
    """Put a stand-in for ssh on PATH; return the function that gives what it was called with."""
    monkeypatch.setattr(process, "_first_on_path", [])
    log = tmp_path / "calls"
    log.touch()
    program("ssh", f'echo "$*" >> {log}\n')
    return lambda: log.read_text().splitlines()


@pytest.fixture
def logins():
    """Logins of a process of their own."""
    made = Logins()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ssh://gpu1", "-- gpu1"),
        ("ssh://me@GPU1", "-l me -- GPU1"),
        ("ssh://me@gpu1:2200", "-l me -p 2200 -- gpu1"),
        ("ssh://me@gpu1:22/run/user/1/docker.sock", "-l me -p 22 -- gpu1"),
        ("ssh://me@[fe80::A]:22", "-l me -p 22 -- fe80::A"),
    ],
)
def test_a_host_is_named_as_docker_names_it(url, words):
    assert destination(url) == words.split()


def test_a_host_is_logged_in_to_once(ssh_calls, logins):
    for _ in range(2):
        logins.share("ssh://me@gpu1")
    (call,) = ssh_calls()
    path = f"-o ControlPath={logins.folder}/%C"
    assert call.startswith(f"-f -N {path} -o ControlMaster=yes -o ControlPersist=30 ")
    assert call.endswith(" -l me -- gpu1")


def test_children_find_an_ssh_that_shares_it_and_never_becomes_a_master(ssh_calls, logins):
    logins.share("ssh://me@gpu1")
    process.run(["ssh", "-l", "me", "--", "gpu1", "docker", "system", "dial-stdio"], deadline=20)
    shared = f"-o ControlMaster=no -o ControlPath={logins.folder}/%C"
    assert ssh_calls()[1:] == [f"{shared} -l me -- gpu1 docker system dial-stdio"]


def test_at_the_end_the_masters_are_asked_to_go(ssh_calls, logins):
    for url in ("ssh://me@gpu1", "ssh://gpu2:2200"):
        logins.share(url)
    folder = logins.folder
    assert folder.is_dir()
    logins.close()
    exits = [f"-O exit -o ControlPath={folder}/%C {end}" for end in ("-l me -- gpu1", "-p 2200 -- gpu2")]
    assert sorted(ssh_calls()[2:]) == sorted(exits)
    assert not folder.exists()


def test_other_endpoints_take_no_login(ssh_calls, logins):
    for url in ("unix:///var/run/docker.sock", "tcp://gpu1:2376", ""):
        logins.share(url)
    assert ssh_calls() == [] and logins.folder is None


def test_without_ssh_nothing_is_shared(monkeypatch, tmp_path, logins):
    monkeypatch.setenv("PATH", str(tmp_path))
    logins.share("ssh://gpu1")
    assert logins.folder is None
    assert process.clean_environment()["PATH"] == os.environ["PATH"]


def test_the_path_of_its_socket_is_short_enough(ssh_calls, logins):
    logins.share("ssh://gpu1")
    digest, while_made = 40, 17  # %C is a SHA-1; ssh adds a dot and 16 characters until it listens
    assert len(f"{logins.folder}/") + digest + while_made < 108
