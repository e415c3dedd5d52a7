"""How hosts come by the image, and what a person is told where they cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk import Desk
from made import IMAGE, Made, errors_of

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
  command: [sh, -c, "echo version $(cat /version)"]
"""


@pytest.fixture
def image(cluster: Made) -> Iterator[str]:
    """A name for an image of this test; it is removed from the client and the hosts."""
    name = f"{cluster.name}:1"
    yield name
    cluster.desk.engine("image", "rm", "--force", name)
    older = cluster.desk.engine("image", "ls", "--quiet", "--filter", f"label=of={cluster.name}").split()
    if older:
        cluster.desk.engine("image", "rm", "--force", *older)
    for number in range(1, 5):
        cluster.docker(number, "image", "rm", "--force", name, code=None)


def test_an_image_that_is_nowhere(cluster: Made, image: str) -> None:
    """Without a registry in reach, or without that image in it: each host with its own cause."""
    cluster.write(CLUSTER.replace("<image>", f"registry.invalid/{image}"))
    hosts = [cluster.desk.host(n) for n in (1, 2)]
    planned = cluster.hvd("plan").stderr
    why = "it has no such image, nor has this machine"
    assert re.findall(r"^(\S+) +pull image +(.*)$", planned, re.M) == [(host, why) for host in hosts]
    failed = cluster.hvd("apply", code=1)
    *told, summary = errors_of(failed)
    for host, line in zip(hosts, told, strict=True):
        begin = f"error: {host}: pulling registry.invalid/{image}: it cannot reach the registry registry.invalid: "
        assert re.fullmatch(re.escape(begin) + r"dial tcp: lookup registry\.invalid.*: .+", line)
    assert summary == "error: delivering the image: 2 of 2 hosts failed; nothing was launched"
    assert "  -> without a registry: have the image on this machine, and apply sends it" in failed.stderr

    cluster.edit(f"image: registry.invalid/{image}", f"image: {{name: {image}, pull: never}}")
    for command in ("plan", "apply"):
        refused = cluster.hvd(command, code=4).stderr
        assert refused == "".join(
            [
                f"error: {hosts[0]}: it has no image {image}, nor has this machine; `pull: never` asks no registry\n",
                f"{hosts[1]}: it has no image {image}, nor has this machine; `pull: never` asks no registry\n",
                f"  -> docker build -t {image} FOLDER here, and apply sends it\n",
            ]
        )
    status = cluster.hvd("status")
    assert len(re.findall(r"^\S+ +\S+ +\S+ +not there +refuse *$", status.stdout, re.M)) == 2
    assert status.stderr == f"apply would refuse:\n{refused}"
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]


def test_hosts_with_different_images_of_one_name(cluster: Made, image: str, tiny: str) -> None:
    h1, h2 = (cluster.desk.host(n) for n in (1, 2))
    commit = "docker create --name seed {tiny} true && docker commit -c 'LABEL v={host}' seed {image} && docker rm seed"
    for host in (h1, h2):
        send = f"docker --context default save {tiny} | docker --context {host} load"
        subprocess.run(["sh", "-c", send], check=True, env=cluster.desk.env, capture_output=True)
        script = commit.format(tiny=tiny, host=host, image=image)
        cluster.desk.engine("exec", f"hvdcompose-{host}", "sh", "-c", script)
    cluster.write(CLUSTER.replace("<image>", image))
    refused = cluster.hvd("apply", code=4)
    digests = dict(re.findall(rf"^(\S+): {image} is ([0-9a-f]{{12}}) \(amd64\)$", refused.stderr, re.M))
    assert list(digests) == [h1, h2]
    assert digests[h1] != digests[h2]
    assert errors_of(refused) == ["error: the hosts have different images of one name:"]
    assert f"  -> have the right {image} on this machine: apply sends it to all; " in refused.stderr
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]

    subprocess.run(
        ["sh", "-c", f"docker --context {h1} save {image} | docker --context default load"],
        check=True, env=cluster.desk.env, capture_output=True,
    )  # fmt: skip
    cause = f"it has another one: {digests[h2]}, here {digests[h1]}"
    send = re.findall(r"^(\S+) +send image +(.*)$", cluster.hvd("plan").stderr, re.M)
    assert send == [(h2, cause)]
    assert re.search(rf"^{h2} +image is there$", cluster.hvd("apply", code=4).stderr, re.M)  # no python3 in it
    assert "send image" not in cluster.hvd("plan").stderr


