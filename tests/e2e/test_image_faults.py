"""How hosts come by the image, and what a person is told where they cannot."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

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


def containers(made: Made) -> list[str]:
    """Return the cluster's containers on the hosts, in whatever state."""
    label = f"label=com.docker.compose.project={made.name}"
    return [made.docker(n, "ps", "--all", "--quiet", "--filter", label) for n in (1, 2)]


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
    assert containers(cluster) == ["", ""]


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
    assert containers(cluster) == ["", ""]

    subprocess.run(
        ["sh", "-c", f"docker --context {h1} save {image} | docker --context default load"],
        check=True, env=cluster.desk.env, capture_output=True,
    )  # fmt: skip
    cause = f"it has another one: {digests[h2]}, here {digests[h1]}"
    send = re.findall(r"^(\S+) +send image +(.*)$", cluster.hvd("plan").stderr, re.M)
    assert send == [(h2, cause)]
    assert re.search(rf"^{h2} +image is there$", cluster.hvd("apply", code=1).stderr, re.M)  # no python3 in it
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
    assert containers(cluster)[1] == ""
    cluster.write(CLUSTER)


def _name(made: Made) -> str:
    found = re.search(r"^image: (\S+)$", made.file.read_text(), re.M)
    assert found
    return found.group(1)
