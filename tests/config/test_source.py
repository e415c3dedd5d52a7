"""cluster.yaml text -> Cluster: the forms a user may write, and the sentence for every mistake."""

from pathlib import Path

import pytest

from hvdcompose.config.model import Cluster, Gpus, Horovod, Host, Image, Mount, Runs, Secret, Ssh, Train, Ulimit
from hvdcompose.config.source import UnreadableConfigError, load_cluster, parse_cluster
from hvdcompose.errors import BAD_CONFIG, ConfigError

SHIPPED = Path(__file__).parents[2] / "cluster.yaml"

# line numbers in the tables below count from here
BASE = """\
name: demo
image: demo:1
hosts:
  a:
    address: 10.0.0.1
  b:
    address: 10.0.0.2
train:
  command: python train.py
"""
FOLDERS = ("./trainer", "./trainer/", "./docker", ".", "/", "./my code")


def edit(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new, 1)


def name(line: str) -> str:
    """Line 1."""
    return edit("name: demo", line)


def image(line: str) -> str:
    """Line 2."""
    return edit("image: demo:1", line)


def address(line: str) -> str:
    """Line 5, column 5."""
    return edit("    address: 10.0.0.1", "    " + line)


def host(*lines: str) -> str:
    """From line 6 on, column 5, under host a."""
    return edit("    address: 10.0.0.1\n", "    address: 10.0.0.1\n" + "".join(f"    {line}\n" for line in lines))


def command(line: str) -> str:
    """Line 9, column 3."""
    return edit("  command: python train.py", "  " + line)


def train(*lines: str) -> str:
    """From line 10 on, column 3, under train."""
    return BASE + "".join(f"  {line}\n" for line in lines)


def top(*lines: str) -> str:
    """From line 10 on, column 1."""
    return BASE + "".join(f"{line}\n" for line in lines)


def parse(text: str) -> Cluster:
    return parse_cluster(text, source="cluster.yaml", is_folder=lambda folder: folder in FOLDERS)


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return [line.removeprefix("cluster.yaml:") for line in str(caught.value).splitlines()]


TOP_KEYS = "version, name, image, ssh, defaults, hosts, train, horovod, runs"
HOST_KEYS = "context, address, primary, gpus, slots, interface, shm_size, ulimits, env, volumes"
IPV4_RULE = "is not an IPv4 address: four numbers from 0 to 255, without leading zeros"
SOURCE_RULE = "is neither a path on the host, which begins with /, nor the name of a volume"
GPU_FORMS = "all, none, a number of GPUs, a list of ids or {driver: cdi, ids: [...]}"
NAME_RULE = "must begin with a-z or 0-9 and go on with a-z, 0-9, - and _, 40 characters at most"
HOST_RULE = "a host's name begins with a letter or digit and goes on with these, _ . and -, 63 characters at most"
CLIENT_PATH = "would be on this machine; the mount is on the host, where paths begin with /"
GPUS_COUNT_ANEW = "GPUs are chosen with gpus; inside a container they are numbered from 0 again"
SHELL = 'is for a shell: write ["sh", "-c", "..."]; to pass it on, write a list of words'
LATER = "not accepted yet by this version of hvdcompose"
SECRET = "must be {env: VARIABLE} or {file: path}, on this machine"
SECRET_RULE = "a secret's name begins with a letter, digit or _ and goes on with these, . and -, 64 characters at most"
ULIMIT = "a whole number, or -1 for no limit"

