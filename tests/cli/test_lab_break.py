"""`lab break` and `lab mend` as far as they go without an engine: the list of faults, and what cluster.yaml tells."""

from __future__ import annotations

import json

import pytest

from hvdcompose.cli.lab import _from_cluster
from hvdcompose.errors import ConfigError
from hvdcompose.lab.faults import FAULTS

CLUSTER = """
name: demo
image: hvd:1
ssh: {port: 2222}
hosts:
  alpha: {address: 10.0.0.1}
  beta: {address: 10.0.0.2, context: lab2, volumes: {/scratch: /mnt/fast, /cache: named}}
train:
  command: python train.py
  volumes: {/data: /srv/mnist}
"""


def test_the_list_has_every_fault_with_its_option(desk):
    code, out, err = desk.run("lab", "break", "--list")
    assert (code, err) == (0, "")
    shown = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert list(shown) == [fault.name for fault in FAULTS]
    for fault in FAULTS:
        assert fault.shown in shown[fault.name]
        assert (f"--{fault.value}" in shown[fault.name]) == (fault.value is not None)


def test_the_list_as_json(desk):
    code, out, _ = desk.run("lab", "break", "--list", "--json")
    assert code == 0
    told = json.loads(out)["data"]["faults"]
    assert [each["name"] for each in told] == [fault.name for fault in FAULTS]
    assert {"name": "frozen", "shown": told[3]["shown"], "value": None} == told[3]


def test_the_help_has_every_fault(desk):
    code, out, _ = desk.run("lab", "break", "--help")
    assert code == 0
    assert [line for line in out.splitlines() if line.strip().startswith("small-shm: ")]
    assert all(f" {fault.name}: " in out for fault in FAULTS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "error: lab break needs a host and a fault"),
        (("lab1",), "error: lab break needs a host and a fault"),
        (("lab1", "fire"), "error: there is no fault fire"),
    ],
)
def test_what_is_missing_or_unknown_is_told_before_an_engine_is_asked(words, message, desk):
    desk.docker("exit 9")
    code, _, err = desk.run("lab", "break", *words)
    assert code == 2
    assert err.startswith(message)
    assert "rootless" in err or "--list" in err


def test_cluster_yaml_tells_what_a_fault_is_about(desk):
    file = desk.write(CLUSTER)
    told = {"port": "2222", "ssh": "demo-ssh", "image": "hvd:1"}
    assert _from_cluster(file, "lab2") == {**told, "path": "/mnt/fast"}
    assert _from_cluster(file, "lab9") == {**told, "path": "/srv/mnist"}


def test_without_data_on_the_hosts_the_default_stays(desk):
    file = desk.write(CLUSTER.replace("/srv/mnist", "named"))
    assert _from_cluster(file, "alpha")["path"] == "/data"


def test_without_a_cluster_yaml_port_and_path_have_defaults(desk, monkeypatch):
    from hvdcompose.cli.options import HERE

    monkeypatch.chdir(desk.folder)
    assert _from_cluster(HERE, "lab2") == {"port": "12345", "path": "/data"}


def test_a_file_that_was_named_and_is_wrong_is_told(desk):
    with pytest.raises(ConfigError):
        _from_cluster(desk.write("hosts: 3", "other.yaml"), "lab2")
