"""Faults of hosts: what a person is told, that the other hosts are well, and that the next apply mends it."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from made import Made, errors_of, new_made

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
defaults: {slots: 1}
hosts:
  <h1>}
  <h2>}
  <h3>}
  <h4>}
train:
  command: [sh, -c, "echo rank $HOROVOD_RANK says hi"]
"""
TWO = CLUSTER.replace("  <h3>}\n  <h4>}\n", "")
HI = "hvdcompose: all 4 ranks ended with exit 0"


@pytest.fixture(scope="module")
def module_cluster(lab4: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    made = new_made(lab4, tmp_path_factory.mktemp("stand"))
    yield made
    lab4.lab("up")
    made.write(CLUSTER)
    made.clear()


@pytest.fixture
def stand(module_cluster: Made) -> Iterator[Made]:
    """One cluster for this file, standing; what a test breaks is mended by `lab up` and `apply`."""
    module_cluster.write(CLUSTER)
    module_cluster.hvd("apply", "--follow")
    yield module_cluster
    module_cluster.desk.lab("up")


def on_host(made: Made, number: int, *words: str) -> str:
    """Run a command on a virtual host itself."""
    return made.desk.engine("exec", f"hvdcompose-{made.desk.host(number)}", *words)


def test_hosts_that_are_off_or_frozen_keep_nothing_from_the_others(stand: Made) -> None:
    h1, h2, frozen, off = (stand.desk.host(n) for n in range(1, 5))
    socket = f"{stand.desk.folder}/state/hvdcompose/lab/{stand.desk.name}/{off}/docker.sock"
    told = [
        f"error: {frozen}: its Docker engine does not answer within 5 s: frozen, or overloaded",
        f"error: {off}: its Docker engine does not answer at {socket}: No such file or directory",
    ]
    before = stand.ids(1, 2)
    stand.desk.engine("pause", f"hvdcompose-{frozen}")
    stand.desk.engine("stop", "--time", "1", f"hvdcompose-{off}")

    began = time.monotonic()
    failed = stand.hvd("apply", code=1)
    assert time.monotonic() - began < 20
    summary = f"error: asking the hosts: 2 of 4 hosts failed (not {h1}, {h2}); nothing was launched"
    assert errors_of(failed) == [*told, summary]
    assert f"  -> docker --context {frozen} version\n" in failed.stderr
    assert stand.ids(1, 2) == before

    rows = {row["host"]: row for row in json.loads(stand.hvd("status", "--json", code=1).stdout)["data"]["hosts"]}
    assert rows[h1]["state"].startswith("Exited (0)")
    assert rows[h2]["state"].startswith("Up ")
    for host, line in ((frozen, told[0]), (off, told[1])):
        assert (rows[host]["state"], rows[host]["failed"]) == (line.removeprefix(f"error: {host}: "), True)
    assert [rows[host]["needs"] for host in (h1, h2)] == ["fail: not every host answers"] * 2

    logs = stand.hvd("logs", code=1)
    assert f"{h1}     | {HI}" in logs.stdout
    assert errors_of(logs) == told

    down = stand.hvd("down", code=1)
    assert re.findall(r"^(\S+) +removed$", down.stderr, re.M) in ([h1, h2], [h2, h1])
    summary = "error: 2 of 4 hosts could not be cleared; once they answer, again: hvdcompose down"
    assert errors_of(down) == [*told, summary]
    assert [stand.containers(n) for n in (1, 2)] == [[], []]

    stand.desk.lab("up")
    assert stand.containers(3) == [stand.container(3)]
    stand.hvd("down")
    assert [stand.containers(n) for n in range(1, 5)] == [[]] * 4
    again = stand.hvd("apply")
    assert again.stderr.count("no worker there") == 3
    assert "launched" not in again.stderr  # that launch ran before


def test_contexts_that_lead_nowhere(stand: Made) -> None:
    h1, h2, h3, h4 = (stand.desk.host(n) for n in range(1, 5))
    dead = stand.desk.address(89)
    for name, endpoint in (("dead", f"ssh://root@{dead}"), ("off", f"tcp://{stand.desk.address(4)}:2375")):
        stand.desk.docker("context", "create", f"{stand.desk.name}-{name}", "--docker", f"host={endpoint}")
    told = [
        f"error: {h2}: no route to {dead}:22: it is off, or on another network",
        f"error: {h3}: there is no Docker context nowhere on this machine",
        f"error: {h4}: nothing listens at {stand.desk.address(4)}:2375: the machine is up, its Docker engine is not",
    ]
    for number, context in ((2, f"{stand.desk.name}-dead"), (3, "nowhere"), (4, f"{stand.desk.name}-off")):
        stand.edit(f"{stand.desk.host(number)}: {{", f"{stand.desk.host(number)}: {{context: {context}, ")
    try:
        began = time.monotonic()
        failed = stand.hvd("apply", code=1)
        assert time.monotonic() - began < 20
        assert errors_of(failed) == [
            *told,
            f"error: asking the hosts: 3 of 4 hosts failed (not {h1}); nothing was launched",
        ]
        assert "  -> docker context create nowhere --docker host=ssh://USER@HOST\n" in failed.stderr
        status = stand.hvd("status", code=1).stdout
        assert re.search(rf"^{h1} +{h1} +launcher +(not there|Exited \(0\))", status, re.M)
        assert re.search(rf"^{h3} +nowhere +worker +there is no Docker context nowhere", status, re.M)
        assert errors_of(stand.hvd("down", code=1))[:3] == told
        assert stand.containers(1) == []
    finally:
        for name in ("dead", "off"):
            stand.desk.docker("context", "rm", "--force", f"{stand.desk.name}-{name}")
    stand.write(CLUSTER)
    stand.settled()  # the workers were never touched


def test_a_port_that_is_taken_on_one_host(cluster: Made) -> None:
    cluster.write(CLUSTER)
    _, h2, *others = (cluster.desk.host(n) for n in range(1, 5))
    listener = ("-m", "http.server", str(cluster.port))
    cluster.docker(2, "run", "--detach", "--name", "listener", "--network", "host", "--entrypoint", "python3",
                   _image(cluster), *listener)  # fmt: skip
    cluster.wait_for(lambda: f":{cluster.port:04X} " in on_host(cluster, 2, "cat", "/proc/net/tcp"), 30, "listens")
    try:
        refused = cluster.hvd("apply", code=4)
        assert errors_of(refused) == [
            f"error: {h2}: another program listens on port {cluster.port}: it says nothing by itself"
        ]
        assert f"  -> stop that program on {h2} (ss -ltnp shows it), or another `port` under `ssh`\n" in refused.stderr
        assert [cluster.containers(n) for n in range(1, 5)] == [[]] * 4
        cluster.docker(2, "stop", "--time", "0", "listener")
        cluster.hvd("doctor")  # all is well, and apply need not look at it again
        cluster.docker(2, "start", "listener")
        cluster.wait_for(lambda: f":{cluster.port:04X} " in on_host(cluster, 2, "cat", "/proc/net/tcp"), 30, "listens")
        failed = cluster.hvd("apply", code=1)
    finally:
        cluster.docker(2, "rm", "--force", "listener")
    why = f"cannot serve ssh: port {cluster.port}: Address already in use: another program of {h2} listens on it"
    assert errors_of(failed) == [
        f"error: {h2}: {why}",
        "error: not launched: 1 of 3 workers did not start",
    ]
    assert f"  {h2} | hvdcompose: {h2}: {why}\n" in failed.stderr
    for host in others:
        assert re.search(rf"^{host} +worker is ready$", failed.stderr, re.M)
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]
    stay = cluster.ids(3, 4)

    mended = cluster.hvd("apply", "--follow")
    assert re.findall(r"^(\S+) +create ", mended.stderr, re.M) == [h2]
    assert HI in mended.stdout
    assert cluster.ids(3, 4) == stay