MISTAKES = [
    # the text as YAML
    pytest.param("", "1:1: the file is empty; it needs at least name, image, hosts and train", id="empty"),
    pytest.param("---\n", "1:1: the file is empty; it needs at least name, image, hosts and train", id="only a marker"),
    pytest.param(
        "# nothing\n",
        "1:1: the file is empty; it needs at least name, image, hosts and train",
        id="only a comment",
    ),
    pytest.param(
        "just text\n",
        f"1:1: must be a mapping with {TOP_KEYS}, not just text",
        id="no mapping",
    ),
    pytest.param(
        BASE + "---\nname: other\n",
        "10:1: a second document begins here; a file describes one cluster",
        id="two",
    ),
    pytest.param("name: demo\n\timage: x\n", "2:1: a tab cannot indent YAML; use spaces", id="tab"),
    pytest.param(
        "name: [demo\n",
        "1:12: not valid YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence, line 1)",
        id="bracket left open",
    ),
    pytest.param("name: a: b\n", "1:8: not valid YAML: mapping values are not allowed here", id="two colons"),
    pytest.param("name: *nobody\n", "1:7: not valid YAML: found undefined alias 'nobody'", id="unknown alias"),
    pytest.param("name: \x07\n", "1:7: the character U+0007 is not allowed", id="control character"),
    pytest.param('name: "\\UFFFFFFFF"\n', "1:10: an escape here names no character", id="escape out of range"),
    pytest.param(name('name: "de\\0mo"'), "1:7: name: holds a NUL or half a character", id="NUL by escape"),
    pytest.param(name('name: "\\ud800"'), "1:7: name: holds a NUL or half a character", id="surrogate by escape"),
    pytest.param("[" * 50, "1:41: not valid YAML: nested deeper than 40 levels", id="nested too deep"),
    pytest.param(
        name("name: !!python/object:os.system x"),
        "1:7: name: YAML tags are not used here; leave out !!python/object:os.system",
        id="python tag",
    ),
    pytest.param(name("name: !!str 5"), "1:7: name: YAML tags are not used here; leave out !!str", id="harmless tag"),
    pytest.param(BASE + "name: again\n", "10:1: name: doubled key, first on line 1", id="doubled key"),
    pytest.param(
        host("env:", "  A: 1", "  A: 2"),
        "8:7: hosts.a.env.A: doubled key, first on line 7",
        id="doubled key below",
    ),
    pytest.param(top("? [a]", ": b"), "10:3: a key must be a word", id="a list as key"),
    pytest.param(top("?", ": b"), "10:2: a key is missing before the colon", id="no key"),
    pytest.param(top("x-a: &a [*a]"), "10:6: x-a[0]: an alias in it leads back to itself", id="alias into itself"),
    pytest.param(
        top(
            "x-a: &a [x, x, x, x, x, x, x, x, x, x]",
            *(f"x-{b}: &{b} [{', '.join(['*' + a] * 10)}]" for a, b in zip("abcde", "bcdef", strict=True)),
        ),
        "1:1: aliases make this file larger than 100000 values",
        id="alias bomb",
    ),
    pytest.param(host("<<: 5"), "6:9: hosts.a.<<: only a mapping can be merged, or a list of mappings", id="bad merge"),
    # keys
    pytest.param(top("horovd: {}"), '10:1: horovd: unknown key; did you mean "horovod"?', id="key close to one"),
    pytest.param(
        top("services: {}"),
        f"10:1: services: unknown key; allowed: {TOP_KEYS}",
        id="key close to none",
    ),
    pytest.param(host("adress: 10.0.0.1"), '6:5: hosts.a.adress: unknown key; did you mean "address"?', id="host key"),
    pytest.param(
        host("x-a: 1"),
        f"6:5: hosts.a.x-a: unknown key; allowed: {HOST_KEYS}",
        id="x- below the top",
    ),
    pytest.param(
        "x-only: 1\n",
        [
            "1:1: hosts: is missing",
            "1:1: image: is missing",
            "1:1: name: is missing",
            "1:1: train: is missing",
        ],
        id="nothing given",
    ),
    pytest.param(top("version: 2"), "10:10: version: must be 1, the only version there is, not 2", id="version 2"),
    pytest.param(
        top('version: "1"'),
        '10:10: version: must be 1, the only version there is, not "1"',
        id="version as text",
    ),
    # name and image
    pytest.param(name("name: Demo"), f'1:7: name: "Demo" {NAME_RULE}', id="capital in name"),
    pytest.param(name("name: -demo"), f'1:7: name: "-demo" {NAME_RULE}', id="name begins with -"),
    pytest.param(name("name: " + "d" * 41), f'1:7: name: "{"d" * 41}" {NAME_RULE}', id="name too long"),
    pytest.param(name('name: ""'), f'1:7: name: "" {NAME_RULE}', id="empty name"),
    pytest.param(name("name:"), "1:6: name: has no value; it must be text", id="no name"),
    pytest.param(name("name: [demo]"), "1:7: name: must be text, not a list", id="list as name"),
    pytest.param(name("name: {a: demo}"), "1:7: name: must be text, not a mapping", id="mapping as name"),
    pytest.param(
        image("image: Team/demo"),
        '2:8: image: "Team/demo" must be lower case up to the tag',
        id="capital in image",
    ),
    pytest.param(
        image("image: demo image"),
        '2:8: image: "demo image" is not an image name such as registry:5000/team/image:tag',
        id="space in image",
    ),
    pytest.param(image("image: {build: ./docker}"), "2:1: image.name: is missing", id="image without name"),
    pytest.param(
        image("image: {name: demo, build: ./dockr}"),
        "2:28: image.build: there is no folder ./dockr; it is looked for from the folder of this file",
        id="no build folder",
    ),
    pytest.param(
        image('image: {name: demo, build: ""}'),
        "2:28: image.build: must name a folder",
        id="empty build folder",
    ),
    pytest.param(
        image("image: {name: demo, args: {A: 1}}"),
        "2:21: image.args: build arguments need build, the folder of the Dockerfile",
        id="args without build",
    ),
    pytest.param(
        image("image: {name: demo, build: ., args: {A-B: 1}}"),
        "2:38: image.args.A-B: an argument's name has letters, digits and _ only, and no digit first",
        id="bad build argument",
    ),
    pytest.param(
        image("image: {name: demo, pull: sometimes}"),
        "2:27: image.pull: must be one of missing, always, never, not sometimes",
        id="pull",
    ),
    # YAML's type traps
    pytest.param(name("name: no"), '1:7: name: no is the boolean false to YAML; quote it: "no"', id="no"),
    pytest.param(name("name: 1.10"), '1:7: name: 1.10 is the number 1.1 to YAML; quote it: "1.10"', id="1.10"),
    pytest.param(name("name: 7"), '1:7: name: 7 is a number to YAML; quote it: "7"', id="number as name"),
    pytest.param(name("name: 1_000"), '1:7: name: 1_000 is the number 1000 to YAML; quote it: "1_000"', id="1_000"),
    pytest.param(name("name: 0x10"), '1:7: name: 0x10 is the number 16 to YAML; quote it: "0x10"', id="0x10"),
    pytest.param(name("name: 0x_"), '1:7: name: 0x_ is a number to YAML; quote it: "0x_"', id="0x_"),
    pytest.param(name("name: 1e3"), '1:7: name: 1e3 is the number 1000 to YAML; quote it: "1e3"', id="1e3"),
    pytest.param(
        name("name: 2024-01-01"), '1:7: name: 2024-01-01 is a date to YAML; quote it: "2024-01-01"', id="date"
    ),
    pytest.param(name("name: .inf"), '1:7: name: .inf is infinity to YAML; quote it: ".inf"', id="infinity"),
    pytest.param(name("name: .nan"), '1:7: name: .nan is not a number to YAML; quote it: ".nan"', id="nan"),
    pytest.param(name("name: ~"), '1:7: name: ~ is null to YAML; quote it: "~"', id="null"),
    pytest.param(
        address("address: 22:22"),
        '5:14: hosts.a.address: 22:22 is the number 1342 to YAML; quote it: "22:22"',
        id="22:22",
    ),
    pytest.param(
        host("env: {DEBUG: yes}"),
        '6:18: hosts.a.env.DEBUG: yes is the boolean true to YAML; quote it: "yes"',
        id="yes in env",
    ),
    pytest.param(
        host("env: {MODE: 0600}"),
        '6:17: hosts.a.env.MODE: 0600 is the number 384 to YAML; quote it: "0600"',
        id="0600 in env",
    ),
    pytest.param(
        host("env: {on: x}"),
        '6:11: hosts.a.env.on: the key on is the boolean true to YAML; quote it: "on"',
        id="on as key",
    ),
    pytest.param(
        top("ssh: {port: 012345}"),
        "10:13: ssh.port: 012345 is the number 5349 to YAML; write it in plain digits",
        id="octal port",
    ),
    pytest.param(
        top("ssh: {port: 12345:22}"),
        "10:13: ssh.port: 12345:22 is the number 740722 to YAML; write it in plain digits",
        id="sexagesimal port",
    ),
    pytest.param(
        host("slots: 0o17"),
        "6:12: hosts.a.slots: 0o17 is the number 15 to YAML; write it in plain digits",
        id="octal of YAML 1.2",
    ),
    pytest.param(
        host("gpus: [00, 1]"),
        '6:12: hosts.a.gpus[0]: 00 is the number 0 to YAML; quote it: "00"',
        id="00 as id",
    ),
    pytest.param(
        command("command: [python, yes]"),
        '9:21: train.command[1]: yes is the boolean true to YAML; quote it: "yes"',
        id="yes in command",
    ),
    # ssh
    pytest.param(
        top("ssh: {port: 22}"),
        "10:13: ssh.port: 22 is the sshd of the machine itself; take another port, such as 12345",
        id="port 22",
    ),
    pytest.param(top("ssh: {port: 0}"), "10:13: ssh.port: must be a whole number from 1 to 65535, not 0", id="port 0"),
    pytest.param(
        top("ssh: {port: 65536}"),
        "10:13: ssh.port: must be a whole number from 1 to 65535, not 65536",
        id="port too high",
    ),
    pytest.param(
        top("ssh: {port: true}"),
        "10:13: ssh.port: must be a whole number from 1 to 65535, not true",
        id="port true",
    ),
    pytest.param(
        top('ssh: {port: "12345"}'),
        '10:13: ssh.port: must be a whole number from 1 to 65535, not "12345"',
        id="port as text",
    ),
    pytest.param(
        top("ssh: {volume: ./keys}"),
        f'10:15: ssh.volume: "./keys" {CLIENT_PATH}',
        id="ssh volume on the client",
    ),
    pytest.param(top("ssh: {volume: /}"), "10:15: ssh.volume: must name a folder, not /", id="ssh volume /"),
    *(
        pytest.param(
            top(f"ssh: {{volume: {volume}}}"),
            f"10:15: ssh.volume: {volume} is a volume of hvdcompose's own; take another name",
            id=f"ssh volume {volume}",
        )
        for volume in ("demo-host", "demo-runs", "demo-code-1")
    ),
    pytest.param(
        top("ssh: {volume: -x}"),
        f'10:15: ssh.volume: "-x" {SOURCE_RULE}',
        id="ssh volume name",
    ),
    pytest.param(top("ssh: {user: me}"), "10:7: ssh.user: unknown key; allowed: port, volume", id="ssh user"),
    # hosts
    pytest.param(
        "name: a\nimage: b\ntrain: {command: c}\nhosts: {}\n",
        "4:1: hosts: at least one host is needed",
        id="no host",
    ),
    pytest.param(
        "name: a\nimage: b\ntrain: {command: c}\nhosts:\n",
        "4:1: hosts: at least one host is needed",
        id="nothing under hosts",
    ),
    pytest.param(
        "name: a\nimage: b\ntrain: {command: c}\nhosts: [d]\n",
        "4:8: hosts: must be a mapping: host name to its settings, not a list",
        id="hosts as list",
    ),
    pytest.param(edit("  a:", "  -a:"), f"4:3: hosts.-a: {HOST_RULE}", id="host name"),
    pytest.param(
        edit("  b:", "  A:"),
        "6:3: hosts.A: differs from a on line 4 in upper and lower case only",
        id="names differ in case",
    ),
    pytest.param(edit("  b:\n    address: 10.0.0.2", "  b:"), "6:3: hosts.b.address: is missing", id="null host"),
    pytest.param(
        edit("  b:\n    address: 10.0.0.2", "  b: 10.0.0.2"),
        f"6:6: hosts.b: must be a mapping with {HOST_KEYS}, not 10.0.0.2",
        id="address as host",
    ),
    pytest.param(
        address("address: fe80::1"),
        '5:14: hosts.a.address: "fe80::1" is an IPv6 address; Horovod\'s launcher is IPv4 only',
        id="IPv6",
    ),
    pytest.param(
        address("address: alpha:6006"),
        '5:14: hosts.a.address: "alpha:6006" names a port; the port is ssh.port, one for all hosts',
        id="host:port",
    ),
    pytest.param(
        address("address: me@alpha"),
        '5:14: hosts.a.address: "me@alpha" names a user; the user belongs to the Docker context',
        id="user@host",
    ),
    pytest.param(
        address("address: ssh://alpha"),
        '5:14: hosts.a.address: "ssh://alpha" is a URL; write the bare address',
        id="URL",
    ),
    pytest.param(
        address("address: my host"),
        '5:14: hosts.a.address: "my host" is neither an IPv4 address nor a host name',
        id="space in address",
    ),
    pytest.param(
        address("address: 10.0.0.256"),
        f"5:14: hosts.a.address: 10.0.0.256 {IPV4_RULE}",
        id="octet too high",
    ),
    pytest.param(
        address("address: 10.0.0.01"),
        f"5:14: hosts.a.address: 10.0.0.01 {IPV4_RULE}",
        id="leading zero",
    ),
    pytest.param(address("address: 0.0.0.0"), "5:14: hosts.a.address: 0.0.0.0 is no host's address", id="0.0.0.0"),
    pytest.param(
        address("address: 127.0.0.1"),
        "5:14: hosts.a.address: 127.0.0.1 is this host only to itself; the others cannot reach it",
        id="loopback",
    ),
    pytest.param(
        address("address: LocalHost"),
        "5:14: hosts.a.address: LocalHost is this host only to itself; the others cannot reach it",
        id="localhost",
    ),
    pytest.param(
        address("address: 10.0.0.2"),
        "7:14: hosts.b.address: the same address as hosts.a on line 4",
        id="same address",
    ),
    pytest.param(
        edit("10.0.0.1", "Node.lan").replace("10.0.0.2", "node.LAN"),
        "7:14: hosts.b.address: the same address as hosts.a on line 4",
        id="same name but for case",
    ),
    pytest.param(
        host("context: b"),
        "7:3: hosts.b: the same Docker context as hosts.a on line 4",
        id="context of another",
    ),
    pytest.param(
        host("context: -x"),
        '6:14: hosts.a.context: "-x" is not the name of a Docker context',
        id="context name",
    ),
    pytest.param(
        host("primary: true").replace("10.0.0.2", "10.0.0.2\n    primary: true"),
        "9:14: hosts.b.primary: hosts.a on line 4 is the primary already",
        id="two primaries",
    ),
    pytest.param(host("primary: yes"), "6:14: hosts.a.primary: must be true or false, not yes", id="primary yes"),
    pytest.param(
        top("defaults: {address: 10.0.0.3}"),
        "10:12: defaults.address: belongs under each host, not in defaults",
        id="address in defaults",
    ),
    pytest.param(
        host("interface: eth0/1"),
        '6:16: hosts.a.interface: "eth0/1" is not an interface name such as eth0',
        id="interface",
    ),
    pytest.param(
        host("interface: a234567890123456"),
        '6:16: hosts.a.interface: "a234567890123456" is not an interface name such as eth0',
        id="interface too long",
    ),
    pytest.param(
        host("shm_size: 1 apple"),
        '6:15: hosts.a.shm_size: "1 apple" is not an amount of memory such as 512m or 1g',
        id="shm_size",
    ),
    pytest.param(
        host("shm_size: 0g"),
        '6:15: hosts.a.shm_size: "0g" is not an amount of memory such as 512m or 1g',
        id="shm_size zero",
    ),
    pytest.param(
        host("shm_size: 1.5"),
        '6:15: hosts.a.shm_size: "1.5" is not an amount of memory such as 512m or 1g',
        id="shm_size without unit",
    ),
    # slots and GPUs
    pytest.param(host("slots: 0"), "6:12: hosts.a.slots: must be a whole number from 1 to 1024, not 0", id="no slots"),
    pytest.param(
        host("slots: 1.0"),
        "6:12: hosts.a.slots: must be a whole number from 1 to 1024, not 1.0",
        id="1.0 slots",
    ),
    pytest.param(
        host("slots: " + "9" * 5000),
        f"6:12: hosts.a.slots: must be a whole number from 1 to 1024, not {'9' * 57}...",
        id="endless number",
    ),
    pytest.param(
        host("slots: 4", "gpus: 2"),
        "6:12: hosts.a.slots: 4 slots but only 2 GPUs reserved",
        id="slots above count",
    ),
    pytest.param(
        host("slots: 2", "gpus: [0]"),
        "6:12: hosts.a.slots: 2 slots but only 1 GPU reserved",
        id="slots above ids",
    ),
    pytest.param(
        host("gpus: 2") + "defaults: {slots: 4}\n",
        "6:11: hosts.a.gpus: 4 slots but only 2 GPUs reserved",
        id="default slots above GPUs",
    ),
    pytest.param(
        top("defaults: {slots: 4, gpus: 2}"),
        "10:19: defaults.slots: 4 slots but only 2 GPUs reserved",
        id="slots above GPUs in defaults, once",
    ),
    pytest.param(host("gpus: some"), f"6:11: hosts.a.gpus: must be {GPU_FORMS}, not some", id="gpus some"),
    pytest.param(host("gpus: true"), f"6:11: hosts.a.gpus: must be {GPU_FORMS}, not true", id="gpus true"),
    pytest.param(host("gpus: no"), f"6:11: hosts.a.gpus: must be {GPU_FORMS}, not no", id="gpus no"),
    pytest.param(host("gpus:"), f"6:10: hosts.a.gpus: has no value; it must be {GPU_FORMS}", id="gpus without value"),
    pytest.param(host("gpus: -1"), "6:11: hosts.a.gpus: must be a whole number from 0 to 1024, not -1", id="gpus -1"),
    pytest.param(host("gpus: []"), "6:11: hosts.a.gpus: the list is empty; for no GPUs write gpus: none", id="no ids"),
    pytest.param(host("gpus: [0, 0]"), "6:15: hosts.a.gpus[1]: 0 is in the list twice", id="doubled id"),
    pytest.param(host('gpus: [0, "0"]'), "6:15: hosts.a.gpus[1]: 0 is in the list twice", id="doubled id, one quoted"),
    pytest.param(
        host("gpus: [gpu0]"),
        '6:12: hosts.a.gpus[0]: "gpu0" is neither a GPU\'s number nor its GPU-... or MIG-... name',
        id="bad id",
    ),
    pytest.param(
        host("gpus: {driver: cdi, count: 1}"),
        [
            "6:5: hosts.a.gpus.ids: is missing",
            "6:25: hosts.a.gpus.count: a count does not go with driver cdi; name the devices in ids",
        ],
        id="cdi with count",
    ),
    pytest.param(
        host("gpus: {ids: [nvidia.com/gpu=0]}"),
        "6:5: hosts.a.gpus.driver: is missing; a mapping is for {driver: cdi, ids: [...]}",
        id="no driver",
    ),
    pytest.param(
        host("gpus: {driver: nvidia, ids: [nvidia.com/gpu=0]}"),
        "6:20: hosts.a.gpus.driver: must be cdi, not nvidia; other drivers need no mapping",
        id="driver nvidia",
    ),
    pytest.param(
        host("gpus: {driver: cdi, ids: [gpu0]}"),
        '6:31: hosts.a.gpus.ids[0]: "gpu0" is not a CDI device such as nvidia.com/gpu=0',
        id="cdi device",
    ),
    # limits, variables, mounts
    pytest.param(
        host("ulimits: {nofiles: 1024}"),
        '6:15: hosts.a.ulimits.nofiles: unknown key; did you mean "nofile"?',
        id="ulimit name",
    ),
    pytest.param(
        host("ulimits: {memlock: -2}"),
        f"6:24: hosts.a.ulimits.memlock: must be {ULIMIT}, not -2",
        id="ulimit -2",
    ),
    pytest.param(
        host("ulimits: {memlock: unlimited}"),
        f"6:24: hosts.a.ulimits.memlock: must be {ULIMIT}, not unlimited",
        id="ulimit unlimited",
    ),
    pytest.param(
        host("ulimits: {nofile: {soft: 1}}"),
        "6:15: hosts.a.ulimits.nofile.hard: is missing",
        id="no hard limit",
    ),
    pytest.param(
        host("ulimits: {nofile: {soft: 2, hard: 1}}"),
        "6:30: hosts.a.ulimits.nofile.soft: the soft limit 2 is above the hard limit 1",
        id="soft above hard",
    ),
    pytest.param(
        host("env: [A=1]"),
        "6:10: hosts.a.env: must be a mapping: name to value, not a list",
        id="env as list",
    ),
    pytest.param(
        host("env: {1A: x}"),
        "6:11: hosts.a.env.1A: a variable's name has letters, digits and _ only, and no digit first",
        id="env name",
    ),
    pytest.param(host("env: {A: }"), "6:13: hosts.a.env.A: has no value; it must be text", id="env without value"),
    pytest.param(host("env: {A: [1]}"), "6:14: hosts.a.env.A: must be text, not a list", id="env list value"),
    pytest.param(
        host('env: {CUDA_VISIBLE_DEVICES: "2,3"}'),
        f"6:11: hosts.a.env.CUDA_VISIBLE_DEVICES: {GPUS_COUNT_ANEW}",
        id="CUDA_VISIBLE_DEVICES",
    ),
    pytest.param(
        train("env: {NVIDIA_VISIBLE_DEVICES: all}"),
        f"10:9: train.env.NVIDIA_VISIBLE_DEVICES: {GPUS_COUNT_ANEW}",
        id="NVIDIA_VISIBLE_DEVICES",
    ),
    pytest.param(
        train("env: {HVD_OUTPUT: /x}"),
        "10:9: train.env.HVD_OUTPUT: names that begin with HVD_ are hvdcompose's own",
        id="HVD_",
    ),
    pytest.param(
        train("env: {HOROVOD_LOCAL_RANK: 0}"),
        "10:9: train.env.HOROVOD_LOCAL_RANK: horovodrun sets this itself",
        id="HOROVOD_LOCAL_RANK",
    ),
    pytest.param(
        host("volumes: [/a:/b]"),
        "6:14: hosts.a.volumes: must be a mapping: path in the container to host path or volume, not a list",
        id="volumes as list",
    ),
    pytest.param(
        host("volumes: {data: v1}"),
        '6:15: hosts.a.volumes.data: "data" must be an absolute path',
        id="relative target",
    ),
    pytest.param(
        host("volumes: {/a/../b: v1}"),
        '6:15: hosts.a.volumes./a/../b: "/a/../b" must not contain ..',
        id=".. in target",
    ),
    pytest.param(
        host('volumes: {"/a:b": v1}'),
        '6:15: hosts.a.volumes./a:b: "/a:b" must not contain a colon or a control character',
        id="colon in target",
    ),
    pytest.param(host("volumes: {/: v1}"), "6:15: hosts.a.volumes./: a mount at / would hide the image", id="target /"),
    pytest.param(
        host("volumes: {/root/.ssh/: v1}"),
        "6:15: hosts.a.volumes./root/.ssh/: /root/.ssh is taken in every container",
        id="target of the keys",
    ),
    pytest.param(
        host("volumes: {/hvd/code: v1}"),
        "6:15: hosts.a.volumes./hvd/code: /hvd is taken in every container",
        id="target under /hvd",
    ),
    pytest.param(
        host("volumes: {/a: v1, /a/: v2}"),
        "6:23: hosts.a.volumes./a/: the same path as on line 6",
        id="same target",
    ),
    pytest.param(
        host("volumes: {/a: demo-ssh}"),
        "6:19: hosts.a.volumes./a: demo-ssh holds the cluster's ssh keys, which are no business of the ranks",
        id="the keys as a volume",
    ),
    pytest.param(
        host("volumes: {/a: demo-runs}"),
        "6:19: hosts.a.volumes./a: demo-runs is a volume of hvdcompose's own; take another name",
        id="a volume of our own",
    ),
    pytest.param(host("volumes: {/a: ./data}"), f'6:19: hosts.a.volumes./a: "./data" {CLIENT_PATH}', id="source ./"),
    pytest.param(host("volumes: {/a: ../data}"), f'6:19: hosts.a.volumes./a: "../data" {CLIENT_PATH}', id="source ../"),
    pytest.param(host("volumes: {/a: ~/data}"), f'6:19: hosts.a.volumes./a: "~/data" {CLIENT_PATH}', id="source ~"),
    pytest.param(
        host("volumes: {/a: my/data}"),
        f'6:19: hosts.a.volumes./a: "my/data" {CLIENT_PATH}',
        id="source without ./",
    ),
    pytest.param(
        host("volumes: {/a: 'C:\\data'}"),
        f'6:19: hosts.a.volumes./a: "C:\\data" {CLIENT_PATH}',
        id="source on Windows",
    ),
    pytest.param(
        host("volumes: {/a: v 1}"),
        f'6:19: hosts.a.volumes./a: "v 1" {SOURCE_RULE}',
        id="volume name",
    ),
    pytest.param(
        host('volumes: {/a: "/x:ro"}'),
        '6:19: hosts.a.volumes./a: "/x:ro" must not contain a colon or a control character',
        id="colon in source",
    ),
    pytest.param(
        host("volumes: {/a: {read_only: true}}"),
        "6:15: hosts.a.volumes./a.source: is missing",
        id="mount without source",
    ),
    pytest.param(
        host("volumes: {/a: {source: v1, read_only: on}}"),
        "6:43: hosts.a.volumes./a.read_only: must be true or false, not on",
        id="read_only on",
    ),
    # train
    pytest.param(edit("  command: python train.py", "  np: 1"), "8:1: train.command: is missing", id="no command"),
    pytest.param(command("command: ''"), "9:12: train.command: names no program to run", id="empty command"),
    pytest.param(command("command: []"), "9:12: train.command: names no program to run", id="empty list"),
    pytest.param(command('command: ["", x]'), "9:12: train.command: names no program to run", id="empty program"),
    pytest.param(
        command("command: python 'train.py"),
        "9:12: train.command: a quote is not closed, or a backslash ends the string",
        id="open quote",
    ),
    pytest.param(command("command: cd /x && python train.py"), f'9:12: train.command: "&&" {SHELL}', id="&&"),
    pytest.param(command("command: python train.py > log"), f'9:12: train.command: ">" {SHELL}', id=">"),
    pytest.param(
        command("command: {run: x}"),
        "9:12: train.command: must be a string or a list of words, not a mapping",
        id="mapping as command",
    ),
    pytest.param(
        command("command: [python, [x]]"),
        "9:21: train.command[1]: must be text, not a list",
        id="list in command",
    ),
    pytest.param(train("np: 5"), "10:7: train.np: 5 processes but only 2 slots", id="np above slots"),
    pytest.param(
        train("np: 3") + "defaults: {gpus: all}\n",
        "10:7: train.np: 3 processes but only 2 slots; a host with gpus: all counts as 1 until it says slots",
        id="np above slots, gpus all",
    ),
    pytest.param(train("np: 0"), "10:7: train.np: must be a whole number from 1 to 1048576, not 0", id="np 0"),
    pytest.param(
        train("code: ./trainr"),
        "10:9: train.code: there is no folder ./trainr; it is looked for from the folder of this file",
        id="no code folder",
    ),
    pytest.param(
        train("code: ."),
        '10:9: train.code: "." has no name to be mounted under; name a folder, such as ./trainer',
        id="code .",
    ),
    pytest.param(
        train("code: /"),
        '10:9: train.code: "/" has no name to be mounted under; name a folder, such as ./trainer',
        id="code /",
    ),
    pytest.param(train('code: ""'), "10:9: train.code: must name a folder", id="code empty"),
    pytest.param(
        train("code: ./my code"),
        '10:9: train.code: "my code" cannot be mounted under its name; use letters, digits, _ . and -',
        id="code with a space",
    ),
    pytest.param(
        train("volumes: {/a: v1}") + "defaults: {volumes: {/a/: v2}}\n",
        "10:13: train.volumes./a: defaults.volumes./a/ on line 11 mounts at the same path",
        id="target of train and host",
    ),
    pytest.param(train("prepare: ''"), "10:12: train.prepare: names no program to run", id="empty prepare"),
    pytest.param(train("prepare: a && b"), f'10:12: train.prepare: "&&" {SHELL}', id="prepare for a shell"),
    pytest.param(
        train("prepare: {run: x}"),
        "10:12: train.prepare: must be a string or a list of words, not a mapping",
        id="prepare as a mapping",
    ),
    pytest.param(train("output: ./out"), f'10:11: train.output: "./out" {CLIENT_PATH}', id="output on the client"),
    pytest.param(train("output: x"), f'10:11: train.output: "x" {SOURCE_RULE}', id="output no volume"),
    pytest.param(train("output: //"), "10:11: train.output: must name a folder, not /", id="output /"),
    pytest.param(train("output: [a, b]"), "10:11: train.output: must be text, not a list", id="output as a list"),
    pytest.param(
        train("output: demo-runs"),
        "10:11: train.output: demo-runs is a volume of hvdcompose's own; take another name",
        id="output into the records",
    ),
    pytest.param(
        train("output: demo-ssh"),
        "10:11: train.output: demo-ssh holds the cluster's ssh keys, which are no business of the ranks",
        id="output into the keys",
    ),
    pytest.param(
        train("secrets: [A]"),
        "10:12: train.secrets: must be a mapping: name to {env: VARIABLE} or {file: path}, on this machine, not a list",
        id="secrets as a list",
    ),
    pytest.param(train("secrets: {a/b: {env: A}}"), f"10:13: train.secrets.a/b: {SECRET_RULE}", id="secret's name"),
    pytest.param(
        train("secrets: {KEY: 6Tz-very-secret}"),
        f"10:18: train.secrets.KEY: {SECRET}; the value itself has no place in this file",
        id="a secret's value",
    ),
    pytest.param(
        train("secrets: {KEY: {env: 6Tz-very-secret}}"),
        "10:24: train.secrets.KEY.env: must be the name of a variable: letters, digits and _ only, and no digit first",
        id="a secret's value for a variable",
    ),
    pytest.param(
        train("secrets: {KEY: {env: A, file: b}}"), f"10:18: train.secrets.KEY: {SECRET}, not both", id="secret twice"
    ),
    pytest.param(
        train("secrets: {KEY: {}}"),
        "10:13: train.secrets.KEY.env: is missing; a secret is {env: VARIABLE} or {file: path}, on this machine",
        id="secret from nowhere",
    ),
    pytest.param(
        train("secrets: {KEY: {file: keys/}}"),
        '10:25: train.secrets.KEY.file: "keys/" is not the path of a file',
        id="secret from a folder",
    ),
    pytest.param(
        top("runs: {keep: 0}"), "10:14: runs.keep: must be a whole number from 1 to 10000, not 0", id="keep 0"
    ),
    pytest.param(top("runs: {kept: 5}"), '10:8: runs.kept: unknown key; did you mean "keep"?', id="runs kept"),
    pytest.param(top("runs: 5"), "10:7: runs: must be a mapping with keep, not 5", id="runs as a number"),
    pytest.param(train("elastic: {}"), f"10:3: train.elastic: {LATER}", id="elastic"),
    # horovod
    pytest.param(
        top("horovod: {controller: nccl}"),
        "10:23: horovod.controller: must be one of auto, gloo, mpi, not nccl",
        id="controller",
    ),
    pytest.param(
        top("horovod: {fusion_threshold_mb: 1.5}"),
        "10:32: horovod.fusion_threshold_mb: must be a whole number from 0 to 65536, not 1.5",
        id="fusion threshold",
    ),
    pytest.param(
        top("horovod: {cycle_time_ms: -1}"),
        "10:26: horovod.cycle_time_ms: must be a number from 0 to 60000, not -1",
        id="cycle time",
    ),
    pytest.param(
        top("horovod: {start_timeout: 0}"),
        "10:26: horovod.start_timeout: must be a whole number from 1 to 86400, not 0",
        id="start timeout",
    ),
    pytest.param(
        top("horovod: {timeline: t.json}"),
        '10:21: horovod.timeline: "t.json" must be an absolute path',
        id="relative timeline",
    ),
    pytest.param(
        top("horovod: {timeline: /t/}"),
        "10:21: horovod.timeline: must name a file, not a folder",
        id="timeline folder",
    ),
    pytest.param(
        top("horovod: {args: --verbose}"),
        "10:17: horovod.args: must be a list of words for horovodrun, not --verbose",
        id="args as string",
    ),
    pytest.param(top("horovod: {args: [-np, 4]}"), "10:18: horovod.args[0]: hvdcompose sets -np itself", id="-np"),
    pytest.param(
        top("horovod: {args: [-p12345]}"),
        "10:18: horovod.args[0]: hvdcompose sets -p12345 itself",
        id="-p with its value",
    ),
    pytest.param(
        top("horovod: {args: ['--hostf=x']}"),
        "10:18: horovod.args[0]: hvdcompose sets --hostf itself",
        id="option cut short",
    ),
    pytest.param(
        top("horovod: {args: [--cycle-time-ms, 2]}"),
        "10:18: horovod.args[0]: write horovod.cycle_time_ms instead of --cycle-time-ms",
        id="option with a key",
    ),
    pytest.param(
        top("horovod: {args: [--min-np, 2]}"),
        "10:18: horovod.args[0]: --min-np is for elastic runs, which are not accepted yet",
        id="elastic option",
    ),
    pytest.param(
        top("horovod: {args: [--check-build]}"),
        "10:18: horovod.args[0]: with --check-build horovodrun would not start a run",
        id="option that runs nothing",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistake_is_told_with_its_place(text, expected):
    assert complaints(text) == ([expected] if isinstance(expected, str) else expected)


def test_every_mistake_is_told_at_once_in_the_order_of_the_lines():
    text = """\
name: Demo
image: demo:1
image: demo:2
defaults: {env: {DEBUG: yes}, shm_size: huge}
hosts:
  a: {address: "10.0.0.1:22", slots: 2}
  b: {address: 10.0.0.2, slots: 3, gpus: 2}
  c: {address: 10.0.0.2, colour: red}
train:
  command: python train.py | tee log
  np: 7
  code: ./trainr
"""
    assert complaints(text) == [
        f'1:7: name: "Demo" {NAME_RULE}',
        "3:1: image: doubled key, first on line 2",
        '4:25: defaults.env.DEBUG: yes is the boolean true to YAML; quote it: "yes"',
        '4:41: defaults.shm_size: "huge" is not an amount of memory such as 512m or 1g',
        '6:16: hosts.a.address: "10.0.0.1:22" names a port; the port is ssh.port, one for all hosts',
        "7:33: hosts.b.slots: 3 slots but only 2 GPUs reserved",
        "8:16: hosts.c.address: the same address as hosts.b on line 7",
        f"8:26: hosts.c.colour: unknown key; allowed: {HOST_KEYS}",
        f'10:12: train.command: "|" {SHELL}',
        "11:7: train.np: 7 processes but only 6 slots",
        "12:9: train.code: there is no folder ./trainr; it is looked for from the folder of this file",
    ]


def test_mistake_behind_an_anchor_is_told_once_where_it_is_written():
    text = "x-host: &host {slots: 0}\n" + BASE.replace("    address", "    <<: *host\n    address")
    assert complaints(text) == ["1:23: hosts.a.slots: must be a whole number from 1 to 1024, not 0"]


def test_error_is_the_one_for_a_wrong_file():
    with pytest.raises(ConfigError) as caught:
        parse("name: x\n")
    assert caught.value.exit_code == BAD_CONFIG
    assert caught.value.source == "cluster.yaml"
    assert str(caught.value) == "\n".join(f"cluster.yaml:1:1: {key}: is missing" for key in ("hosts", "image", "train"))


def test_smallest_file_gets_every_default():
    assert parse(BASE) == Cluster(
        name="demo",
        image=Image(name="demo:1"),
        ssh=Ssh(port=12345, volume="demo-ssh"),
        hosts=(
            Host(name="a", context="a", address="10.0.0.1", slots=1),
            Host(name="b", context="b", address="10.0.0.2", slots=1),
        ),
        primary_name="a",
        train=Train(command=("python", "train.py"), np=2),
    )


def test_full_file_is_read_in_full():
    text = """\
version: 1
name: full
x-limits: &limits {memlock: -1, stack: {soft: 65536, hard: 67108864}}
image: {name: "registry:5000/team/demo:1.0", build: ./docker, args: {CUDA: 12.10, CPU: "no"}, pull: always}
ssh: {port: 2222, volume: /mnt/nfs2/ssh}
defaults:
  gpus: 2
  interface: eth0
  ulimits: *limits
  env: {NCCL_DEBUG: WARN, LEVEL: 1}
  volumes: {/data: /srv/data, /cache: cache}
hosts:
  big:
    context: big-context
    address: big.lan
    gpus: [0, GPU-1234, "3"]
    env: {LEVEL: 2}
    volumes: {/cache/: {source: /fast/cache, read_only: true}}
  small: {address: 192.168.11.3, primary: true, slots: 1, shm_size: 2G}
train:
  command: [sh, -c, "python train.py > log", 0.10]
  np: 3
  code: ./trainer/
  prepare: python -m data --to "/data/a b"
  volumes: {/out: results}
  output: /srv/results
  env: {SEED: 42}
  secrets: {WANDB_API_KEY: {env: WANDB_KEY}, netrc: {file: ~/.netrc}}
runs: {keep: 7}
horovod:
  controller: gloo
  fusion_threshold_mb: 32
  cycle_time_ms: 3.5
  timeline: /out/timeline.json
  start_timeout: 60
  stall_shutdown: 600
  args: [--verbose, --cache-capacity, 2048, --stall-check]
"""
    limits = {"memlock": Ulimit(soft=-1, hard=-1), "stack": Ulimit(soft=65536, hard=67108864)}
    assert parse(text) == Cluster(
        name="full",
        image=Image(
            name="registry:5000/team/demo:1.0",
            build="./docker",
            args={"CUDA": "12.10", "CPU": "no"},
            pull="always",
        ),
        ssh=Ssh(port=2222, volume="/mnt/nfs2/ssh"),
        hosts=(
            Host(
                name="big",
                context="big-context",
                address="big.lan",
                gpus=Gpus(kind="ids", ids=("0", "GPU-1234", "3")),
                slots=3,
                interface="eth0",
                ulimits=limits,
                env={"NCCL_DEBUG": "WARN", "LEVEL": "2"},
                volumes=(
                    Mount(target="/data", source="/srv/data"),
                    Mount(target="/cache", source="/fast/cache", read_only=True),
                ),
            ),
            Host(
                name="small",
                context="small",
                address="192.168.11.3",
                gpus=Gpus(kind="count", count=2),
                slots=1,
                slots_given=True,
                interface="eth0",
                shm_size="2G",
                ulimits=limits,
                env={"NCCL_DEBUG": "WARN", "LEVEL": "1"},
                volumes=(Mount(target="/data", source="/srv/data"), Mount(target="/cache", source="cache")),
            ),
        ),
        primary_name="small",
        train=Train(
            command=("sh", "-c", "python train.py > log", "0.10"),
            np=3,
            code="./trainer/",
            env={"SEED": "42"},
            prepare=("python", "-m", "data", "--to", "/data/a b"),
            volumes=(Mount(target="/out", source="results"),),
            output="/srv/results",
            secrets={"WANDB_API_KEY": Secret(env="WANDB_KEY"), "netrc": Secret(file="~/.netrc")},
        ),
        runs=Runs(keep=7),
        horovod=Horovod(
            controller="gloo",
            fusion_threshold_mb=32,
            cycle_time_ms=3.5,
            timeline="/out/timeline.json",
            start_timeout=60,
            stall_shutdown=600,
            args=("--verbose", "--cache-capacity", "2048", "--stall-check"),
        ),
    )


@pytest.mark.parametrize(
    ("line", "gpus", "slots"),
    [
        pytest.param("gpus: all", Gpus(kind="all"), 1, id="all"),
        pytest.param('gpus: "all"', Gpus(kind="all"), 1, id="all in quotes"),
        pytest.param("gpus: none", Gpus(), 1, id="none"),
        pytest.param("gpus: 0", Gpus(), 1, id="zero"),
        pytest.param("gpus: 4", Gpus(kind="count", count=4), 4, id="count"),
        pytest.param("gpus: [2, 3]", Gpus(kind="ids", ids=("2", "3")), 2, id="plain ids"),
        pytest.param('gpus: [MIG-5f/1/0, "0:1"]', Gpus(kind="ids", ids=("MIG-5f/1/0", "0:1")), 2, id="MIG"),
        pytest.param(
            "gpus: {driver: cdi, ids: [nvidia.com/gpu=0, nvidia.com/gpu=1]}",
            Gpus(kind="cdi", ids=("nvidia.com/gpu=0", "nvidia.com/gpu=1")),
            2,
            id="cdi",
        ),
        pytest.param(
            "gpus: {driver: cdi, ids: [nvidia.com/gpu=all]}",
            Gpus(kind="cdi", ids=("nvidia.com/gpu=all",)),
            1,
            id="cdi all",
        ),
    ],
)
def test_forms_of_gpus(line, gpus, slots):
    first = parse(host(line)).hosts[0]
    assert (first.gpus, first.slots, first.slots_given) == (gpus, slots, False)


@pytest.mark.parametrize("gpus", ["all", "none", "{driver: cdi, ids: [nvidia.com/gpu=all]}"])
def test_slots_are_free_where_the_number_of_gpus_is_not_known(gpus):
    first = parse(host("slots: 8", f"gpus: {gpus}")).hosts[0]
    assert (first.slots, first.slots_given) == (8, True)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param("python -m x --lr 0.1", ("python", "-m", "x", "--lr", "0.1"), id="words"),
        pytest.param("python 'my file.py' \"$HOME\"", ("python", "my file.py", "$HOME"), id="quotes, nothing expanded"),
        pytest.param(
            "echo $X *.py ~ a;b #c",
            ("echo", "$X", "*.py", "~", "a;b", "#c"),
            id="the shell's signs are literal",
        ),
        pytest.param(">\n    python\n    x.py", ("python", "x.py"), id="folded over lines"),
        pytest.param('["sh", "-c", "a && b", "&&"]', ("sh", "-c", "a && b", "&&"), id="list"),
        pytest.param("[python, x.py, --n, 2, '']", ("python", "x.py", "--n", "2", ""), id="list with a number"),
    ],
)
def test_forms_of_command(written, words):
    # YAML takes " #" for a comment, so the words are quoted as a whole where they hold one
    line = f"command: {written}" if "#" not in written else f"command: '{written}'"
    assert parse(command(line)).train.command == words


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", "1"),
        ("-1", "-1"),
        ("0.5", "0.5"),
        ("1.10", "1.10"),
        ('"yes"', "yes"),
        ('""', ""),
        ("a:b", "a:b"),
        ("$X", "$X"),
    ],
)
def test_env_values_are_taken_as_written(written, value):
    assert parse(train("env:", f"  A: {written}")).train.env == {"A": value}


