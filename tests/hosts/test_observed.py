"""What `docker ps` and `docker info` say -> what stands on a host."""

from __future__ import annotations

import json
import re

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.observed import (
    LABELS,
    TEMPLATE,
    Container,
    EngineFacts,
    Observed,
    engine_facts,
    observe,
    parse_info,
    parse_ranks,
    parse_snapshot,
)

PROJECT = "com.docker.compose.project"
ROW = ["9f1c" * 16, "demo-worker-1", "running", "Up 2 minutes (healthy)", "trainer:1", "worker"]
ROW += ["demo", "beta", "s1", "k1", "c1", "i1", "", "", "12345", "all", "demo", "2 minutes ago"]
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
    age="2 minutes ago",
)


def test_a_snapshot():
    assert parse_snapshot(json.dumps(ROW) + "\n", "demo") == Observed((WORKER,))
    assert parse_snapshot("", "demo") == Observed()


def test_each_field_lands_in_its_place():
    """Every value is another one: two that are swapped would be seen."""
    row = [f"v{number}" for number in range(len(ROW))]
    (found,) = parse_snapshot(json.dumps(row), "v16").containers
    names = ["id", "name", "state", "status", "image", "service", *LABELS]
    assert [getattr(found, {"image": "image"}.get(name, name)) for name in names[:6]] == row[:6]
    labels = {"image": "image_digest"}
    assert [getattr(found, labels.get(name, name)) for name in LABELS] == row[6:-2]
    assert (found.project, found.age) == ("v16", "v17")


def test_docker_is_asked_for_what_is_read():
    fields = re.findall(r'\.Label "([^"]+)"', TEMPLATE)
    assert fields == ["com.docker.compose.service", *(f"hvdcompose.{name}" for name in LABELS), PROJECT]
    assert TEMPLATE.count("{{json ") == len(ROW)


def test_other_clusters_are_told_apart_and_other_projects_passed_over():
    """A container of this project without a cluster is another Compose project's of the same name."""
    other = json.dumps([*ROW[:6], "second", *ROW[7:-2], "second", ROW[-1]])
    web = json.dumps([*ROW[:5], "web", *[""] * 10, "shop", ROW[-1]])
    same_name = json.dumps([*ROW[:5], "web", *[""] * 10, "demo", ROW[-1]])
    seen = parse_snapshot("\n".join([other, web, same_name, json.dumps(ROW)]), "demo")
    assert [c.cluster for c in seen.containers] == ["", "demo"]
    assert [(c.cluster, c.port) for c in seen.others] == [("second", "12345")]


def test_a_container_is_recent_for_its_first_seconds():
    for age, recent in (("Less than a second ago", True), ("59 seconds ago", True), ("About a minute ago", False)):
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


def test_warnings_among_the_lines_are_passed_over():
    text = f"WARNING: Error loading config file\n{json.dumps(ROW)}\n"
    assert parse_snapshot(text, "demo") == Observed((WORKER,))


def test_values_with_quotes_and_newlines():
    row = [*ROW[:6], 'de"mo', "a\\b", "s\n1", *ROW[9:]]
    (found,) = parse_snapshot(json.dumps(row), "demo").containers
    assert (found.cluster, found.host, found.spec) == ('de"mo', "a\\b", "s\n1")


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
    assert parse_info("beta", json.dumps(told)) == facts


def test_an_engine_that_is_off_answers_in_json_too():
    told = {"ServerErrors": ["Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"]}
    with pytest.raises(HostError) as caught:
        parse_info("beta", json.dumps(told))
    assert caught.value.host == "beta"
    assert caught.value.message.startswith("its Docker engine does not answer: ")


def test_one_call_asks_for_a_whole_host(program, tmp_path):
    program("docker", f"printf '%s\\n' \"$@\" >> {tmp_path}/words\ncat <<'END'\n{json.dumps(ROW)}\nEND\n")
    assert observe(Engine("beta", "c1", ""), "demo") == Observed((WORKER,))
    assert (tmp_path / "words").read_text().splitlines() == [
        *("--context", "c1", "ps", "--all", "--no-trunc"),
        *("--filter", f"label={PROJECT}", "--format", TEMPLATE),
    ]


def test_facts_are_asked_of_the_context(program, tmp_path):
    program("docker", f"echo \"$*\" > {tmp_path}/words\ncat <<'END'\n{json.dumps(INFO)}\nEND\n")
    assert engine_facts(Engine("beta", "c1")).version == "28.2.2"
    assert (tmp_path / "words").read_text() == "--context c1 info --format {{json .}}\n"


def test_a_container_is_young_for_its_first_seconds():
    young = ("Up Less than a second", "Up 1 second", "Up 59 seconds (healthy)")
    old = ("Up About a minute", "Up 2 hours", "Exited (0) 3 seconds ago")
    for status in (*young, *old):
        state = "exited" if status.startswith("Exited") else "running"
        assert Container("i", "n", state, status, "im", "launcher").young == (status in young)
