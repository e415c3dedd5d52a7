"""What the scripts share: the interface that owns an address; and what they may be written in."""

from __future__ import annotations

import ast
import json
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import hvdlib
import pytest

from hvdcompose.stack.render import templates

SCRIPTS = sorted((templates() / "hvd").glob("*.py"))
HERE = {"host": "beta", "address": "127.0.0.1", "interface": None}


def test_the_loopback_is_seen():
    assert hvdlib.interfaces()["lo"][0] == "127.0.0.1"


def test_every_address_of_every_interface_is_seen():
    """The kernel's routing table names each address that is this machine's own."""
    own = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", Path("/proc/net/fib_trie").read_text())
    assert sorted({found for addresses in hvdlib.interfaces().values() for found in addresses}) == sorted(set(own))


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_the_interface_is_found_by_the_address_or_a_name_for_it(address):
    assert hvdlib.interface_of({**HERE, "address": address, "hosts": [HERE]}) == "lo"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_a_name_that_its_own_host_takes_for_the_loopback(address, monkeypatch):
    """Debian's /etc/hosts gives a machine's own name 127.0.1.1."""
    monkeypatch.setattr(socket, "gethostbyname", {"ganymede": address}.__getitem__)
    with pytest.raises(hvdlib.Fault) as caught:
        hvdlib.interface_of({**HERE, "address": "ganymede"})
    assert str(caught.value) == (
        f"beta: address ganymede resolves to {address} here (/etc/hosts?), where no other host reaches it: "
        "write the IP address in cluster.yaml, or name the NIC of this host there (`interface: eth0`)"
    )
    assert hvdlib.interface_of({**HERE, "address": "ganymede", "interface": "lo"}) == "lo"


def test_a_name_for_an_address_of_another_machine(monkeypatch):
    monkeypatch.setattr(socket, "gethostbyname", {"ganymede": "192.0.2.1"}.__getitem__)
    with pytest.raises(hvdlib.Fault, match=r"beta: address ganymede, here 192\.0\.2\.1, is on no interface of this"):
        hvdlib.interface_of({**HERE, "address": "ganymede"})


def test_an_interface_s_second_address(monkeypatch):
    monkeypatch.setattr(hvdlib, "interfaces", lambda: {"lo": ["127.0.0.1"], "eth0": ["192.0.2.1", "192.0.2.2"]})
    assert hvdlib.interface_of({**HERE, "address": "192.0.2.2"}) == "eth0"


def test_an_interface_that_is_named_must_be_there():
    assert hvdlib.interface_of({**HERE, "address": "10.99.99.99", "interface": "lo"}) == "lo"
    with pytest.raises(hvdlib.Fault) as caught:
        hvdlib.interface_of({**HERE, "interface": "ib7"})
    assert str(caught.value).startswith("beta: no interface ib7 with an IPv4 address here; found ")
    assert "lo 127.0.0.1" in str(caught.value)


def test_an_address_of_another_machine():
    """192.0.2.0/24 is for documentation (RFC 5737): no machine has it."""
    with pytest.raises(hvdlib.Fault) as caught:
        hvdlib.interface_of({**HERE, "address": "192.0.2.1"})
    told = str(caught.value)
    assert told.startswith("beta: address 192.0.2.1 is on no interface of this container; found ")
    assert "lo 127.0.0.1" in told
    assert told.endswith(
        "A rootless Docker, or the address of another machine? "
        "If it is forwarded to this one, name the NIC (`interface: eth0`)"
    )


def test_a_name_that_does_not_resolve():
    with pytest.raises(hvdlib.Fault, match=r"beta: address no-such-host\.invalid does not resolve: "):
        hvdlib.interface_of({**HERE, "address": "no-such-host.invalid"})


