"""Two clients of one cluster, and two clusters on the same hosts."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from deadly import deadly_docker
from made import Made, errors_of

from hvdcompose.hosts.claim import claim_volume

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1}
hosts:
  <h1>}
  <h2>}
train:
  command: "true"
"""
DONE = "all 2 ranks ended with exit 0"


@pytest.fixture
def pair(cluster: Made) -> Made:
    """A cluster on two hosts, not yet applied."""
    cluster.write(CLUSTER)
    return cluster


def elsewhere(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return the same cluster.yaml on another client: another folder, another state."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "cluster.yaml").write_text(made.file.read_text())
    return Made(made.desk, folder, made.name, made.port, {"XDG_STATE_HOME": str(folder / "state")})


def claims(made: Made) -> list[str]:
    """Return the claims that stand on the primary."""
    return made.docker(1, "volume", "ls", "--quiet", "--filter", "label=hvdcompose.claim").split()


def between(folder: Path, pattern: str, script: str, path: str) -> dict[str, str]:
    """Return the environment of a client in which something happens before a call of docker that is like `pattern`."""
    wrapper = folder / "docker"
    case = f'case "$*" in {pattern}) PATH={path}; {script} >&2 ;; esac'
    wrapper.write_text(f'#!/bin/sh\n{case}\nexec {shutil.which("docker")} "$@"\n')
    wrapper.chmod(0o755)
    return {"PATH": f"{folder}:{path}"}


def test_an_engine_makes_a_volume_of_a_name_once(pair: Made) -> None:
    """What the claim stands on: of many that make one at once, all are given the labels of the first."""
    words = ["docker", "--context", pair.desk.host(1), "volume"]
    makers = [
        subprocess.Popen([*words, "create", "--label", f"token={n}", pair.name], env=pair.desk.env, stdout=-1)
        for n in range(8)
    ]
    try:
        seen = set()
        for maker in makers:
            assert maker.wait(30) == 0
            told = subprocess.run([*words, "inspect", pair.name], env=pair.desk.env, stdout=-1, check=True)
            seen.add(json.loads(told.stdout)[0]["Labels"]["token"])
        assert len(seen) == 1
    finally:
        for maker in makers:
            maker.wait(30)
        pair.docker(1, "volume", "rm", pair.name)


def test_who_comes_second_is_told_who_is_first(pair: Made, tmp_path_factory, recording_docker) -> None:
    other = elsewhere(pair, tmp_path_factory)
    hold = tmp_path_factory.mktemp("hold")
    wait = f"while [ ! -e {hold}/go ]; do sleep 0.1; done"
    pair.env |= between(hold, "*compose*up*", wait, pair.desk.env["PATH"])
    first = pair.start("apply", "--follow")
    del pair.env["PATH"]
    pair.wait_for(lambda: claims(pair), 60, "the first client claims the cluster")

    for words in (["apply"], ["run"], ["down"], ["keys", "rotate"]):
        refused = other.hvd(*words, code=4)
        (error,) = errors_of(refused)
        assert f"cluster {pair.name} is being changed from elsewhere: hvdcompose apply by " in error
        assert f"(pid {first.pid}), since 20" in error
        assert f"hvdcompose {' '.join(words)} --take-over" in refused.stderr
    assert "create" in other.hvd("plan").stderr  # who only looks waits for nobody
    assert "the cluster is being changed: hvdcompose apply by " in other.hvd("status").stderr

    (hold / "go").touch()
    told, _ = first.communicate(timeout=120)
    assert first.returncode == 0 and DONE in told, told
    assert claims(pair) == []

    # the second finds what the first made, with its key, and claims nothing where nothing is to be done
    other.calm()
    env, calls = recording_docker
    assert "nothing to do" in other.hvd("apply", **env).stderr
    assert not [call for call in calls() if "claim" in call]
    assert DONE in other.hvd("run").stdout
    other.hvd("down", "--volumes", "--yes")
    assert claims(pair) == []


def test_a_claim_that_was_left_is_told_and_taken(pair: Made, tmp_path_factory) -> None:
    pair.env |= deadly_docker(tmp_path_factory.mktemp("deadly"), "*compose*up*")
    killed = pair.start("apply")
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    del pair.env["PATH"]
    assert claims(pair) == [claim_volume(pair.name)]

    other = elsewhere(pair, tmp_path_factory)
    assert f"(pid {killed.pid})" in other.hvd("apply", code=4).stderr
    assert DONE in pair.hvd("apply", "--follow").stdout  # the same client takes its own without a word
    assert claims(pair) == []

    pair.env |= deadly_docker(tmp_path_factory.mktemp("deadly"), "*compose*up*")
    killed = pair.start("run")
    killed.communicate(timeout=60)
    del pair.env["PATH"]
    assert DONE in other.hvd("run", "--take-over").stdout
    assert claims(pair) == []


def test_what_was_changed_since_the_look_is_seen(pair: Made, tmp_path_factory) -> None:
    """A client looks; before it has its turn a worker goes away: the plan is made anew."""
    pair.hvd("apply", "--follow")
    assert "nothing to do" in pair.hvd("plan").stderr  # this client saw the worker ready; Docker cannot say it yet
    hold = tmp_path_factory.mktemp("hold")
    words = f"docker --context {pair.desk.host(2)} rm --force {pair.container(2)}"
    env = between(hold, "*volume*create*claim*", words, pair.desk.env["PATH"])
    told = pair.hvd("run", **env)
    assert f"{pair.desk.host(2)}  create       no worker there" in told.stderr
    assert DONE in told.stdout


def test_a_port_and_gpus_that_another_cluster_has(pair: Made, tmp_path_factory) -> None:
    """The other one is told by name, before anything starts; what only fits side by side is let be."""
    h1, h2 = pair.desk.host(1), pair.desk.host(2)
    pair.file.write_text(pair.file.read_text().replace("defaults: {slots: 1}", "defaults: {slots: 1, gpus: ['0']}"))
    pair.hvd("apply", "--follow")
    folder = tmp_path_factory.mktemp("second")
    second = Made(pair.desk, folder, f"{pair.name}b", pair.port)
    second.write(CLUSTER.replace("defaults: {slots: 1}", "defaults: {slots: 1, gpus: ['0', '1']}"))
    try:
        worker = f"taken by cluster {pair.name}, container {pair.container(2)}"
        refused = second.hvd("apply", code=4).stderr
        assert f"error: {h2}: port {pair.port} is {worker}" in refused
        assert f"{h2}: GPU 0 is {worker}" in refused
        assert f"ssh.port: another one; or take {pair.name} down" in refused
        assert second.docker(2, "ps", "-aq", "--filter", f"label=hvdcompose.cluster={second.name}") == ""
        assert f"{h2}: port {pair.port} is {worker}" in second.hvd("status").stderr

        second.edit(f"port: {pair.port}", f"port: {pair.port + 5000}")
        second.edit("gpus: ['0', '1']", "gpus: ['1']")
        assert DONE in second.hvd("apply", "--follow").stdout
        assert DONE in pair.hvd("run").stdout
        assert h1 in pair.hvd("status").stdout
    finally:
        second.clear()
