"""`hvdcompose init` as a person meets it, with hosts that a stand-in for docker plays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from standin import Socket
from terminal import at_a_terminal
from workdesk import MAIN, Desk

from hvdcompose.config.source import load_cluster

WORDS = ("--image", "trainer:1", "--command", "python train.py --lr 0.1")


@pytest.fixture
def rack(desk: Desk, tmp_path: Path):
    """Hosts a and b with an engine each, and one that is off; their NICs are what `nics` says."""
    sockets = [Socket(tmp_path / f"{name}.sock", desk.bin / "docker", name) for name in ("a", "b")]
    listed = {
        "default": "unix:///nowhere.sock",
        **{name: f"unix://{tmp_path}/{name}.sock" for name in ("a", "b", "off")},
    }
    contexts = "".join(f"""echo '{json.dumps({"Name": n, "DockerEndpoint": e})}'\n""" for n, e in listed.items())
    desk.docker(f"""
if [ "$1 $2" = "context ls" ]; then {contexts} exit; fi
host=$2; shift 2
case "$*" in
info) echo '{{"ID": "'$host'", "ServerVersion": "26.1"}}' ;;
"image ls") echo trainer:1 ;;
*"--gpus all"*) echo 'GPU 0: stub'; [ $host = a ] || echo 'GPU 1: stub' ;;
*"--entrypoint cat "*) cat {tmp_path}/$host.nics ;;
esac
""")
    nics(desk, a=[("10.0.0.1", "eth0")], b=[("10.0.0.2", "eth0")])
    yield desk
    for listening in sockets:
        listening.server_close()


def nics(desk: Desk, **hosts: list[tuple[str, str]]) -> None:
    """Say which addresses a host has, each with its interface."""
    for host, pairs in hosts.items():
        text = "".join(f"|-- {address}\n   /32 host LOCAL\n" for address, _ in pairs)
        text += "".join(
            f"{nic}\t{network(address)}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" for address, nic in pairs
        )
        (desk.folder.parent / f"{host}.nics").write_text(text)


def network(address: str) -> str:
    return "".join(f"{int(part):02X}" for part in reversed([*address.split(".")[:3], "0"]))


def test_a_file_for_the_hosts_that_answer_and_a_comment_for_the_one_that_does_not(rack):
    code, out, err = rack.run("init", *WORDS)
    assert code == 0, err
    assert [line.split() for line in out.splitlines()] == [
        ["HOST", "ADDRESS", "GPUS"],
        ["a", "10.0.0.1", "(eth0)", "1"],
        ["b", "10.0.0.2", "(eth0)", "2"],
    ]
    off = f"its Docker engine does not answer at {rack.folder.parent}/off.sock: No such file or directory"
    assert f"error: off: {off}\n" in err
    assert "cluster.yaml is written: 2 hosts\nleft out: off\n" in err
    text = (rack.folder / "cluster.yaml").read_text()
    assert f"# Left out: off: {off}\n" in text
    cluster = load_cluster(rack.folder / "cluster.yaml")
    assert (cluster.name, cluster.primary_name) == ("work", "a")
    assert [(host.name, host.address, host.slots) for host in cluster.hosts] == [
        ("a", "10.0.0.1", 1),
        ("b", "10.0.0.2", 2),
    ]
    assert cluster.train.command == ("python", "train.py", "--lr", "0.1")


def test_the_flags_say_what_is_written(rack):
    words = (
        "--name",
        "mine",
        "--port",
        "2222",
        "--primary",
        "b",
        "--context",
        "a",
        "--context",
        "b",
        "-f",
        "other.yaml",
    )
    assert rack.run("init", *WORDS, *words, "--address", "a=10.9.9.9")[0] == 0
    cluster = load_cluster(rack.folder / "other.yaml")
    assert (cluster.name, cluster.ssh.port, cluster.primary_name) == ("mine", 2222, "b")
    assert [(host.name, host.address) for host in cluster.hosts] == [("b", "10.0.0.2"), ("a", "10.9.9.9")]


def test_a_file_that_is_there_is_left_alone(rack):
    rack.write("mine\n")
    assert rack.run("init", *WORDS) == (
        2,
        "",
        "error: cluster.yaml is there already; init overwrites nothing\n  -> -f OTHER.yaml writes another file\n",
    )
    assert (rack.folder / "cluster.yaml").read_text() == "mine\n"


def test_several_addresses_without_a_terminal_name_the_flag(rack):
    nics(rack, a=[("10.0.0.1", "eth0"), ("192.168.9.1", "ib0")], b=[("10.0.0.2", "eth0"), ("192.168.9.2", "ib0")])
    code, out, err = rack.run("init", *WORDS, "--context", "a", "--context", "b")
    assert (code, out) == (2, "")
    assert err.splitlines()[1:] == [
        "error: a has several addresses: 10.0.0.1 (eth0), 192.168.9.1 (ib0)",
        "b has several addresses: 10.0.0.2 (eth0), 192.168.9.2 (ib0)",
        "  -> --address a=10.0.0.1",
        "  -> --address b=10.0.0.2",
    ]
    assert not (rack.folder / "cluster.yaml").exists()
    assert rack.run("init", *WORDS, "--address", "a=192.168.9.1", "--address", "b=192.168.9.2")[0] == 0
    assert [host.address for host in load_cluster(rack.folder / "cluster.yaml").hosts] == ["192.168.9.1", "192.168.9.2"]


def test_yes_takes_what_would_be_proposed(rack):
    nics(rack, a=[("10.0.0.1", "eth0"), ("192.168.9.1", "ib0")], b=[("10.0.0.2", "eth0"), ("192.168.9.2", "ib0")])
    assert rack.run("init", *WORDS, "--yes")[0] == 0
    assert [host.address for host in load_cluster(rack.folder / "cluster.yaml").hosts] == ["10.0.0.1", "10.0.0.2"]


def test_an_address_that_nothing_tells_is_asked_for_even_with_yes(rack):
    nics(rack, a=[])
    code, _, err = rack.run("init", *WORDS, "--yes", "--context", "a")
    assert code == 2
    assert err.endswith("error: a does not tell its address\n  -> --address a=ADDRESS\n")


def test_a_terminal_is_asked(rack):
    nics(rack, a=[("10.0.0.1", "eth0"), ("192.168.9.1", "ib0")], b=[("10.0.0.2", "eth0"), ("192.168.9.2", "ib0")])
    answers = ["trainer:1", "python train.py", "no such place", "192.168.9.1", ""]
    words = [*MAIN, "init", "--context", "a", "--context", "b"]
    code, screen = at_a_terminal(words, answers, cwd=rack.folder, env=rack.env)
    assert code == 0, screen
    assert '"no such place" is neither an IPv4 address nor a host name' in screen
    assert [host.address for host in load_cluster(rack.folder / "cluster.yaml").hosts] == ["192.168.9.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--image and --command cannot be known, and there is no terminal to ask at"),
        (("--image", "x:1"), "--command cannot be known, and there is no terminal to ask at"),
        ((*WORDS, "--context", "rack"), "there is no Docker context rack"),
        ((*WORDS, "--context", "a", "--primary", "b"), "--primary b is none of the contexts"),
        ((*WORDS, "--address", "10.0.0.1"), "--address 10.0.0.1: 10.0.0.1 is none of the contexts"),
        ((*WORDS, "--address", "a=::1"), '--address a=::1: "::1" is an IPv6 address; Horovod\'s launcher is IPv4 only'),
        (
            ("--image", "X Y", "--command", "a && b"),
            'image: "X Y" is not an image name such as registry:5000/team/image:tag',
        ),
        ((*WORDS, "--port", "22"), "ssh.port: 22 is the sshd of the machine itself; take another port, such as 12345"),
        (
            (*WORDS, "--name", "My Net"),
            'name: "My Net" must begin with a-z or 0-9 and go on with a-z, 0-9, - and _, 40',
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_flags_that_will_not_do(words, told, rack):
    code, _, err = rack.run("init", *words)
    assert code == 2
    assert f"error: {told}" in err
    assert not (rack.folder / "cluster.yaml").exists()


def test_no_host_at_all(rack):
    code, out, err = rack.run("init", *WORDS, "--context", "off")
    assert (code, out) == (1, "")
    assert err.count("error: off: its Docker engine does not answer") == 1
    assert "error: no host can be in a cluster\n" in err
    assert not (rack.folder / "cluster.yaml").exists()


def test_two_contexts_of_one_engine(rack):
    rack.docker((rack.bin / "docker").read_text().partition("\n")[2].replace("\"'$host'\"", '"one"'))
    code, _, err = rack.run("init", *WORDS)
    assert code == 0
    assert "error: b: same Docker engine as a: the contexts a and b lead to one machine\n" in err
    assert [host.name for host in load_cluster(rack.folder / "cluster.yaml").hosts] == ["a"]


def test_json(rack):
    code, out, _ = rack.run("init", *WORDS, "--json")
    told = json.loads(out)
    assert (code, told["command"], told["ok"]) == (0, "init", True)
    assert told["data"]["file"] == "cluster.yaml"
    assert told["data"]["hosts"] == [
        {"context": "a", "address": "10.0.0.1", "gpus": 1},
        {"context": "b", "address": "10.0.0.2", "gpus": 2},
    ]
    assert list(told["data"]["left_out"]) == ["off"]