def test_the_settings_are_the_rendered_file(tmp_path):
    (tmp_path / "host.json").write_text(json.dumps(HERE))
    program = f"import sys; sys.path.insert(0, {str(templates() / 'hvd')!r}); import hvdlib; print(hvdlib.settings())"
    env = {"HVD_SETTINGS": str(tmp_path / "host.json")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == HERE


def test_what_is_ours_is_said_on_stderr(capsys):
    hvdlib.say("ready")
    assert capsys.readouterr() == ("", "hvdcompose: ready\n")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_syntax_is_python_3_8(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


LATER = ("removeprefix", "removesuffix", "is_relative_to", "readlink", "lcm", "cache", "pairwise", "process_group")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_nothing_is_used_that_python_3_8_lacks(path):
    """Unions and `dict[...]` are annotations only, which are not evaluated."""
    tree = ast.parse(path.read_text())
    assert not {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & set(LATER)
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert "annotations" in [alias.name for node in imported for alias in node.names]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not [call for call in calls if any(word.arg in ("strict", "process_group") for word in call.keywords)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_only_the_standard_library_is_there(path):
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            used |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used.add((node.module or "").partition(".")[0])
    assert used - {path.stem for path in SCRIPTS} <= sys.stdlib_module_names


def test_the_keys_are_waited_for_until_they_are_these(tmp_path, capsys):
    filled = tmp_path / "filled"
    filled.write_text("older\n")
    writer = threading.Timer(0.2, lambda: filled.write_text("wanted\n"))
    writer.start()
    hvdlib.await_keys("wanted", str(filled), 20.0)
    assert filled.read_text() == "wanted\n"


@pytest.mark.parametrize("content", [None, "older\n", ""], ids=["missing", "of other keys", "empty"])
def test_keys_that_do_not_come_are_told(content, tmp_path, monkeypatch):
    settings = tmp_path / "host.json"
    settings.write_text('{"host": "beta"}')
    monkeypatch.setattr(hvdlib, "SETTINGS_FILE", str(settings))
    if content is not None:
        (tmp_path / "filled").write_text(content)
    with pytest.raises(hvdlib.Fault) as caught:
        hvdlib.await_keys("wanted", str(tmp_path / "filled"), 0.2)
    assert str(caught.value) == "beta: its keys have not come within 0 s: `hvdcompose apply` brings them"


def test_started_by_hand_without_a_digest_any_keys_will_do(tmp_path):
    (tmp_path / "filled").write_text("some\n")
    hvdlib.await_keys("", str(tmp_path / "filled"), 0.2)


def test_json_is_written_whole(tmp_path):
    hvdlib.write_json(str(tmp_path / "x.json"), {"a": [1]})
    assert (tmp_path / "x.json").read_text() == '{"a": [1]}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    with pytest.raises(TypeError):
        hvdlib.write_json(str(tmp_path / "x.json"), object())
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [1]}


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A volume with the secrets A and old, and the settings of a host."""
    (tmp_path / "held").mkdir()
    for name in ("A", "old"):
        (tmp_path / "held" / name).write_text(f"value of {name}")
        (tmp_path / "held" / name).chmod(0o400)
    (tmp_path / "host.json").write_text(json.dumps(HERE))
    monkeypatch.setattr(hvdlib, "SETTINGS_FILE", str(tmp_path / "host.json"))
    return tmp_path / "held"


def test_secrets_are_found_under_run_secrets_and_old_ones_are_gone(held, tmp_path):
    for _ in range(2):  # the container may be started once more
        hvdlib.link_secrets(["A"], str(held), str(tmp_path / "run"))
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["A"]
        assert (tmp_path / "run" / "A").read_text() == "value of A"
        assert (tmp_path / "run" / "A").stat().st_mode & 0o777 == 0o400
        assert [path.name for path in held.iterdir()] == ["A"]


def test_a_secret_takes_the_place_of_the_image_s_own_file(held, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "A").write_text("of the image")
    hvdlib.link_secrets(["A"], str(held), str(tmp_path / "run"))
    assert (tmp_path / "run" / "A").read_text() == "value of A"


def test_a_secret_that_was_not_brought_is_told(held, tmp_path):
    with pytest.raises(hvdlib.Fault) as caught:
        hvdlib.link_secrets(["B", "A", "C"], str(held), str(tmp_path / "run"))
    assert str(caught.value) == "beta: no secret B, C here: `hvdcompose apply` brings them"


def test_without_secrets_nothing_is_made(tmp_path):
    hvdlib.link_secrets([], str(tmp_path / "held"), str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
