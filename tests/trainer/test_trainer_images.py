"""tools/images.py decides what to build: from contents alone, and without a call too many; no engine."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
import time
import tomllib

import pytest
from trainer_helpers import ROOT

_spec = importlib.util.spec_from_file_location("images", ROOT / "tools" / "images.py")
images = importlib.util.module_from_spec(_spec)
sys.modules["images"] = images
_spec.loader.exec_module(images)

DOCKERFILE = (ROOT / "trainer" / "Dockerfile").read_text()


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Put a stand-in for docker first on PATH: it logs its words, then runs the script given."""
    log = tmp_path / "docker.log"
    log.touch()

    def install(script: str):
        program = tmp_path / "bin" / "docker"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "$*" >> {log}\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return log

    return install


def test_versions_have_one_home_and_the_package_agrees():
    versions = images.read_versions(DOCKERFILE)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["trainer"]
    assert sorted(wanted) == sorted(
        [
            f"horovod=={versions.horovod}",
            f"torch=={versions.torch}",
            f"torchvision=={versions.torchvision}",
        ]
    )
    assert versions.torch_index == "https://download.pytorch.org/whl/cpu"


def test_our_own_code_is_the_last_stage_alone():
    below, top = images.split_dockerfile(DOCKERFILE)
    assert below + top == DOCKERFILE
    assert top.startswith(f"FROM {images.BUILD_STAGE}\n")
    assert "*.py" in top
    assert "*.py" not in below.replace("tv_cpu_shim.py", "")


def test_digest_keeps_borders():
    assert images.digest("ab", "c") != images.digest("a", "bc")
    assert images.digest("ab", b"c") == images.digest(b"ab", "c")


def test_up_to_date_costs_one_question(docker, monkeypatch, capsys):
    asked: list[str] = []

    def answer(image: str, label: str) -> str:
        asked.append(image)
        return known.setdefault("digest", "")

    known: dict[str, str] = {}
    monkeypatch.setattr(images, "build", lambda *words: known.__setitem__("digest", words[3][-1].split("=")[1]))
    monkeypatch.setattr(images, "image_label", answer)
    monkeypatch.setattr(images, "ensure_base", lambda suite: "debian")
    monkeypatch.setattr(images, "ensure_wheelhouse", lambda versions, python: None)
    monkeypatch.setattr(images, "build_jobs", lambda: 2)
    images.ensure_trainer(images.TAG, "bookworm")
    asked.clear()

    log = docker('test "$1 $2" = "image inspect" && echo ' + known["digest"])
    monkeypatch.undo()
    log = docker('test "$1 $2" = "image inspect" && echo ' + known["digest"])
    started = time.monotonic()
    images.ensure_trainer(images.TAG, "bookworm")
    assert time.monotonic() - started < 1
    assert capsys.readouterr().err.splitlines()[-1] == "hvd-trainer:cpu: up to date"
    assert len(log.read_text().splitlines()) == 1


def test_an_edited_line_of_code_leaves_horovod_alone(tmp_path, monkeypatch):
    """Compare what would be built before and after an edit of the trainer, and of the patch."""
    copy = tmp_path / "trainer"
    copy.mkdir()
    for path in (ROOT / "trainer").iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    built: list[list[str]] = []
    existing: dict[str, str] = {}

    def build(image, files, wheelhouse, options):
        built[-1].append(image.split(":")[0])
        existing[image] = next(word for word in options if word.startswith(images.DIGEST_LABEL)).split("=")[1]

    monkeypatch.setattr(images, "TRAINER", copy)
    monkeypatch.setattr(images, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(images, "build", build)
    monkeypatch.setattr(images, "image_label", lambda image, label: existing.get(image))
    monkeypatch.setattr(images, "ensure_base", lambda suite: "debian")
    monkeypatch.setattr(images, "ensure_wheelhouse", lambda versions, python: None)
    monkeypatch.setattr(images, "build_jobs", lambda: 2)

    def edit(name: str) -> None:
        with (copy / name).open("a") as file:
            file.write("# edited\n")

    for name in (None, None, "mnist.py", "patch-horovod.sh", "tv_cpu_shim.py"):
        if name:
            edit(name)
        built.append([])
        images.ensure_trainer(images.TAG, "bookworm")

    both = [images.BASE_REPOSITORY, "hvd-trainer"]
    assert built == [both, [], ["hvd-trainer"], both, both]


def test_context_is_a_tar_that_docker_takes(tmp_path):
    (tmp_path / "torch.whl").write_bytes(b"wheel")
    (tmp_path / ".complete").write_text("")
    stream = io.BytesIO()
    images.write_context(stream, {"Dockerfile": b"FROM x\n", "patch-horovod.sh": b"#!"}, tmp_path)

    # Docker's client tells a tar from a Dockerfile by this: a pax header first would be read as a Dockerfile.
    assert stream.getvalue()[:10] == b"Dockerfile"
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as archive:
        modes = {entry.name: oct(entry.mode) for entry in archive}
    assert modes == {"Dockerfile": "0o644", "patch-horovod.sh": "0o755", "wheelhouse/torch.whl": "0o644"}


def test_a_silent_registry_is_left_soon(docker, monkeypatch):
    monkeypatch.setattr(images, "REGISTRY_SILENCE", 0.3)
    docker("exec sleep 60")
    assert images.pull("debian:bookworm-slim") == "no answer within 0 s"


def test_a_refused_pull_says_why(docker):
    docker("echo Error response from daemon: no such host; exit 1")
    assert images.pull("debian:bookworm-slim") == "Error response from daemon: no such host"


def test_a_base_that_is_here_is_not_pulled(docker):
    log = docker("exit 0")
    assert images.main(["base", "trixie"]) == 0
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["image"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Cannot connect to the Docker daemon >&2; exit 1", "Docker does not answer: Cannot connect to"),
        ("exit 1", "Docker does not answer: it said nothing"),
    ],
)
def test_no_engine_is_one_sentence(docker, capsys, script, message):
    docker(script)
    assert images.main(["trainer"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"error: {message}")
    assert told.count("\n") == 1


def test_no_docker_is_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert images.main(["base", "trixie"]) == 1
    assert capsys.readouterr().err == "error: docker is not installed here\n"
