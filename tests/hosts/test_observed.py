"""What an engine says of its containers and of itself -> what stands on a host."""

from __future__ import annotations

import json

import pytest

from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.observed import (
    LABELS,
    Container,
    EngineFacts,
    Observed,
    engine_facts,
    observe,
    parse_container,
    parse_info,
    parse_ranks,
    parse_snapshot,
)

LABELLED = {"cluster": "demo", "host": "beta", "spec": "s1", "keys": "k1", "code": "c1", "image": "i1"}
NOW = 1.9e9
TOLD = {
    "Id": "9f1c" * 16,
    "Names": ["/demo-worker-1"],
    "State": "running",
    "Status": "Up 2 minutes (healthy)",
    "Image": "trainer:1",
    "Created": int(NOW) - 120,
    "Labels": {
        "com.docker.compose.project": "demo",
        "com.docker.compose.service": "worker",
        **{f"hvdcompose.{name}": value for name, value in {**LABELLED, "port": "12345", "gpus": "all"}.items()},
    },
}
WORKER = Container(
    id="9f1c" * 16,
    name="demo-worker-1",
    state="running",
    status="Up 2 minutes (healthy)",
    image="trainer:1",
    service="worker",
    cluster="demo",
    host="beta",
    spec="s1",
    keys="k1",
    code="c1",
    image_digest="i1",
    launch="",
    run="",
    port="12345",
    gpus="all",
    project="demo",
    age=120.0,
)


def other(**labels: str | None) -> dict:
    """Return the container with other labels; None: without one."""
    names = {name.replace("_", "."): value for name, value in labels.items()}
    told = {name: value for name, value in {**TOLD["Labels"], **names}.items() if value is not None}
    return {**TOLD, "Labels": told}


def test_a_snapshot():
    assert parse_snapshot([TOLD], "demo", NOW) == Observed((WORKER,))
    assert parse_snapshot([], "demo", NOW) == Observed()


def test_each_label_lands_in_its_place():
    """Every value is another one: two that are swapped would be seen."""
    labels = {f"hvdcompose.{name}": f"v{at}" for at, name in enumerate(LABELS)}
    found = parse_container({**TOLD, "Labels": labels}, NOW)
    fields = {"image": "image_digest"}
    assert [getattr(found, fields.get(name, name)) for name in LABELS] == list(labels.values())
    assert (found.project, found.service) == ("", "")


def test_a_container_without_labels_and_with_the_names_that_links_give_it():
    told = {**TOLD, "Labels": None, "Names": ["/web/alias", "/demo-worker-1"]}
    found = parse_container(told, NOW)
    assert (found.name, found.cluster) == ("demo-worker-1", "")


def test_other_clusters_are_told_apart_and_other_projects_passed_over():
    """A container of this project without a cluster is another Compose project's of the same name."""
    second = other(com_docker_compose_project="second", hvdcompose_cluster="second")
    web = other(com_docker_compose_project="shop", hvdcompose_cluster=None)
    same_name = other(hvdcompose_cluster=None)
    seen = parse_snapshot([second, web, same_name, TOLD], "demo", NOW)
    assert [c.cluster for c in seen.containers] == ["", "demo"]
    assert [(c.cluster, c.port) for c in seen.others] == [("second", "12345")]


def test_a_container_is_recent_for_its_first_minute():
    for age, recent in ((-3.0, True), (0.0, True), (59.0, True), (60.0, False)):
        assert Container("i", "n", "created", "Created", "im", "fill", age=age).recent is recent


TOP = """PID                 COMMAND
4711                /sbin/docker-init -- /hvd/worker
4712                sshd: /usr/sbin/sshd -D -e -f /hvd/sshd_config [listener] 0 of 200-400 startups
4713                sh -c cd /hvd/code && /hvd/rank python code/job.py
4714                python3 /hvd/rank python code/job.py --epochs 3
4715                python code/job.py --epochs 3
4716                /usr/local/bin/python3.8 /hvd/rank true
4717                grep /hvd/rank
"""


def test_ranks_are_known_by_their_wrapper():
    assert parse_ranks(TOP) == ("python code/job.py --epochs 3", "true")


STATES = [
    # state, Docker's words, exit code, health, live
    ("running", "Up 2 minutes (healthy)", None, "healthy", True),
    ("running", "Up 2 minutes (unhealthy)", None, "unhealthy", True),
    ("running", "Up 1 second (health: starting)", None, "starting", True),
    ("running", "Up 3 days", None, "", True),
    ("paused", "Up 2 minutes (Paused)", None, "", True),
    ("restarting", "Restarting (1) 5 seconds ago", None, "", True),
    ("exited", "Exited (0) 3 seconds ago", 0, "", False),
    ("exited", "Exited (137) 2 weeks ago", 137, "", False),
    ("created", "Created", None, "", False),
    ("dead", "Dead", None, "", False),
    ("removing", "Removal In Progress", None, "", False),
]


@pytest.mark.parametrize(("state", "status", "code", "health", "live"), STATES)
def test_states(state, status, code, health, live):
    found = Container("id", "name", state, status, "trainer:1", "worker")
    assert (found.exit_code, found.health, found.live) == (code, health, live)


def test_a_service_s_container():
    launcher = Container("id", "demo-launcher-1", "exited", "Exited (0)", "trainer:1", "launcher")
    seen = Observed((WORKER, launcher))
    assert seen.service("launcher") == launcher and seen.service("fill") is None


INFO = {
    "ID": "abc",
    "ServerVersion": "28.2.2",
    "Architecture": "x86_64",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
}
INFOS = [
    pytest.param(INFO, EngineFacts("abc", "28.2.2", False, "x86_64"), id="rootful"),
    pytest.param(
        {**INFO, "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]},
        EngineFacts("abc", "28.2.2", True, "x86_64"),
        id="rootless",
    ),
    pytest.param({**INFO, "SecurityOptions": None}, EngineFacts("abc", "28.2.2", False, "x86_64"), id="no options"),
    pytest.param({}, EngineFacts("", "", False, ""), id="an engine that tells nothing"),
]


@pytest.mark.parametrize(("told", "facts"), INFOS)
def test_engine_facts(told, facts):
    assert parse_info(told) == facts


def test_a_host_is_asked_through_its_context(program, tmp_path):
    then = f"""cat <<'END'\n{json.dumps(TOLD)}\nEND\n"""
    program("docker", f'echo "$*" >> {tmp_path}/words\n{then}')
    seen = observe(Engine("beta", "c1", ""), "demo")
    assert [container.id for container in seen.containers] == [WORKER.id]
    assert (tmp_path / "words").read_text() == "--context c1 ps --all\n"


def test_facts_are_asked_of_the_context(program):
    program("docker", f"cat <<'END'\n{json.dumps(INFO)}\nEND\n")
    assert engine_facts(Engine("beta", "c1")).version == "28.2.2"


def test_a_container_is_young_for_its_first_seconds():
    young = ("Up Less than a second", "Up 1 second", "Up 59 seconds (healthy)")
    old = ("Up About a minute", "Up 2 hours", "Exited (0) 3 seconds ago")
    for status in (*young, *old):
        state = "exited" if status.startswith("Exited") else "running"
        assert Container("i", "n", state, status, "im", "launcher").young == (status in young)
