"""Other clusters on the same hosts: what of ours they have. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clusters import TWO, cluster_of

from hvdcompose.deploy.neighbours import conflicts
from hvdcompose.hosts.observed import Container, Observed
from hvdcompose.stack.plan import plan_hosts

OTHER = Container(
    "id", "second-worker-1", "running", "Up 2 minutes", "im", "worker", cluster="second", port="9999", project="second"
)


def told(text: str, alpha: tuple[Container, ...] = (), beta: tuple[Container, ...] = ()) -> list[str]:
    """Return what is told of a cluster.yaml where both hosts get a container."""
    plans = {plan.host: plan for plan in plan_hosts(cluster_of(text))}
    observed = {"alpha": Observed(others=alpha), "beta": Observed(others=beta)}
    return [str(conflict) for conflict in conflicts(plans, observed, ("alpha", "beta"))]


def gpus(text: str) -> str:
    return TWO.replace("beta: {address: 10.0.0.2}", f"beta: {{address: 10.0.0.2, gpus: {text}, slots: 1}}")


PORT = str(cluster_of().ssh.port)
TAKEN = replace(OTHER, port=PORT)


def test_alone_on_its_hosts_and_beside_others_on_other_ports():
    assert told(TWO) == told(TWO, (OTHER,), (OTHER,)) == []


def test_a_port_that_another_worker_has():
    (found,) = told(TWO, beta=(TAKEN,))
    assert found == f"beta: port {PORT} is taken by cluster second, container second-worker-1"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(TAKEN, state="exited", status="Exited (0)"), id="one that ended"),
        pytest.param(replace(TAKEN, service="launcher"), id="a launcher listens on none"),
    ],
)
def test_a_port_that_is_free_all_the_same(other):
    assert told(TWO, beta=(other,)) == []


def test_a_launcher_of_ours_needs_no_port():
    assert told(TWO, alpha=(TAKEN,)) == []


def test_where_nothing_is_started_nothing_is_in_the_way():
    plans = {plan.host: plan for plan in plan_hosts(cluster_of())}
    assert conflicts(plans, {"alpha": Observed(), "beta": Observed(others=(TAKEN,))}, ("alpha",)) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "what"),
    [
        ("all", "all", "the GPUs are"),
        ("all", "any 1", "the GPUs are"),
        ("1", "all", "the GPUs are"),
        ("['0', '1']", "1", "GPU 1 is"),
        ("['0', '1']", "1,0", "GPU 0, 1 is"),
        ("all", "0", "the GPUs are"),
        ("['0']", "1", None),
        ("1", "any 1", None),
        ("['1']", "any 1", None),
        ("none", "all", None),
        ("all", "", None),
    ],
)
def test_gpus_overlap_for_sure_or_are_shared(ours, theirs, what):
    found = told(gpus(ours), beta=(replace(OTHER, gpus=theirs),))
    assert found == ([] if what is None else [f"beta: {what} taken by cluster second, container second-worker-1"])


def test_what_to_change():
    plans = {plan.host: plan for plan in plan_hosts(cluster_of(gpus("all")))}
    other = replace(TAKEN, gpus="all")
    port, cards = conflicts(plans, {"beta": Observed(others=(other,))}, ("beta",))
    assert port.remedy == "ssh.port: another one; or take second down"
    assert cards.remedy == "hosts.beta.gpus: ids that second does not use; or take second down"
