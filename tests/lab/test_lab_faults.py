"""The table of faults: what breaks a host and what mends it, as docker commands; and what is kept meanwhile."""

from __future__ import annotations

import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from hvdcompose.errors import HvdError, Refused, UsageError
from hvdcompose.lab import broken, faults, spec
from hvdcompose.lab.faults import FAULTS, READY, Case
from hvdcompose.lab.plan import Broken, Host

HOST = Host("lab2", IPv4Address("10.213.77.12"), gpus=2)
ALL = {"port": "12345", "path": "/data", "ssh": "mnist-ssh", "image": "hvd:1", "gpus": "1"}
NAMES = [fault.name for fault in FAULTS]
STAND_INS = ["rootless", "old-engine", "disk-full"]
RUNNING = {"hvdcompose-lab1": "running", "hvdcompose-lab2": "running"}


def case(name, **values):
    fault = faults.find(name)
    told = {fault.value: ALL[fault.value], **values} if fault.value else {}
    return Case(fault, "hvdcompose-lab2", "10.213.77.12", told, "/state/broken/lab2", "hvdcompose-lab2-docker-fault")


def lines(steps):
    return [" ".join(words) for words in steps]


def verbs(steps):
    return [words[0] for words in steps]


def script(steps):
    """The one script among these steps."""
    (text,) = (words[4] for words in steps if words[2:4] == ("sh", "-euc"))
    return text


