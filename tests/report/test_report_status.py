"""Rows of `hvdcompose status`."""

from __future__ import annotations

from clusters import cluster_of

from hvdcompose.deploy.reconcile import Action, Plan, Step
from hvdcompose.deploy.survey import Survey, Traces
from hvdcompose.errors import HostError
from hvdcompose.hosts.claim import Claim
from hvdcompose.hosts.fanout import Outcome
from hvdcompose.hosts.observed import Container, Observed
from hvdcompose.report.status import Row, Stray, row, strays
from hvdcompose.stack.plan import plan_hosts

ALPHA, BETA = plan_hosts(cluster_of())
LAUNCHER = Container("id", "demo-launcher-1", "running", "Up 5 seconds", "trainer:1", "launcher", run="r1")
WORKER = Container("id", "demo-worker-1", "running", "Up 2 minutes (healthy)", "trainer:1", "worker")
PLAN = Plan(
    (
        Step("beta", Action.SEND_CODE, "this version is not there"),
        Step("beta", Action.RECREATE, "the code changed"),
        Step("alpha", Action.LAUNCH, "not run yet as it is now: x"),
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


PLANS = {"alpha": ALPHA, "beta": BETA}
STANDS = (Observed((LAUNCHER,)), Observed((WORKER,)))
OLD_HELPER = Container("id", "quirky", "created", "Created", "im", "fill", age=120.0)
NEW_HELPER = Container("id", "quirky", "created", "Created", "im", "fill", age=2.0)


def lying(alpha: Observed = STANDS[0], beta: Observed = STANDS[1], **more) -> list[Stray]:
    """Return the strays where the hosts answered so."""
    return strays(PLANS, Survey({"alpha": Outcome(alpha), "beta": Outcome(beta)}, Plan(), **more))


def test_where_all_is_well_nothing_lies_about():
    assert lying(traces={"alpha": Traces(), "beta": Traces()}) == []
    assert lying(beta=Observed((WORKER, NEW_HELPER)), traces={"beta": Traces(half_full=("demo-code-1",))}) == []


def test_ranks_without_a_launcher():
    (found,) = lying(traces={"beta": Traces(ranks=("python a.py", "python a.py"))})
    assert (found.host, found.what) == ("beta", "2 ranks without a launcher: python a.py")
    assert "docker --context beta restart demo-worker-1" in found.remedy


def test_what_interrupted_clients_left():
    found = lying(
        alpha=Observed((LAUNCHER, OLD_HELPER)),
        beta=Observed((WORKER, LAUNCHER)),
        traces={"beta": Traces(half_full=("demo-code-1",))},
    )
    assert [(stray.host, stray.what) for stray in found] == [
        ("alpha", "container quirky helped a client that was interrupted"),
        ("beta", "container demo-launcher-1 has no role in cluster.yaml"),
        ("beta", "volume demo-code-1 is half full: its client was interrupted"),
    ]


def test_hosts_that_left_and_a_client_at_work_come_last():
    gone = {"gamma": Outcome(Observed((WORKER,))), "delta": Outcome[Observed](error=HostError("delta", "is off"))}
    claim = Claim("70ce", "ann@laptop", "42", "apply", 1700000000)
    found = lying(gone=gone, claim=claim)
    assert found == [
        Stray("gamma", "it left cluster.yaml", "hvdcompose apply clears it"),
        Stray("delta", "it left cluster.yaml and cannot be cleared: is off",
              "if that machine is gone for good: rm -r compose/delta"),
        Stray("alpha", f"the cluster is being changed: {claim}",
              "wait for its end; if that client is gone for good: hvdcompose apply --take-over"),
    ]  # fmt: skip


def test_a_host_that_does_not_answer_has_no_strays():
    silent = Outcome[Observed](error=HostError("beta", "is off"))
    assert strays(PLANS, Survey({"alpha": Outcome(Observed()), "beta": silent}, None)) == []