def test_an_image_that_is_built_here(cluster: Made, image: str) -> None:
    """Built on the client, sent, built anew when its folder changed. Its root account is locked, and ssh works."""
    folder = cluster.folder / "image"
    folder.mkdir()
    lock = "RUN sed -i 's/^root:[^:]*/root:!/' /etc/shadow\n"
    base = f"FROM {IMAGE}\nLABEL of={cluster.name}\n"
    (folder / "Dockerfile").write_text(f"{base}ARG V=none\n{lock}RUN echo $V > /version\n")
    cluster.write(CLUSTER.replace("<image>", f"{{name: {image}, build: ./image, args: {{V: first}}}}"))
    hosts = [cluster.desk.host(n) for n in (1, 2)]
    planned = cluster.hvd("plan").stderr
    assert re.findall(r"^(.+?)  +build image +(.*)$", planned, re.M) == [("this machine", "not built yet")]
    assert re.findall(r"^(\S+) +send image +(.*)$", planned, re.M) == [(host, "after the build") for host in hosts]
    first = cluster.hvd("apply", "--follow")
    assert f"this machine  building {image}\n" in first.stderr
    assert first.stdout.count("| version first\n") == 2
    built = [_build_label(cluster, number, image) for number in (None, 1, 2)]
    assert re.fullmatch(r"[0-9a-f]{12}", built[0])
    assert len(set(built)) == 1
    cluster.settled()
    before = cluster.ids(1, 2)

    (folder / "Dockerfile").write_text(f"{base}RUN echo one; echo two >&2; exit 3\n")
    failed = cluster.hvd("apply", code=1)
    assert "this machine  build image  its folder changed\n" in failed.stderr
    assert errors_of(failed) == [f"error: this machine: building {image} from {folder} failed (exit 3)"]
    tail = [line for line in failed.stderr.splitlines() if line.startswith("  this machine | ")]
    assert {"  this machine | one", "  this machine | two"} < set(tail)  # in what order the builder likes
    assert re.search("returned a non-zero code: 3|exit code: 3", tail[-1])  # the old builder, BuildKit
    assert cluster.ids(1, 2) == before
    left = cluster.desk.engine("ps", "--all", "--quiet", "--filter", f"label=of={cluster.name}")
    assert left == ""  # nor the step that failed

    (folder / "Dockerfile").write_text(f"{base}RUN echo second > /version\n")
    second = cluster.hvd("apply", "--follow")
    assert re.search(rf"^{hosts[1]} +worker is ready$", second.stderr, re.M)
    assert second.stdout.count("| version second\n") == 2
    changed = [_build_label(cluster, number, image) for number in (None, 1, 2)]
    assert len(set(changed)) == 1
    assert changed != built
    cluster.settled()


def _build_label(made: Made, number: int | None, image: str) -> str:
    """Return the label of what the image was built from, on a host or (None) on the client."""
    words = ("image", "inspect", image)
    told = made.desk.engine(*words) if number is None else made.docker(number, *words)
    return json.loads(told)[0]["Config"]["Labels"]["hvdcompose.build"]


def test_a_disk_that_is_full(cluster: Made, odd: Desk) -> None:
    full, h2 = odd.host(1), cluster.desk.host(2)
    hosts = f"  {full}: {{address: {odd.address(1)}}}\n  <h2>}}\n"
    cluster.write(CLUSTER.replace("  <h1>}\n  <h2>}\n", hosts))
    failed = cluster.hvd("apply", code=1)
    *told, summary = errors_of(failed)
    assert told == [f"error: {full}: sending {_name(cluster)}: its disk is full"]
    assert re.fullmatch(
        rf"error: delivering the image: 1 of [12] hosts failed( \(not {h2}\))?; nothing was launched", summary
    )
    assert re.search(rf"^  {full} \| .*no space left on device$", failed.stderr, re.M)
    assert (
        "  -> on that host: docker system df shows what takes the space, docker system prune frees it\n"
        in failed.stderr
    )
    assert cluster.containers(2) == []
    cluster.write(CLUSTER)