@pytest.mark.parametrize(
    "reference",
    [
        "demo",
        "library/demo",
        "localhost/demo",
        "registry:5000/demo:2.0_x",
        "ghcr.io/team/sub__part/demo-x.y:Tag",
        "demo@sha256:" + "0" * 64,
        "r.io:443/demo:1@sha256:" + "f" * 64,
    ],
)
def test_image_references(reference):
    assert parse(image(f"image: {reference}")).image == Image(name=reference)


@pytest.mark.parametrize("size", ["1g", "512M", "1.5gb", "1048576", "64b", '"64"'])
def test_amounts_of_memory(size):
    assert parse(host(f"shm_size: {size}")).hosts[0].shm_size == size.strip('"')


def test_sections_may_be_empty():
    assert parse(top("ssh:", "defaults:", "horovod:")) == parse(BASE)


def test_one_host_may_be_this_machine():
    text = edit("  b:\n    address: 10.0.0.2\n", "").replace("10.0.0.1", "localhost")
    assert parse(text).primary.address == "localhost"


def test_merge_keys_and_aliases_work_as_in_yaml():
    text = """\
x-one: &one {gpus: 1, shm_size: 1g}
x-two: &two {gpus: 2, interface: eth0}
name: demo
image: demo:1
hosts:
  a: {<<: [*one, *two], address: 10.0.0.1}
  b: {<<: *two, gpus: 3, address: 10.0.0.2}
train: {command: python train.py}
"""
    first, second = parse(text).hosts
    assert (first.gpus.count, first.shm_size, first.interface) == (1, "1g", "eth0")
    assert (second.gpus.count, second.shm_size, second.interface) == (3, None, "eth0")


