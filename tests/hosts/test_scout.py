"""What a host that no cluster.yaml knows yet says of itself."""

from __future__ import annotations

import json

import pytest
from standin import Socket
from test_nics import SEEN, TEXT

from hvdcompose.config.first import Nic
from hvdcompose.errors import HostError
from hvdcompose.hosts import scout as scouting
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.scout import endpoint_address, scout

REFUSES = "echo 'could not select device driver \"\" with capabilities: [[gpu]]' >&2; exit 125"


@pytest.fixture
def host(program, tmp_path, monkeypatch):
    """A host behind context c1 that answers, with the images and GPUs that a test gives it."""
    monkeypatch.setattr(Engine, "reach", lambda self: None)
    (tmp_path / "text").write_text(TEXT)

    def made(images: str = "", gpus: str = REFUSES, endpoint: str = "tcp://10.0.0.7:2376", **info) -> Engine:
        (tmp_path / "info").write_text(json.dumps({"ID": "x", "ServerVersion": "26.1", **info}))
        program(
            "docker",
            f"""
            shift 2
            echo "$*" >> {tmp_path}/calls
            case "$*" in
            info) cat {tmp_path}/info ;;
            "image ls") printf '{images}' ;;
            *"--gpus all"*) {gpus} ;;
            *"cat none:1"*) exit 127 ;;
            *"--entrypoint cat "*) cat {tmp_path}/text ;;
            *) exit 1 ;;
            esac
            """,
        )
        return Engine("c1", "c1", endpoint)

    return made


def test_a_host_with_the_image_tells_its_addresses_and_its_gpus(host):
    seen = scout(host(images="other:1\\ntrainer:1\\n", gpus="printf 'GPU 0: a\\nGPU 1: b\\n'"), "trainer:1")
    assert (seen.nics, seen.gpus, seen.endpoint) == (SEEN, 2, "10.0.0.7")
    assert (seen.engine.id, seen.engine.rootless) == ("x", False)


def test_the_image_is_tried_before_others(host, tmp_path):
    scout(host(images="other:1\\ntrainer:1\\n"), "trainer:1")
    runs = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("run ")]
    assert runs and all("trainer:1" in line for line in runs)


def test_another_image_will_do_where_one_has_no_cat(host):
    assert scout(host(images="none:1\\nother:1\\n"), "trainer:1").nics == SEEN


def test_a_host_without_images_tells_only_its_runtime(host):
    assert scout(host(), "trainer:1").nics == ()
    assert scout(host(), "trainer:1").gpus == 0
    assert scout(host(Runtimes={"runc": {}, "nvidia": {}}), "trainer:1").gpus is None


def test_gpus_that_the_image_cannot_count(host):
    both = {"Runtimes": {"nvidia": {}}}
    assert scout(host(images="trainer:1\\n", gpus="true", **both), "trainer:1").gpus is None
    assert scout(host(images="trainer:1\\n", **both), "trainer:1").gpus == 0, "it refuses to give any"


def test_an_engine_of_this_machine_is_not_asked_for_addresses(host, monkeypatch, tmp_path):
    monkeypatch.setattr(scouting, "own_nics", lambda: (Nic("10.9.9.9", "eth9"),))
    monkeypatch.setattr(scouting, "OWN_SOCKETS", (f"{tmp_path}/docker.sock",))
    with Socket(tmp_path / "docker.sock", tmp_path / "bin" / "docker"):
        seen = scout(host(images="trainer:1\\n", endpoint=f"unix://{tmp_path}/docker.sock"), "trainer:1")
    assert (seen.nics, seen.endpoint) == ((Nic("10.9.9.9", "eth9"),), "")


def test_a_host_that_does_not_answer(program, tmp_path):
    program("docker", "exit 1\n")
    with pytest.raises(HostError, match="No such file or directory"):
        scout(Engine("c1", "c1", f"unix://{tmp_path}/none.sock"), "trainer:1")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tcp://10.0.0.3:2375", "10.0.0.3"),
        ("tcp://127.0.0.1:2375", ""),
        ("ssh://me@10.0.0.3:2222", "10.0.0.3"),
        ("ssh://me@localhost", ""),
        ("unix:///var/run/docker.sock", ""),
        ("", ""),
    ],
)
def test_the_address_of_an_endpoint(url, address, program):
    program("ssh", 'for word; do :; done; echo "hostname $word"\n')
    assert endpoint_address(url) == address


def test_an_endpoint_that_ssh_cannot_resolve(program):
    program("ssh", "echo hostname no-such-host.invalid\n")
    assert endpoint_address("ssh://rack") == ""