def in_front_of_docker(folder: Path, script: str) -> dict[str, str]:
    """Return the environment in which a script goes before every docker command; `$real` is docker itself."""
    folder.mkdir()
    wrapper = folder / "docker"
    wrapper.write_text(f'#!/bin/sh\nreal={shutil.which("docker")}\n{script}\nexec $real "$@"\n')
    wrapper.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def loaded(made: Made, source: str, name: str, number: int) -> None:
    """Give an image of the client's another name on a host."""
    script = f"docker --context default save {source} | docker --context {made.desk.host(number)} load"
    subprocess.run(["sh", "-c", script], check=True, env=made.desk.env, capture_output=True)
    made.docker(number, "tag", source, name)


def test_a_host_that_freezes_while_the_image_comes(cluster: Made, image: str, tiny: str) -> None:
    """The others have theirs; it is served alone, and here it wakes for that."""
    h1, h2, h3 = (cluster.desk.host(n) for n in (1, 2, 3))
    cluster.desk.engine("tag", tiny, image)
    cluster.write(CLUSTER.replace("<image>", image).replace("  <h2>}\n", "  <h2>}\n  <h3>}\n"))
    once = cluster.folder / "once"
    freeze = f"verb=pause; [ ! -e {once} ] || verb=unpause; touch {once}"
    script = f'case "$*" in "save "*) {freeze}; $real --context default $verb hvdcompose-{h2} >/dev/null;; esac'
    try:
        told = cluster.hvd("apply", code=4, **in_front_of_docker(cluster.folder / "bin", script)).stderr
    finally:
        cluster.desk.docker("--context", "default", "unpause", f"hvdcompose-{h2}", code=None)
    lines = [line for line in told.splitlines() if re.match(rf"({h1}|{h2}|{h3})  (image|nothing)", line)]
    assert [line for line in lines if line.startswith(h2)][1:] == [
        f"{h2}  nothing moved for 30 s: the others go on without it",
        f"{h2}  image {image} is sent once more, alone",
        f"{h2}  image is there",
    ]
    others = [lines.index(f"{host}  image is there") for host in (h1, h3)]
    assert max(others) < lines.index(f"{h2}  nothing moved for 30 s: the others go on without it")
    assert "send image" not in cluster.hvd("plan").stderr


def test_a_load_that_is_cut_off(cluster: Made, image: str, tiny: str) -> None:
    """The host does not pass for having it: it is sent once more, and what fails twice is told."""
    h2 = cluster.desk.host(2)
    cluster.desk.engine("tag", tiny, image)
    loaded(cluster, tiny, image, 1)
    cluster.write(CLUSTER.replace("<image>", image))
    left = cluster.folder / "left"
    left.write_text("xxx")
    # a clean end in the middle of the archive, as from a client that was killed
    cut = 'head -c 1000000 | $real "$@"; code=$?; cat >/dev/null; exit $code'
    script = f'case "$*" in *" load "*) if [ -s {left} ]; then truncate -s -1 {left}; {cut}; fi;; esac'
    env = in_front_of_docker(cluster.folder / "bin", script)
    failed = cluster.hvd("apply", code=1, **env)
    told, summary = errors_of(failed)
    assert told.startswith(f"error: {h2}: sending {image}: ")
    assert summary == "error: delivering the image: 1 of 1 hosts failed; nothing was launched"
    assert re.findall(r"^(\S+) +send image", cluster.hvd("plan").stderr, re.M) == [h2]

    again = cluster.hvd("apply", code=4, **env).stderr
    assert re.search(rf"^{h2} +image {image} is sent once more, alone\n{h2} +image is there$", again, re.M)
    assert left.read_text() == ""
    assert "send image" not in cluster.hvd("plan").stderr


