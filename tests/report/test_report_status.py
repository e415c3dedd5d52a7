"""Rows of `hvdcompose status`."""

from __future__ import annotations

from clusters import cluster_of

from hvdcompose.deploy.reconcile import Action, Plan, Step
from hvdcompose.errors import HostError
from hvdcompose.hosts.fanout import Outcome
from hvdcompose.hosts.observed import Container, Observed
from hvdcompose.report.status import Row, row
from hvdcompose.stack.plan import plan_hosts

ALPHA, BETA = plan_hosts(cluster_of())
LAUNCHER = Container("id", "demo-launcher-1", "running", "Up 5 seconds", "trainer:1", "launcher", run="r1")
WORKER = Container("id", "demo-worker-1", "running", "Up 2 minutes (healthy)", "trainer:1", "worker")
PLAN = Plan(
    (
        Step("beta", Action.SEND_CODE, "this version is not there"),
        Step("beta", Action.RECREATE, "the code changed"),
        Step("alpha", Action.LAUNCH, "never ran: x"),
    )
)


def test_a_host_that_stands_as_wanted():
    expected = Row("beta", "beta", "worker", "Up 2 minutes (healthy)", "", "")
    assert row(BETA, Outcome(Observed((WORKER,))), Plan()) == expected


def test_the_run_is_named_where_it_runs():
    assert row(ALPHA, Outcome(Observed((LAUNCHER,))), None) == Row(
        "alpha", "alpha", "launcher", "Up 5 seconds", "r1", ""
    )


def test_what_apply_would_do_there():
    found = row(BETA, Outcome(Observed((WORKER,))), PLAN)
    assert found.needs == "send code: this version is not there; recreate: the code changed"


def test_without_a_plan_the_row_says_why_there_is_none():
    assert row(BETA, Outcome(Observed((WORKER,))), None, "refuse").needs == "refuse"
    assert row(BETA, Outcome(Observed((WORKER,))), Plan(), "refuse").needs == ""


def test_nothing_there():
    found = row(BETA, Outcome(Observed()), PLAN)
    assert (found.state, found.run, found.failed) == ("not there", "", False)
    assert row(BETA, Outcome(Observed((LAUNCHER,))), None).state == "not there", "the other role's container is not its"


def test_a_state_without_words():
    created = Container("id", "demo-worker-1", "created", "", "trainer:1", "worker")
    assert row(BETA, Outcome(Observed((created,))), None).state == "created"


def test_a_host_that_does_not_answer():
    assert row(BETA, Outcome(error=HostError("beta", "no route to the host")), PLAN) == Row(
        "beta", "beta", "worker", "no route to the host", "", "", failed=True
    )
    assert row(BETA, Outcome(), None).state == "no answer"


def test_json():
    assert row(BETA, Outcome(Observed((WORKER,))), Plan()).to_json() == {
        "host": "beta",
        "context": "beta",
        "role": "worker",
        "state": "Up 2 minutes (healthy)",
        "run": "",
        "needs": "",
        "failed": False,
    }