def test_a_port_that_is_cut_off_on_one_host(stand: Made) -> None:
    rule = ("INPUT", "-p", "tcp", "--dport", str(stand.port), "-j", "DROP")
    h1, h3 = stand.desk.host(1), stand.desk.host(3)
    stand.edit("says hi", "says hello")
    stand.file.write_text(stand.file.read_text() + "horovod: {start_timeout: 10}\n")
    on_host(stand, 3, "iptables", "-I", *rule)
    try:
        failed = stand.hvd("apply", "--follow", code=1)
    finally:
        on_host(stand, 3, "iptables", "-D", *rule)
    who = f"{h3} ({stand.desk.address(3)}:{stand.port})"
    why = "no answer on that port: the host is off, or a firewall drops it"
    assert f"{h1}     | hvdcompose: not launched, 1 of 3 workers not ready:\n" in failed.stdout
    assert f"{h1}     |   {who}: {why}\n" in failed.stdout
    assert re.search(r"^run \S+ was not launched: the launcher ended with exit 69$", failed.stderr, re.M)
    assert "Exited (69)" in stand.hvd("status").stdout

    mended = stand.hvd("apply", "--follow")
    assert f"{h1}  launch       it was never started, the launcher ended with exit 69: " in mended.stderr
    assert HI in mended.stdout


def test_an_image_without_python(cluster: Made, tiny: str) -> None:
    cluster.write(TWO.replace("<image>", tiny))
    h1, h2 = cluster.desk.host(1), cluster.desk.host(2)
    failed = cluster.hvd("apply", code=4)
    assert errors_of(failed) == [f"error: {h1}: the image has no python3"]
    assert f"\n{h2}: the image has no python3\n" in failed.stderr
    assert "  -> the image needs Python 3, Horovod and OpenSSH\n" in failed.stderr
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]
    cluster.write(TWO)
    assert "all 2 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