def test_a_client_without_an_engine(cluster: Made, image: str, tiny: str) -> None:
    """The primary builds; and where only the primary has an image, the others get it from there."""
    h1, h2 = (cluster.desk.host(n) for n in (1, 2))
    loaded(cluster, tiny, tiny, 1)
    cluster.env = {"DOCKER_HOST": f"unix://{cluster.folder}/none.sock"}
    folder = cluster.folder / "image"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {tiny}\nCOPY note /note\n")
    (folder / "note").write_text("first\n")
    cluster.write(CLUSTER.replace("<image>", f"{{name: {image}, build: ./image}}"))
    for cause in ("not built yet", "its folder changed"):
        planned = cluster.hvd("plan").stderr
        builder = [(h1, f"{cause}; this machine has no engine")]
        assert re.findall(r"^(\S+) +build image +(.*)$", planned, re.M) == builder
        assert re.findall(r"^(\S+) +send image +(.*)$", planned, re.M) == [(h2, "after the build")]
        applied = cluster.hvd("apply", code=4).stderr  # no python3 in it
        assert re.search(rf"^{h2} +image {image}, 0.00 GB, is sent from {h1}\n{h2} +image is there$", applied, re.M)
        assert _build_label(cluster, 1, image) == _build_label(cluster, 2, image)
        assert re.findall("(build|send) image", cluster.hvd("plan").stderr) == []
        (folder / "note").write_text("second\n")

    cluster.write(CLUSTER.replace("<image>", f"{{name: {image}, pull: never}}"))
    cluster.docker(2, "image", "rm", "--force", image)
    why = f"it has no such image; {h1} has it, this machine has not"
    assert re.findall(r"^(\S+) +send image +(.*)$", cluster.hvd("plan").stderr, re.M) == [(h2, why)]
    assert re.search(rf"^{h2} +image is there$", cluster.hvd("apply", code=4).stderr, re.M)
    assert _build_label(cluster, 1, image) == _build_label(cluster, 2, image)
    cluster.docker(1, "image", "rm", "--force", image, tiny)


@pytest.fixture
def registries(cluster: Made, tmp_path: Path, tiny: str) -> Iterator[Callable[[int], None]]:
    """A registry on each of hosts 1 and 2, at its own 127.0.0.1:5000; called with a host, that one gets the image."""
    engine, saved = cluster.desk.engine, tmp_path / "saved"
    engine("save", "-o", str(saved), tiny)
    program = Path(__file__).with_name("registry.py")
    names = {n: f"{cluster.name}-registry{n}" for n in (1, 2)}
    for number, name in names.items():
        network = f"container:hvdcompose-{cluster.desk.host(number)}"
        words = ("python3", "/registry.py", "/saved", "5000")
        engine("create", "--name", name, "--network", network, "--entrypoint", words[0], IMAGE, *words[1:])
        engine("cp", str(program), f"{name}:/registry.py")
        engine("start", name)
    yield lambda number: engine("cp", str(saved), f"{names[number]}:/saved")
    engine("rm", "--force", *names.values())


def test_a_registry_is_asked_by_all_hosts_each_for_itself(
    cluster: Made, registries: Callable[[int], None], tmp_path: Path
) -> None:
    name = "127.0.0.1:5000/team/trainer:1"
    h1, h2 = (cluster.desk.host(n) for n in (1, 2))
    cluster.write(CLUSTER.replace("<image>", f"{{name: {name}, pull: always}}"))
    registries(1)
    failed = cluster.hvd("apply", code=1)
    assert re.search(rf"^{h1}  image is there$", failed.stderr, re.M)
    assert errors_of(failed) == [
        f"error: {h2}: pulling {name}: the registry has no such image",
        f"error: delivering the image: 1 of 2 hosts failed (not {h1}); nothing was launched",
    ]
    registries(2)
    there = cluster.hvd("apply", code=4).stderr  # no python3 in it
    assert set(re.findall(r"^(\S+)  image is there$", there, re.M)) == {h1, h2}
    assert "the image has no python3" in there
    for number in (1, 2):
        cluster.docker(number, "image", "rm", "--force", name)


def _name(made: Made) -> str:
    found = re.search(r"^image: (\S+)$", made.file.read_text(), re.M)
    assert found
    return found.group(1)