def test_the_faults_that_real_hosts_have():
    assert NAMES == [
        "rootless", "old-engine", "engine-stopped", "frozen", "cut-off", "ssh-dropped", "ssh-rejected",
        "ports-blocked", "nic-name", "no-gpu-runtime", "fewer-gpus", "data-missing", "ssh-modes", "wrong-image",
        "small-shm", "disk-full",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_told_in_one_line_and_has_a_way_back(name):
    fault = faults.find(name)
    assert "\n" not in fault.shown
    assert len(fault.shown) < 120
    assert fault.mends or fault.stand_in or fault.breaks == (("pause", faults.HOST),)


@pytest.mark.parametrize("name", NAMES)
def test_every_word_is_filled_in_and_every_script_parses(name):
    told = case(name)
    look = told.filled((told.fault.look.words,)) if told.fault.look else []
    for words in [*look, *faults.break_steps(told), *faults.mend_steps(told, RUNNING)]:
        assert not [word for word in words for value in ("container", "address", *ALL) if f"<{value}>" in word]
        if words[2:4] == ("sh", "-euc"):
            assert words[5] == "lab"  # $0: what follows are the script's arguments
            subprocess.run(["sh", "-n", "-c", words[4]], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_host_s_own_containers_and_volume_are_touched(name):
    told = case(name)
    for words in [*faults.break_steps(told), *faults.mend_steps(told, RUNNING)]:
        names = [word.partition(":")[0] for word in words if word.startswith("hvdcompose-lab")]
        assert all(word.startswith("hvdcompose-lab2") for word in names)
        assert words == READY or words == () or names


class TestBreaking:
    def test_a_firewall_is_a_chain_of_its_own_and_spares_the_host_itself(self):
        assert lines(faults.break_steps(case("ssh-dropped", port="2222"))) == [
            "exec hvdcompose-lab2 iptables -w -N HVDCOMPOSE-LAB",
            "exec hvdcompose-lab2 iptables -w -A HVDCOMPOSE-LAB -p tcp --dport 2222 -j DROP",
            "exec hvdcompose-lab2 iptables -w -I INPUT ! -i lo -j HVDCOMPOSE-LAB",
        ]

    def test_random_ports_are_blocked_behind_the_exception_for_ssh_and_answers_come_in(self):
        rules = [line.partition("-A HVDCOMPOSE-LAB ")[2] for line in lines(faults.break_steps(case("ports-blocked")))]
        assert [rule for rule in rules if rule] == [
            "-p tcp --syn --dport 12345 -j RETURN",
            "-p tcp --syn --dport 1024:65535 -j DROP",
        ]

    def test_frozen(self):
        assert lines(faults.break_steps(case("frozen"))) == ["pause hvdcompose-lab2"]

    def test_an_engine_that_starts_otherwise_is_waited_for_and_one_that_does_not_start_is_not(self):
        for name in ("no-gpu-runtime", "fewer-gpus", "small-shm"):
            assert lines(faults.break_steps(case(name))[-2:]) == ["restart -t 2 hvdcompose-lab2", "ready"]
        assert lines(faults.break_steps(case("engine-stopped"))[-1:]) == ["restart -t 2 hvdcompose-lab2"]

    @pytest.mark.parametrize("name", STAND_INS)
    def test_a_stand_in_takes_the_place_with_the_host_s_key(self, name):
        steps = lines(faults.break_steps(case(name), ("create", "the-stand-in")))
        assert steps[:9] == [
            "cp hvdcompose-lab2:/etc/ssh/ssh_host_ed25519_key /state/broken/lab2/ssh_host_ed25519_key",
            "cp hvdcompose-lab2:/etc/ssh/ssh_host_ed25519_key.pub /state/broken/lab2/ssh_host_ed25519_key.pub",
            "stop -t 5 hvdcompose-lab2",
            "rename hvdcompose-lab2 hvdcompose-lab2-sound",
            "create the-stand-in",
            "cp /state/broken/lab2/ssh_host_ed25519_key hvdcompose-lab2:/etc/ssh/ssh_host_ed25519_key",
            "cp /state/broken/lab2/ssh_host_ed25519_key.pub hvdcompose-lab2:/etc/ssh/ssh_host_ed25519_key.pub",
            "start hvdcompose-lab2",
            "ready",
        ]


class TestMending:
    @pytest.mark.parametrize("name", NAMES)
    def test_it_ends_with_an_engine_that_answers(self, name):
        assert faults.mend_steps(case(name), RUNNING)[-1] == READY

    @pytest.mark.parametrize("name", NAMES)
    def test_a_host_that_was_stopped_or_frozen_meanwhile_runs_first(self, name):
        for status, verb in (("paused", "unpause"), ("exited", "start"), ("created", "start")):
            assert verbs(faults.mend_steps(case(name), {"hvdcompose-lab2": status}))[0] == verb

    @pytest.mark.parametrize("name", NAMES)
    def test_nothing_is_done_to_a_host_that_is_gone(self, name):
        assert faults.mend_steps(case(name), {"hvdcompose-lab1": "running"}) == []

    @pytest.mark.parametrize("name", STAND_INS)
    def test_a_stand_in_makes_way(self, name):
        statuses = {"hvdcompose-lab2": "running", "hvdcompose-lab2-sound": "exited"}
        assert lines(faults.mend_steps(case(name), statuses)) == [
            "rm --force hvdcompose-lab2",
            "volume rm --force hvdcompose-lab2-docker-fault",
            "rename hvdcompose-lab2-sound hvdcompose-lab2",
            "start hvdcompose-lab2",
            "ready",
        ]

    @pytest.mark.parametrize(
        ("statuses", "expected"),
        [
            ({"hvdcompose-lab2": "running"}, ["restart", "ready"]),  # interrupted while it was being stopped,
            ({"hvdcompose-lab2": "exited"}, ["start", "ready"]),  # before it was renamed,
            ({"hvdcompose-lab2-sound": "exited"}, ["volume", "rename", "start", "ready"]),  # before there was another,
            (  # before the other was started
                {"hvdcompose-lab2": "created", "hvdcompose-lab2-sound": "exited"},
                ["rm", "volume", "rename", "start", "ready"],
            ),
        ],
    )
    @pytest.mark.parametrize("name", STAND_INS)
    def test_an_exchange_that_was_interrupted_is_undone_from_anywhere(self, name, statuses, expected):
        assert verbs(faults.mend_steps(case(name), statuses)) == expected

    def test_the_engine_s_own_start_comes_back_before_it_starts(self):
        for name in ("engine-stopped", "no-gpu-runtime", "fewer-gpus", "small-shm"):
            assert verbs(faults.mend_steps(case(name), RUNNING)) == ["exec", "restart", "ready"]


def run(text, *arguments):
    return subprocess.run(["sh", "-euc", text, "lab", *map(str, arguments)], capture_output=True, text=True)


class TestData:
    BREAK = script(faults.break_steps(case("data-missing")))
    MEND = script(faults.mend_steps(case("data-missing"), RUNNING))

    @pytest.fixture
    def data(self, tmp_path):
        folder = tmp_path / "my data"
        folder.mkdir()
        (folder / "images").write_text("pixels")
        return folder

    def test_it_is_gone_and_comes_back_and_more_of_either_does_no_harm(self, data):
        for _ in range(2):
            assert run(self.BREAK, data).returncode == 0
            assert not data.exists()
        for _ in range(2):
            assert run(self.MEND, data).returncode == 0
            assert (data / "images").read_text() == "pixels"

    def test_the_empty_folder_that_an_engine_makes_gives_way(self, data):
        run(self.BREAK, data)
        data.mkdir()
        assert run(self.MEND, data).returncode == 0
        assert (data / "images").read_text() == "pixels"

    def test_what_somebody_put_there_meanwhile_does_not(self, data):
        run(self.BREAK, data)
        data.mkdir()
        (data / "theirs").touch()
        assert run(self.MEND, data).returncode != 0
        assert (data / "theirs").exists()


class TestSettling:
    @pytest.mark.parametrize(
        ("name", "given", "defaults", "values"),
        [
            ("frozen", {}, {"port": "1"}, {}),
            ("ssh-dropped", {}, {"port": "12345"}, {"port": "12345"}),
            ("ssh-dropped", {"port": "2222"}, {"port": "12345"}, {"port": "2222"}),
            ("data-missing", {}, {"path": "/srv/mnist"}, {"path": "/srv/mnist"}),
            ("fewer-gpus", {}, {}, {"gpus": "1"}),
        ],
    )
    def test_what_was_given_comes_before_the_defaults(self, name, given, defaults, values):
        assert faults.settle(faults.find(name), HOST, given, defaults) == values

    @pytest.mark.parametrize(
        ("name", "host", "given", "error", "message"),
        [
            ("frozen", HOST, {"port": "1"}, UsageError, "--port says nothing about frozen"),
            ("data-missing", HOST, {"port": "1"}, UsageError, "--port says nothing about data-missing"),
            ("wrong-image", HOST, {}, UsageError, "wrong-image has to be told --image"),
            ("fewer-gpus", HOST, {"gpus": "2"}, Refused, "lab2 has 2 GPUs: 1 to 1 would be fewer"),
            ("fewer-gpus", Host("lab2", HOST.address), {}, Refused, "lab2 has 1 GPU: fewer would be none"),
            ("fewer-gpus", Host("lab2", HOST.address, gpus=0), {}, Refused, "lab2 has no GPUs as it is"),
            ("no-gpu-runtime", Host("lab2", HOST.address, gpus=0), {}, Refused, "lab2 has no GPUs as it is"),
            ("rootless", Host("lab2", HOST.address, rootless=True), {}, Refused, "lab2 is rootless as it is"),
        ],
    )
    def test_what_cannot_be_is_said(self, name, host, given, error, message):
        with pytest.raises(error) as problem:
            faults.settle(faults.find(name), host, given, {})
        assert problem.value.message == message

    def test_a_fault_that_is_not_known_is_told_with_those_that_are(self):
        with pytest.raises(UsageError, match="there is no fault fire") as problem:
            faults.find("fire")
        assert "rootless, old-engine" in problem.value.hint


class TestMemory:
    @pytest.fixture
    def lab(self, tmp_path):
        return spec.Lab("lab", tmp_path / "lab")

    def test_what_is_broken_is_known_until_it_is_mended(self, lab):
        assert broken.read_broken(lab) == {}
        frozen = broken.write_broken(lab, "lab1", "frozen", {})
        dropped = broken.write_broken(lab, "lab2", "ssh-dropped", {"port": "12345"})
        assert broken.read_broken(lab) == {"lab1": frozen, "lab2": dropped}
        assert dropped == Broken("lab2", "ssh-dropped", {"port": "12345"}, dropped.since)
        (lab.broken("lab2") / "ssh_host_ed25519_key").touch()
        broken.forget(lab, "lab2")
        assert broken.read_broken(lab) == {"lab1": frozen}

    @pytest.mark.parametrize("text", ["", "{}", "[1]", '{"fault": "frozen"}'])
    def test_a_file_that_is_not_ours_is_one_clear_error(self, lab, text):
        broken.write_broken(lab, "lab1", "frozen", {})
        file = Path(lab.broken("lab1")) / broken.FILE
        file.write_text(text)
        with pytest.raises(HvdError, match="cannot be read"):
            broken.read_broken(lab)