def test_an_image_without_sshd_and_one_without_horovodrun(cluster: Made) -> None:
    """Something that is no program, laid over each, takes it away as an image without it would."""
    h1, h2 = cluster.desk.host(1), cluster.desk.host(2)
    paths = {"sshd": "/usr/sbin/sshd", "horovodrun": _which(cluster, "horovodrun")}
    hides = "  volumes: {<path>: {source: /dev/null, read_only: true}}\n"
    cluster.write(TWO + hides.replace("<path>", paths["sshd"]))
    failed = cluster.hvd("apply", code=4)
    assert errors_of(failed) == [f"error: {h2}: this image has no sshd"]
    assert "  -> install openssh-server and openssh-client in the image\n" in failed.stderr
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]

    cluster.write(TWO + hides.replace("<path>", paths["horovodrun"]))
    failed = cluster.hvd("apply", "--follow", code=4)
    assert errors_of(failed) == [f"error: {h1}: this image has no horovodrun"]
    assert "  -> install Horovod in the image, or put it on the image's PATH\n" in failed.stderr
    cluster.write(TWO)
    assert "all 2 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


def test_a_folder_that_one_host_lacks_and_one_that_may_only_be_read(cluster: Made) -> None:
    folder = f"/srv/{cluster.name}"
    h1, h2, h3 = (cluster.desk.host(n) for n in range(1, 4))
    cluster.write(
        CLUSTER.replace("  <h4>}\n", "").replace("says hi", "$(cat /data/hello) $(touch /data/x 2>&1)")
        + f"  volumes: {{/data: {{source: {folder}, read_only: true}}}}\n"
    )
    for number in (1, 2):
        on_host(cluster, number, "sh", "-c", f"mkdir {folder} && echo hello from $(hostname) > {folder}/hello")
    failed = cluster.hvd("apply", code=4)
    why = f"it has no folder {folder}, which cluster.yaml mounts"
    assert errors_of(failed) == [f"error: {h3}: {why}"]
    assert f"  -> make it on {h3}, or change the volume in cluster.yaml\n" in failed.stderr
    assert [cluster.containers(n) for n in (1, 2, 3)] == [[], [], []]
    on_host(cluster, 3, "sh", "-c", f"mkdir {folder} && echo hello from $(hostname) > {folder}/hello")
    ran = cluster.hvd("apply", "--follow").stdout
    refused = "touch: cannot touch '/data/x': Read-only file system"
    for rank, host in enumerate((h1, h2, h3)):
        assert f"{host} r{rank}  | rank {rank} hello from {host} {refused}\n" in ran

    on_host(cluster, 1, "mv", folder, f"{folder}-away")
    failed = cluster.hvd("run", code=4)
    assert errors_of(failed) == [f"error: {h1}: {why}"]
    assert cluster.containers(1) == [cluster.container(1)]  # the log of the last run stays
    on_host(cluster, 1, "mv", f"{folder}-away", folder)
    assert "all 3 ranks ended with exit 0" in cluster.hvd("run").stdout


def test_ulimits_that_an_engine_may_not_set(cluster: Made) -> None:
    """Here root itself may lock 8 MiB of memory at most; where it may lock all, the run is what has to work."""
    cluster.write(TWO.replace("  <h2>}", "  <h2>, ulimits: {memlock: -1}}"))
    h2 = cluster.desk.host(2)
    done = cluster.hvd("apply", "--follow", code=None)
    if done.returncode == 0:
        assert cluster.docker(2, "exec", cluster.container(2), "sh", "-c", "ulimit -l").strip() == "unlimited"
        return
    assert done.returncode == 4
    assert errors_of(done) == [f"error: {h2}: its engine may not set the ulimits of cluster.yaml"]
    assert f"  -> lower or drop `ulimits` for {h2} in cluster.yaml\n" in done.stderr
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]
    cluster.edit("memlock: -1", "memlock: 65536")
    assert "all 2 ranks ended with exit 0" in cluster.hvd("apply", "--follow").stdout


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("", "this machine has no `docker compose`; 2.23.1 or later is needed"),
        ("2.22.0", "this machine's `docker compose` is 2.22.0; 2.23.1 or later is needed"),
    ],
)
def test_compose_that_is_missing_or_too_old(cluster: Made, tmp_path: Path, version: str, told: str) -> None:
    real = shutil.which("docker")
    answer = f"echo {version}; exit 0" if version else "echo \"docker: 'compose' is not a docker command.\" >&2; exit 1"
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "docker"
    fake.write_text(f'#!/bin/sh\ncase " $* " in *" compose "*) {answer} ;; esac\nexec {real} "$@"\n')
    fake.chmod(0o755)
    cluster.write(TWO)
    cluster.env["PATH"] = f"{fake.parent}:{os.environ['PATH']}"
    for command in ("plan", "apply"):
        refused = cluster.hvd(command, code=4)
        assert errors_of(refused) == [f"error: {told}"]
        assert "  -> Debian, Ubuntu: apt install docker-compose-v2 " in refused.stderr
    del cluster.env["PATH"]
    assert [cluster.containers(n) for n in (1, 2)] == [[], []]


def _image(made: Made) -> str:
    """Return the image of a cluster.yaml."""
    found = re.search(r"^image: (\S+)$", made.file.read_text(), re.M)
    assert found
    return found.group(1)


def _which(made: Made, program: str) -> str:
    """Return where the image has a program."""
    made.write(TWO)
    return made.desk.engine("run", "--rm", "--entrypoint", "sh", _image(made), "-c", f"command -v {program}")