def test_shipped_file_is_the_demo():
    cluster = load_cluster(SHIPPED)
    assert cluster.name == "mnist"
    assert cluster.ssh == Ssh(port=12345, volume="mnist-ssh")
    assert [(host.name, host.address, host.slots) for host in cluster.hosts] == [
        (f"lab{number}", f"10.213.77.1{number}", 1) for number in (1, 2, 3, 4)
    ]
    assert {host.gpus.kind for host in cluster.hosts} == {"all"}
    assert cluster.primary.name == "lab1"
    assert cluster.train.np == cluster.slots == 4
    assert cluster.train.command[:3] == ("python", "-m", "trainer.mnist")
    assert cluster.train.env == {"OMP_NUM_THREADS": "1"}
    assert cluster.train.volumes == (Mount(target="/data", source="mnist-data"),)


# load_cluster: the file itself


def test_folders_are_looked_for_from_the_files_own_folder(tmp_path):
    (tmp_path / "trainer").mkdir()
    file = tmp_path / "cluster.yaml"
    file.write_text(train("code: ./trainer"))
    assert load_cluster(file).train.code == "./trainer"


def test_mistakes_carry_the_name_of_the_file(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text(train("code: " + "x" * 300))
    with pytest.raises(ConfigError) as caught:
        load_cluster(file)
    assert str(caught.value).startswith(f"{file}:10:9: train.code: there is no folder xxx")


def test_byte_order_mark_and_windows_line_ends_are_no_mistake(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert load_cluster(file) == parse(BASE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("name: demo\nimage: é\n".encode("latin-1"), "is not text in UTF-8 (line 2)", id="latin-1"),
        pytest.param("name: demo\n".encode("utf-16"), "is not text in UTF-8 (line 1)", id="utf-16"),
        pytest.param(b"#" * (1024 * 1024 + 1), "is larger than 1 MiB, which no cluster.yaml is", id="too large"),
    ],
)
def test_file_that_is_no_text(tmp_path, content, message):
    file = tmp_path / "cluster.yaml"
    file.write_bytes(content)
    with pytest.raises(UnreadableConfigError) as caught:
        load_cluster(file)
    assert (str(caught.value), caught.value.exit_code) == (f"{file}: {message}", BAD_CONFIG)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("absent.yaml", "there is no such file", id="missing"),
        pytest.param(".", "is a folder, not a file", id="folder"),
        pytest.param("loop.yaml", "cannot be read: Too many levels of symbolic links", id="link to itself"),
        pytest.param("absent\0.yaml", "cannot be read: embedded null byte", id="NUL in the name"),
    ],
)
def test_file_that_cannot_be_read(tmp_path, name, message):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    file = tmp_path / name
    with pytest.raises(UnreadableConfigError) as caught:
        load_cluster(file)
    assert (str(caught.value), caught.value.exit_code) == (f"{file}: {message}", BAD_CONFIG)
