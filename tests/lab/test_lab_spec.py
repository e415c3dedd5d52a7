"""Names, addresses and what a user may type for them."""

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from hvdcompose.errors import UsageError
from hvdcompose.lab import spec

LAB = spec.Lab("lab", Path("/state/lab"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.213.77.0", "too small for a lab"),
        ("10.213.77.5/24", "has host bits set"),
        ("10.213.77.0/33", "not a valid netmask"),
        ("ten", "Expected 4 octets"),
        ("fd00::/64", "Expected 4 octets"),
        ("8.8.8.0/24", "not a private network"),
        ("10.0.0.0/29", "too small for a lab"),
    ],
)
def test_a_subnet_that_cannot_be_used_is_told(text, message):
    with pytest.raises(UsageError, match=message):
        spec.parse_subnet(text)


def test_host_n_has_the_address_ten_plus_n():
    subnet = spec.parse_subnet(spec.DEFAULT_SUBNET)
    assert spec.address(subnet, 1) == IPv4Address("10.213.77.11")
    assert spec.address(subnet, 64) == IPv4Address("10.213.77.74")
    assert spec.address(IPv4Network("172.30.4.64/26"), 2) == IPv4Address("172.30.4.76")


@pytest.mark.parametrize("name", ["lab", "t", "my-lab", "a2b"])
def test_names(name):
    assert spec.parse_name(name) == name


@pytest.mark.parametrize("name", ["", "Lab", "lab1", "1lab", "lab-", "la b", "../x", "x" * 21])
def test_a_name_whose_hosts_would_be_ambiguous_or_unusable_is_refused(name):
    with pytest.raises(UsageError, match="a lab's name"):
        spec.parse_name(name)


@pytest.mark.parametrize(
    ("host", "number"),
    [("lab1", 1), ("lab64", 64), ("lab", None), ("lab01", None), ("lab1x", None), ("xlab1", None)],
)
def test_only_the_lab_s_own_names_have_a_number(host, number):
    assert LAB.number(host) == number


def test_a_lab_named_with_a_dot_free_prefix_does_not_take_another_s_hosts():
    assert spec.Lab("lab-a", Path("/s")).number("lab1") is None
    assert LAB.number("lab-a1") is None


def test_hosts_are_ordered_by_number():
    assert spec.sort_hosts(LAB, ["lab10", "lab2", "lab1"]) == ["lab1", "lab2", "lab10"]


def test_a_state_folder_too_deep_for_a_unix_socket_is_told():
    with pytest.raises(UsageError, match="too long a path") as problem:
        spec.new_lab("lab", Path("/" + "x" * 90))
    assert "XDG_STATE_HOME" in problem.value.hint


def test_the_names_of_a_lab():
    lab = spec.new_lab("t", Path("/home/me/.local/state"))
    assert lab.network == "hvdcompose-t"
    assert spec.container(lab.host(3)) == "hvdcompose-t3"
    assert spec.volume(lab.host(3)) == "hvdcompose-t3-docker"
    assert lab.socket("t3") == Path("/home/me/.local/state/hvdcompose/lab/t/t3/docker.sock")
    assert lab.option == " --name t"
    assert LAB.option == ""


@pytest.mark.parametrize(
    ("path", "lab"),
    [
        ("/home/me/.local/state/hvdcompose/lab/lab/lab1/docker.sock", "lab"),
        ("/s/hvdcompose/lab/two-racks/two-racks12/docker.sock", "two-racks"),
        ("/var/run/docker.sock", None),
        ("/s/hvdcompose/lab/Lab/lab1/docker.sock", None),
        ("ssh://lab1", None),
    ],
)
def test_the_lab_that_a_socket_belongs_to(path, lab):
    assert spec.lab_of_socket(path) == lab


def test_a_socket_of_a_lab_is_known_as_its_own():
    lab = spec.new_lab("rack", Path("/s"))
    assert spec.lab_of_socket(str(lab.socket("rack3"))) == "rack"
