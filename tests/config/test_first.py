"""A first cluster.yaml from facts: which address is taken, what is asked, and text that our own reader takes."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdcompose.config.document import Problems, read_document
from hvdcompose.config.first import (
    HostFacts,
    Nic,
    Wish,
    decided,
    first_text,
    host_names,
    project_name,
    proposed,
    scalar,
)
from hvdcompose.config.model import Gpus
from hvdcompose.config.source import parse_cluster

LAN1, LAN2 = Nic("10.0.0.1", "eth0", "10.0.0.0/24"), Nic("10.0.0.2", "eth0", "10.0.0.0/24")
FAST1, FAST2 = Nic("192.168.9.1", "ib0", "192.168.9.0/24"), Nic("192.168.9.2", "ib0", "192.168.9.0/24")
WIFI = Nic("172.30.0.5", "wlan0", "172.30.0.0/24")
BRIDGES = (
    Nic("172.17.0.1", "docker0", "172.17.0.0/16"),
    Nic("172.18.0.1", "br-0123456789ab", "172.18.0.0/16"),
    Nic("192.168.122.1", "virbr0", "192.168.122.0/24"),
)
WISH = Wish("demo", "trainer:1", "python train.py")


def a(*nics: Nic, **more) -> HostFacts:
    return HostFacts("a", nics, **more)


def b(*nics: Nic, **more) -> HostFacts:
    return HostFacts("b", nics, **more)


@pytest.mark.parametrize(
    ("hosts", "addresses"),
    [
        pytest.param([a(LAN1)], {"a": LAN1}, id="the only one"),
        pytest.param([a(LAN1, *BRIDGES)], {"a": LAN1}, id="bridges inside the host lead nowhere"),
        pytest.param([a(LAN1, Nic("100.64.0.1"))], {"a": LAN1}, id="an address without a network"),
        pytest.param([a(Nic("100.64.0.1"))], {"a": Nic("100.64.0.1")}, id="the only one, without a network"),
        pytest.param([a(LAN1, WIFI), b(LAN2)], {"a": LAN1, "b": LAN2}, id="the one network that both have"),
        pytest.param([a(LAN1, FAST1), b(LAN2, FAST2)], {}, id="two networks that both have: a person knows"),
        pytest.param([a(LAN1, FAST1)], {}, id="one host with two"),
        pytest.param([a(endpoint="10.0.0.1")], {"a": Nic("10.0.0.1")}, id="where its context leads"),
        pytest.param(
            [a(LAN1, WIFI), b(endpoint="10.0.0.2")],
            {"a": LAN1, "b": Nic("10.0.0.2")},
            id="the endpoint of b is in it",
        ),
        pytest.param([a(), b(LAN2)], {"b": LAN2}, id="nothing known"),
        pytest.param([a(LAN1, FAST1, endpoint="192.168.9.1")], {}, id="an endpoint is no proof with several"),
    ],
)
def test_addresses_that_need_no_question(hosts, addresses):
    assert decided(hosts) == addresses


@pytest.mark.parametrize(
    ("host", "address"),
    [
        (a(LAN1, FAST1), "10.0.0.1"),
        (a(LAN1, FAST1, endpoint="192.168.9.1"), "192.168.9.1"),
        (a(LAN1, FAST1, endpoint="8.8.8.8"), "10.0.0.1"),
        (a(), ""),
    ],
)
def test_what_is_proposed(host, address):
    assert proposed(host) == address


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("mnist", "mnist"),
        ("My Model (2)", "my-model-2"),
        ("_x_", "x"),
        ("---", "train"),
        ("ä", "train"),
        ("a" * 60, "a" * 40),
    ],
)
def test_a_cluster_is_called_after_its_folder(folder, name):
    assert project_name(folder) == name


def test_hosts_are_called_after_their_contexts():
    assert host_names(["lab1", "rack+2", "rack-2", "LAB1"]) == {
        "lab1": "lab1",
        "rack+2": "rack-2",
        "rack-2": "rack-2-2",
        "LAB1": "LAB1-2",
    }


def cluster_of(hosts, addresses, wish=WISH, left_out=None):
    text = first_text(wish, hosts, addresses, left_out or {})
    return text, parse_cluster(text, source="cluster.yaml", is_folder=lambda _: False)


def test_the_text_is_read_as_what_was_found():
    _, cluster = cluster_of([a(LAN1, gpus=1), b(LAN2, gpus=1)], {"a": LAN1, "b": LAN2})
    assert (cluster.name, cluster.image.name, cluster.ssh.port) == ("demo", "trainer:1", 12345)
    assert cluster.train.command == ("python", "train.py")
    assert cluster.primary_name == "a"
    assert [(h.name, h.context, h.address, h.gpus, h.slots, h.slots_given) for h in cluster.hosts] == [
        ("a", "a", "10.0.0.1", Gpus(kind="all"), 1, True),
        ("b", "b", "10.0.0.2", Gpus(kind="all"), 1, True),
    ]


def test_hosts_that_differ_say_so_themselves():
    text, cluster = cluster_of([a(LAN1, gpus=4), b(LAN2, gpus=0)], {"a": LAN1, "b": LAN2})
    assert [(host.gpus.kind, host.slots) for host in cluster.hosts] == [("all", 4), ("none", 1)]
    assert "gpus" not in text.partition("defaults:")[2].partition("hosts:")[0]


def test_gpus_that_nobody_counted_leave_the_slots_to_apply():
    _, cluster = cluster_of([a(LAN1, gpus=None)], {"a": LAN1})
    assert [(host.gpus.kind, host.slots_given) for host in cluster.hosts] == [("all", False)]


def test_hosts_that_are_left_out_are_told_on_one_line_each():
    text, _ = cluster_of([a(LAN1)], {"a": LAN1}, left_out={"c": "no answer\nat all: \x07"})
    assert [line for line in text.splitlines() if "Left out" in line] == ["# Left out: c: no answer at all: ?"]


def test_comments_stand_in_one_column_and_lines_end_clean():
    text, _ = cluster_of([a(LAN1, gpus=None), b(LAN2, gpus=2)], {"a": LAN1, "b": LAN2})
    commented = [line for line in text.splitlines() if " # " in line and not line.lstrip().startswith("#")]
    assert len(commented) > 10
    assert {line.index(" # ") for line in commented} == {35}
    assert [line for line in text.splitlines() if line != line.rstrip() or len(line) > 130] == []


@pytest.mark.parametrize(
    "command",
    ["python train.py --lr 0.1", "python -c 'print(\"a: b # c\")'", 'sh -c "echo $HOME; true"', "@x", "a:b c", "007"],
)
def test_a_command_is_written_so_that_it_is_read_again(command):
    _, cluster = cluster_of([a(LAN1)], {"a": LAN1}, Wish("demo", "trainer:1", command))
    assert list(cluster.train.command) == shlex.split(command)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_text_survives(text):
    problems = Problems()
    node = read_document(f"x: {scalar(text)}\n", problems)
    assert not problems
    assert node.entries["x"].value.text == text
