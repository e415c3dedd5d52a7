"""A host's addresses, read from what its kernel shows."""

from __future__ import annotations

import pytest

from hvdcompose.config.first import Nic
from hvdcompose.errors import HostError
from hvdcompose.hosts import nics
from hvdcompose.hosts.engine import Engine

# of a virtual host with two NICs, one of them behind a docker bridge of its own, shortened to what differs in kind
TEXT = """\
Main:
  +-- 0.0.0.0/0 3 0 4
     |-- 0.0.0.0
        /0 universe UNICAST
        +-- 10.0.0.0/24 2 0 2
           |-- 10.0.0.0
              /24 link UNICAST
           |-- 10.0.0.7
              /32 host LOCAL
           |-- 10.0.0.255
              /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 169.254.3.4
           /32 host LOCAL
     +-- 172.17.0.0/16 2 0 2
        |-- 172.17.0.1
           /32 host LOCAL
     +-- 192.168.0.0/16 2 0 2
        |-- 192.168.11.4
           /32 host LOCAL
Local:
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 100.64.0.9
           /32 host LOCAL
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth1\t000BA8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth2\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
SEEN = (
    Nic("10.0.0.7", "eth0", "10.0.0.0/24"),
    Nic("100.64.0.9"),
    Nic("172.17.0.1", "docker0", "172.17.0.0/16"),
    Nic("192.168.11.4", "eth1", "192.168.11.0/24"),
)


def test_addresses_with_their_interfaces():
    """Each once, in order; loopback and link-local ones reach no other host; the narrowest network names the NIC."""
    assert nics.parse_nics(TEXT) == SEEN


@pytest.mark.parametrize("text", ["", "cat: /proc/net/fib_trie: No such file or directory\n"])
def test_nothing_to_read(text):
    assert nics.parse_nics(text) == ()


def test_this_machine_has_an_address_on_an_interface():
    seen = nics.own_nics()
    assert seen and all(nic.address.count(".") == 3 for nic in seen)
    assert any(nic.interface and nic.network for nic in seen)


def test_a_container_on_the_hosts_network_is_asked(program, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    program("docker", f"printf '%s\\n' \"$@\" > {tmp_path}/words; cat {tmp_path}/text\n")
    assert nics.nics_through(Engine("beta", "c1"), "trainer:1") == SEEN
    assert (tmp_path / "words").read_text().split() == [
        *("--context", "c1", "run", "--rm", "--pull", "never", "--network", "host"),
        *("--entrypoint", "cat", "trainer:1", "/proc/net/fib_trie", "/proc/net/route"),
    ]


def test_an_image_without_cat(program):
    program("docker", "echo 'exec: \"cat\": executable file not found' >&2; exit 127\n")
    assert nics.nics_through(Engine("beta", "c1"), "trainer:1") == ()


def test_a_host_that_gives_no_answer(program, monkeypatch):
    monkeypatch.setattr(nics, "TRY_SECONDS", 0.2)
    program("docker", "exec sleep 60\n")
    with pytest.raises(HostError, match="no answer within 0 s"):
        nics.nics_through(Engine("beta", "c1"), "trainer:1")
