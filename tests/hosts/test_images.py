"""Which image it is, whatever store it lies in, and the words that build it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts import images
from hvdcompose.hosts.engine import Engine, client_words
from hvdcompose.hosts.images import HERE, ImageFacts, build_words, client_image, identity, image_facts, parse_image

TOLD = {
    "Id": "sha256:aaaa",
    "RepoTags": ["trainer:1"],
    "Created": "2026-01-01T00:00:00Z",
    "Architecture": "amd64",
    "Size": 1_410_000_000,
    "RootFS": {"Type": "layers", "Layers": ["sha256:l1", "sha256:l2"]},
    "Config": {
        "Env": ["PATH=/usr/bin", "A=1"],
        "Cmd": ["python3"],
        "Entrypoint": None,
        "WorkingDir": "/work",
        "User": "",
        "Labels": {"hvdcompose.build": "b1"},
    },
}


def changed(*path, to) -> dict:
    told = copy.deepcopy(TOLD)
    part = told
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = to
    return told


SAME = [
    pytest.param(changed("Id", to="sha256:bbbb"), id="another id: overlay2 and containerd give their own"),
    pytest.param(changed("RepoTags", to=["other:2"]), id="another name"),
    pytest.param(changed("Size", to=1), id="another size: stores count differently"),
    pytest.param(changed("Created", to="2027-01-01T00:00:00Z"), id="another time"),
    pytest.param(changed("Config", "Entrypoint", to=[]), id="no entrypoint, said otherwise"),
    pytest.param(changed("Config", "User", to=None), id="no user, said otherwise"),
    pytest.param(changed("Config", "Hostname", to="x"), id="a field of old engines"),
]


@pytest.mark.parametrize("told", SAME)
def test_the_same_image(told):
    assert identity(told) == identity(TOLD)


OTHER = [
    pytest.param(changed("RootFS", "Layers", to=["sha256:l1", "sha256:l3"]), id="layer"),
    pytest.param(changed("RootFS", "Layers", to=["sha256:l2", "sha256:l1"]), id="order of layers"),
    pytest.param(changed("RootFS", "Layers", to=["sha256:l1"]), id="a layer less"),
    pytest.param(changed("Architecture", to="arm64"), id="architecture"),
    pytest.param(changed("Config", "Env", to=["PATH=/usr/bin", "A=2"]), id="env"),
    pytest.param(changed("Config", "Cmd", to=["sh"]), id="command"),
    pytest.param(changed("Config", "Entrypoint", to=["/init"]), id="entrypoint"),
    pytest.param(changed("Config", "WorkingDir", to="/"), id="working directory"),
    pytest.param(changed("Config", "User", to="1000"), id="user"),
    pytest.param(changed("Config", "Labels", to={"hvdcompose.build": "b2"}), id="label"),
]


def test_other_images():
    digests = [identity(case.values[0]) for case in OTHER] + [identity(TOLD)]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 12 and set(digest) <= set("0123456789abcdef") for digest in digests)


def test_facts():
    assert parse_image(TOLD) == ImageFacts(identity(TOLD), "amd64", 1_410_000_000, "b1")
    bare = {"Architecture": "arm64", "Config": None, "RootFS": None}
    assert parse_image(bare) == ImageFacts(identity(bare), "arm64", 0, "")


def test_an_engine_is_asked(program, tmp_path):
    program("docker", f"echo \"$*\" > {tmp_path}/words\ncat <<'END'\n{json.dumps([TOLD])}\nEND\n")
    assert image_facts(Engine("beta", "c1"), "trainer:1") == parse_image(TOLD)
    assert (tmp_path / "words").read_text() == "--context c1 image inspect trainer:1\n"
    assert client_image("trainer:1") == parse_image(TOLD)
    assert (tmp_path / "words").read_text() == "image inspect trainer:1\n"


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ({}, ["docker", "save", "x"]),
        ({"DOCKER_CONTEXT": "mine"}, ["docker", "--context", "mine", "save", "x"]),
        ({"DOCKER_HOST": "unix:///d", "DOCKER_CONTEXT": "mine"}, ["docker", "--host", "unix:///d", "save", "x"]),
    ],
    ids=["neither", "a context", "a host wins"],
)
def test_this_machines_engine_is_the_one_that_docker_build_would_use(shell, words, monkeypatch):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    assert client_words("save", "x") == words


def test_an_image_that_is_not_there(program):
    program("docker", "echo '[]'; echo 'Error response from daemon: No such image: trainer:1' >&2; exit 1\n")
    assert image_facts(Engine("beta", "c1"), "trainer:1") is None


def test_an_engine_that_is_off_is_no_missing_image(program):
    program("docker", "echo 'Cannot connect to the Docker daemon at unix:///x.' >&2; exit 1\n")
    with pytest.raises(HostError):
        image_facts(Engine("beta", "c1"), "trainer:1")
    with pytest.raises(HostError) as caught:
        client_image("trainer:1")
    assert caught.value.host == "this machine"


def test_a_client_without_docker(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="this machine has no docker command"):
        client_image("trainer:1")


def test_the_words_of_a_build():
    there = build_words(Engine("beta", "c1"), "trainer:1", Path("/w"), {}, "d1")
    assert there[:4] == ["docker", "--context", "c1", "build"]
    words = build_words(HERE, "trainer:1", Path("/w/trainer"), {"CUDA": "12.6", "ODD": "a b$c\n"}, "d1")
    assert words == [
        *("docker", "build", "--force-rm", "--label", "hvdcompose.build=d1", "-t", "trainer:1"),
        *("--build-arg", "CUDA=12.6", "--build-arg", "ODD=a b$c\n", "/w/trainer"),
    ]


def test_a_build_tells_its_lines(program):
    program("docker", "echo one; printf '\\033[91mtwo\\n\\033[0m' >&2; echo; echo three\n")
    told: list[str] = []
    images.build(HERE, "trainer:1", Path("/w"), {}, "d1", told.append)
    assert sorted(told) == ["one", "three", "two"]


def test_a_build_that_fails_is_told_with_its_end(program):
    program("docker", "for i in $(seq 50); do echo line $i; done; echo broken >&2; exit 3\n")
    with pytest.raises(HostError) as caught:
        images.build(HERE, "trainer:1", Path("/w"), {}, "d1", lambda _: None)
    assert caught.value.message == "building trainer:1 from /w failed (exit 3)"
    lines = caught.value.output.splitlines()
    assert lines[-1] == "broken" and "line 50" in lines and "line 1" not in lines


def test_a_pull_tells_its_layers(program, tmp_path):
    program(
        "docker",
        f"""
        echo "$*" > {tmp_path}/words
        echo '1: Pulling from team/trainer'
        for layer in 0123456789ab ba9876543210; do echo "$layer: Pulling fs layer"; done
        for layer in ba9876543210 0123456789ab; do echo "$layer: Pull complete"; done
        """,
    )
    told: list[tuple[str, int]] = []
    images.pull(Engine("beta", "c1"), "team/trainer:1", lambda text, percent: told.append((text, percent)))
    assert (tmp_path / "words").read_text() == "--context c1 pull team/trainer:1\n"
    assert told[-2:] == [("image 1 of 2 layers", 50), ("image 2 of 2 layers", 100)]


def test_a_pull_that_fails_is_told_of_its_host(program):
    program("docker", "echo 'Error response from daemon: manifest unknown: manifest unknown' >&2; exit 1\n")
    with pytest.raises(HostError) as caught:
        images.pull(Engine("beta", "c1"), "team/trainer:1", lambda *_: None)
    assert (caught.value.host, caught.value.message) == (
        "beta", "pulling team/trainer:1: the registry has no such image"
    )  # fmt: skip


def test_a_pull_has_a_deadline(program, monkeypatch):
    monkeypatch.setattr(images, "PULL_SECONDS", 0.5)
    program("docker", "while :; do echo '0123456789ab: Waiting'; sleep 0.1; done\n")
    with pytest.raises(HostError, match="pulling team/trainer:1: no answer within 0 s"):
        images.pull(Engine("beta", "c1"), "team/trainer:1", lambda *_: None)
