"""What `lab up` decides, as text, and the docker commands it makes of it."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from hvdcompose.errors import Refused, UsageError
from hvdcompose.lab import plan, spec
from hvdcompose.lab.plan import Broken, Context, Host, Network, Observed, Standing
from hvdcompose.lab.spec import Request

LAB = spec.Lab("lab", Path("/state/lab"))
SUBNET = IPv4Network("10.213.77.0/24")
NOTHING = Observed()


def context(host, *, description=spec.DESCRIPTION, endpoint=None):
    return Context(host, description, endpoint or f"unix:///state/lab/{host}/docker.sock")


def standing(number, status="running", *, attached=True, **host):
    name = f"lab{number}"
    return Standing(Host(name, spec.address(SUBNET, number), **host), status, "image", attached)


def stands(*hosts):
    return Observed(
        Network(SUBNET, ours=True),
        {each.host.name: each for each in hosts},
        {each.host.name: context(each.host.name) for each in hosts},
    )


def steps(decided):
    return [str(step) for step in decided.steps]


def test_from_nothing():
    decided = plan.plan_up(LAB, Request(hosts=2), NOTHING)
    assert steps(decided) == ["lab1: create (not there)", "lab2: create (not there)"]
    assert decided.make_network
    assert decided.subnet == SUBNET
    assert decided.contexts == {
        "lab1": (
            "context", "create", "lab1", "--description", "hvdcompose lab",
            "--docker", "host=unix:///state/lab/lab1/docker.sock",
        ),
        "lab2": (
            "context", "create", "lab2", "--description", "hvdcompose lab",
            "--docker", "host=unix:///state/lab/lab2/docker.sock",
        ),
    }  # fmt: skip


def test_four_hosts_with_one_gpu_and_no_quota_are_the_default():
    decided = plan.plan_up(LAB, Request(), NOTHING)
    assert [step.host.name for step in decided.steps] == ["lab1", "lab2", "lab3", "lab4"]
    assert {(step.host.gpus, step.host.cpus, step.host.rootless) for step in decided.steps} == {(1, None, False)}


def test_with_all_there_nothing_is_done():
    decided = plan.plan_up(LAB, Request(hosts=2), stands(standing(1), standing(2)))
    assert steps(decided) == ["lab1: keep (runs)", "lab2: keep (runs)"]
    assert not decided.make_network
    assert decided.contexts == {}


@pytest.mark.parametrize(
    ("there", "step"),
    [
        (standing(1, "exited"), "lab1: start (was stopped)"),
        (standing(1, "created"), "lab1: start (was never started)"),
        (standing(1, "paused"), "lab1: unpause (was paused)"),
        (standing(1, "dead"), "lab1: recreate (was dead)"),
        (standing(1, attached=False), "lab1: keep (runs), connect"),
        (standing(1, "exited", attached=False), "lab1: start (was stopped), connect"),
        (standing(1, "removing", attached=False), "lab1: recreate (was removing)"),
    ],
)
def test_a_host_that_is_down_comes_back(there, step):
    assert steps(plan.plan_up(LAB, Request(), stands(there))) == [step]


def test_hosts_beyond_those_asked_for_stay():
    decided = plan.plan_up(LAB, Request(hosts=2), stands(*(standing(n) for n in (1, 2, 3, 10))))
    assert steps(decided) == ["lab1: keep (runs)", "lab2: keep (runs)"]
    assert decided.others == ("lab3", "lab10")


def test_without_a_number_a_gap_is_filled():
    decided = plan.plan_up(LAB, Request(), stands(standing(1), standing(3)))
    assert steps(decided) == ["lab1: keep (runs)", "lab2: create (not there)", "lab3: keep (runs)"]


def test_new_hosts_may_differ_from_those_that_stand():
    decided = plan.plan_up(LAB, Request(hosts=2, gpus=0, cpus=0.5), stands(standing(1)))
    assert [(step.host.gpus, step.host.cpus) for step in decided.steps] == [(1, None), (0, 0.5)]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(gpus=2), "lab1 has 1 GPU, not 2"),
        (Request(cpus=0.5), "lab1 has no CPU quota, not 0.5"),
        (Request(rootless=frozenset({"lab1"})), "lab1 stands already, and is not rootless"),
        (Request(subnet=IPv4Network("10.9.0.0/24")), "the lab stands on 10.213.77.0/24, not on 10.9.0.0/24"),
    ],
)
def test_what_would_change_a_standing_host_is_refused(request_, message):
    with pytest.raises(Refused, match=message) as problem:
        plan.plan_up(LAB, request_, stands(standing(1)))
    assert problem.value.hint == "hvdcompose lab down"


def test_asking_again_for_what_is_there_is_fine():
    there = stands(standing(1, gpus=2, cpus=0.5, rootless=True))
    asked = Request(gpus=2, cpus=0.5, rootless=frozenset({"lab1"}), subnet=SUBNET)
    assert steps(plan.plan_up(LAB, asked, there)) == ["lab1: keep (runs)"]


def test_rootless_needs_a_host_of_the_lab():
    with pytest.raises(UsageError, match="--rootless lab9: the hosts are lab1 to lab2"):
        plan.plan_up(LAB, Request(hosts=2, rootless=frozenset({"lab9"})), NOTHING)


def test_hosts_whose_network_is_gone_are_made_again_in_the_new_one():
    there = replace(stands(standing(1)), network=None)
    decided = plan.plan_up(LAB, Request(subnet=IPv4Network("10.9.0.0/24")), there)
    assert steps(decided) == ["lab1: recreate (its network is gone)"]
    assert decided.steps[0].host.address == IPv4Address("10.9.0.11")


def test_a_network_of_that_name_that_is_not_ours_is_refused():
    with pytest.raises(Refused, match="a Docker network hvdcompose-lab is there"):
        plan.plan_up(LAB, Request(), Observed(Network(SUBNET, ours=False)))


def test_a_subnet_without_room_is_told():
    small = IPv4Network("10.9.0.0/28")
    assert len(plan.plan_up(LAB, Request(hosts=4, subnet=small), NOTHING).steps) == 4
    with pytest.raises(UsageError, match=r"10\.9\.0\.0/28 is too small for 5 hosts"):
        plan.plan_up(LAB, Request(hosts=5, subnet=small), NOTHING)


class TestBroken:
    BROKEN = Broken("lab2", "ssh-dropped", {"port": "12345"}, 0)

    def test_up_leaves_a_broken_host_alone_and_says_so(self):
        there = replace(stands(standing(1), standing(2, "paused")), broken={"lab2": self.BROKEN})
        decided = plan.plan_up(LAB, Request(), there)
        assert steps(decided) == ["lab1: keep (runs)"]
        assert decided.broken == (self.BROKEN,)

    def test_one_whose_container_is_being_exchanged_is_not_made_anew(self):
        there = replace(stands(standing(1)), broken={"lab2": self.BROKEN})
        decided = plan.plan_up(LAB, Request(), there)
        assert steps(decided) == ["lab1: keep (runs)"]
        assert decided.broken == (self.BROKEN,)

    def test_one_beyond_the_hosts_asked_for_is_no_matter(self):
        there = replace(stands(standing(1), standing(2)), broken={"lab2": self.BROKEN})
        assert plan.plan_up(LAB, Request(hosts=1), there).broken == ()

    def test_it_is_told_with_what_it_is_about(self):
        assert self.BROKEN.text == "ssh-dropped, port 12345"
        assert replace(self.BROKEN, fault="frozen", values={}).text == "frozen"


class TestContexts:
    def test_one_that_is_not_ours_is_refused_before_anything_is_made(self):
        theirs = Observed(contexts={"lab2": context("lab2", description="my box", endpoint="ssh://me@box")})
        with pytest.raises(Refused, match=r"a Docker context lab2 is there .* \(ssh://me@box\)") as problem:
            plan.plan_up(LAB, Request(hosts=2), theirs)
        assert problem.value.hint == "docker context rm lab2, or give the lab another --name"

    def test_one_beyond_the_hosts_asked_for_is_no_matter(self):
        theirs = Observed(contexts={"lab3": context("lab3", description="my box")})
        assert len(plan.plan_up(LAB, Request(hosts=2), theirs).contexts) == 2

    def test_over_ssh_the_user_s_contexts_are_no_matter(self):
        theirs = Observed(contexts={"lab1": context("lab1", description="my box")})
        assert plan.plan_up(LAB, Request(ssh=True), theirs).contexts == {}

    def test_one_of_ours_that_points_elsewhere_is_corrected(self):
        moved = replace(stands(standing(1)), contexts={"lab1": context("lab1", endpoint="unix:///old.sock")})
        assert plan.plan_up(LAB, Request(), moved).contexts == {
            "lab1": ("context", "update", "lab1", "--docker", "host=unix:///state/lab/lab1/docker.sock")
        }

    def test_down_takes_only_ours(self):
        there = {"lab10": context("lab10"), "lab2": context("lab2"), "lab1": context("lab1", description="my box")}
        assert plan.stale_contexts(LAB, there) == ["lab2", "lab10"]

    def test_reading_the_list_keeps_the_names_of_this_lab_s_hosts(self):
        listed = [
            {"Name": name, "Description": "", "DockerEndpoint": "unix:///x"}
            for name in ("default", "lab1", "lab", "other1")
        ]
        assert list(plan.read_contexts(LAB, listed)) == ["lab1"]


class TestCommands:
    HOST = Host("lab2", IPv4Address("10.213.77.12"), gpus=2)

    def test_network(self):
        assert " ".join(plan.network_words(LAB, SUBNET)) == (
            "network create --label hvdcompose.lab=lab --subnet 10.213.77.0/24 hvdcompose-lab"
        )

    def test_host(self):
        words = plan.host_words(LAB, self.HOST, "hvdcompose-lab-host:0123", privileged=True, socket_group=1000)
        assert " ".join(words) == (
            "run --detach --init --pull never --name hvdcompose-lab2 --hostname lab2"
            " --label hvdcompose.lab=lab --label hvdcompose.lab.host=lab2"
            " --label hvdcompose.lab.address=10.213.77.12"
            " --label hvdcompose.lab.gpus=2 --label hvdcompose.lab.rootless=0"
            " --privileged"
            " --network hvdcompose-lab --ip 10.213.77.12 --network-alias lab2"
            " --mount type=volume,source=hvdcompose-lab2-docker,target=/var/lib/docker"
            ",volume-label=hvdcompose.lab=lab"
            " --mount type=bind,source=/state/lab/lab2,target=/lab"
            " --env LAB_GPUS=2 --env LAB_SOCKET_GID=1000"
            " --log-opt max-size=5m --log-opt max-file=2"
            " hvdcompose-lab-host:0123"
        )

    def test_without_privileges_it_gets_what_they_would_give_but_one_capability(self):
        words = plan.host_words(LAB, self.HOST, "image", privileged=False, socket_group=0)
        assert "--privileged" not in words
        assert words[words.index("--cap-drop") + 1] == "SYS_RESOURCE"

    def test_a_quota_only_where_asked(self):
        def words(host):
            return plan.host_words(LAB, host, "image", privileged=True, socket_group=0)

        assert "--cpus" not in words(self.HOST)
        quota = words(replace(self.HOST, cpus=0.5))
        assert quota[quota.index("--cpus") + 1] == "0.5"

    def test_a_rootless_host_keeps_its_data_in_the_user_s_home(self):
        words = plan.host_words(LAB, replace(self.HOST, rootless=True), "i", privileged=True, socket_group=0)
        assert "target=/home/lab/.local/share/docker," in " ".join(words)

    def test_a_stand_in_has_all_that_the_host_has_but_its_disk_and_is_not_started(self):
        own = plan.host_words(LAB, self.HOST, "image", privileged=True, socket_group=0)
        words = plan.stand_in_words(LAB, self.HOST, "old", rootless=False, size="", privileged=True, socket_group=0)
        assert words[0] == "create"
        assert set(own) - set(words) == {
            "run", "--detach", "image",
            "type=volume,source=hvdcompose-lab2-docker,target=/var/lib/docker,volume-label=hvdcompose.lab=lab",
        }  # fmt: skip
        assert set(words) - set(own) == {
            "create", "old",
            "type=volume,source=hvdcompose-lab2-docker-fault,target=/var/lib/docker,volume-label=hvdcompose.lab=lab",
        }  # fmt: skip

    def test_a_rootless_stand_in_with_a_small_disk(self):
        words = plan.stand_in_words(LAB, self.HOST, "i", rootless=True, size="64m", privileged=True, socket_group=0)
        assert "hvdcompose.lab.rootless=0" in words  # the host that it stands for has root
        assert words[words.index("--mount") + 1] == (
            "type=volume,source=hvdcompose-lab2-docker-fault,target=/home/lab/.local/share/docker"
            ",volume-label=hvdcompose.lab=lab,volume-opt=type=tmpfs,volume-opt=device=tmpfs,volume-opt=o=size=64m"
        )

    def test_getting_the_network_back(self):
        assert " ".join(plan.connect_words(LAB, self.HOST)) == (
            "network connect --ip 10.213.77.12 --alias lab2 hvdcompose-lab hvdcompose-lab2"
        )


INSPECTED = {
    "Name": "/hvdcompose-lab2",
    "Config": {
        "Image": "hvdcompose-lab-host:0123",
        "Labels": {
            "hvdcompose.lab": "lab",
            "hvdcompose.lab.host": "lab2",
            "hvdcompose.lab.address": "10.213.77.12",
            "hvdcompose.lab.gpus": "2",
            "hvdcompose.lab.rootless": "1",
        },
    },
    "HostConfig": {"NanoCpus": 500000000},
    "State": {"Status": "exited"},
    "NetworkSettings": {"Networks": {"hvdcompose-lab": {}}},
}


class TestReading:
    def test_a_host(self):
        assert plan.read_standing(LAB, INSPECTED) == Standing(
            Host("lab2", IPv4Address("10.213.77.12"), gpus=2, cpus=0.5, rootless=True),
            "exited",
            "hvdcompose-lab-host:0123",
            attached=True,
        )

    @pytest.mark.parametrize("labels", [None, {}, {"hvdcompose.lab": "lab"}, {"hvdcompose.lab": "other"}])
    def test_a_container_without_our_labels_is_no_host(self, labels):
        config = {"Image": "x", "Labels": labels}
        assert plan.read_standing(LAB, {**INSPECTED, "Config": config}) is None

    def test_the_host_s_own_container_is_not_it_while_a_stand_in_has_its_place(self):
        assert plan.read_standing(LAB, {**INSPECTED, "Name": "/hvdcompose-lab2-sound"}) is None

    def test_the_network(self):
        inspected = {
            "IPAM": {"Config": [{"Subnet": "fd00::/64"}, {"Subnet": "10.9.0.0/24"}]},
            "Labels": {"hvdcompose.lab": "lab"},
        }
        assert plan.read_network(LAB, inspected) == Network(IPv4Network("10.9.0.0/24"), ours=True)
        assert not plan.read_network(LAB, {**inspected, "Labels": None}).ours
