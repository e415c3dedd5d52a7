"""Desired x observed -> plan. No engine, no mock: the plan is printed and compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdcompose.deploy.reconcile import Desired, ImageNeeds, Launch, foreign, live_run, reconcile
from hvdcompose.hosts.observed import Container, Observed

ALPHA = Desired("alpha", "launcher", "trainer:1", spec="sA", keys="kA", code="c1", image="i1")
BETA = Desired("beta", "worker", "trainer:1", spec="sB", keys="kB", code="c1", image="i1")
GAMMA = Desired("gamma", "worker", "trainer:1", spec="sC", keys="kC", code="c1", image="i1")
ALL = (ALPHA, BETA, GAMMA)
LAUNCH = Launch("d1", "python train.py (3 ranks on 3 hosts)")


def worker(want: Desired, **changes: str) -> Container:
    """Return the worker that is wanted, as it stands when all is well."""
    well = Container(
        id=f"id-{want.host}",
        name="demo-worker-1",
        state="running",
        status="Up 2 minutes (healthy)",
        image=want.image_name,
        service="worker",
        cluster="demo",
        host=want.host,
        spec=want.spec,
        keys=want.keys,
        code=want.code,
        image_digest="i1",
    )
    return replace(well, **changes)


LAUNCHER = Container(
    id="0123456789abcdef",
    name="demo-launcher-1",
    state="exited",
    status="Exited (0) 3 minutes ago",
    image="trainer:1",
    service="launcher",
    cluster="demo",
    host="alpha",
    spec="sA",
    keys="kA",
    code="c1",
    image_digest="i1",
    launch="d1",
    run="20260101-120000-abc",
)
RUNNING = replace(LAUNCHER, state="running", status="Up 5 seconds")
STOOD = {"alpha": (LAUNCHER,), "beta": (worker(BETA),), "gamma": (worker(GAMMA),)}


def plan(desired=ALL, launch=LAUNCH, *, history=frozenset(), images=None, gone=None, **stands):
    """Plan with everything standing as wanted but what `stands` says of a host."""
    observed = {name: Observed(tuple(stands.get(name, STOOD.get(name, ())))) for name in ("alpha", "beta", "gamma")}
    more = {key: stands[key] for key in ("replace", "code_missing") if key in stands}
    return reconcile(desired, observed, launch, history=history, images=images or ImageNeeds(), gone=gone, **more)


def printed(*args, **options) -> list[str]:
    return str(plan(*args, **options)).splitlines()


def test_nothing_to_do():
    done = plan(history=frozenset({"d1"}))
    assert str(done) == "" and done.empty and done.live is None and done.disturbs == ()


def test_a_fresh_cluster():
    assert printed(
        alpha=(),
        beta=(),
        gamma=(),
        images=ImageNeeds(send={"alpha": "it has no such image", "beta": "it has no such image"}),
        code_missing=["alpha", "beta", "gamma"],
    ) == [
        "alpha: send image: it has no such image",
        "beta: send image: it has no such image",
        "alpha: send code: this version is not there",
        "beta: send code: this version is not there",
        "gamma: send code: this version is not there",
        "beta: create: no worker there",
        "gamma: create: no worker there",
        "alpha: launch: not run yet as it is now: python train.py (3 ranks on 3 hosts)",
    ]


def test_one_host_has_no_workers():
    assert printed((ALPHA,), alpha=()) == [
        "alpha: launch: not run yet as it is now: python train.py (3 ranks on 3 hosts)"
    ]


DRIFT = [
    pytest.param(worker(BETA, spec="old"), "cluster.yaml changed for it", id="spec"),
    pytest.param(worker(BETA, spec=""), "cluster.yaml changed for it", id="made by hand"),
    pytest.param(worker(BETA, keys="old"), "the cluster's keys changed", id="keys"),
    pytest.param(worker(BETA, keys=""), "the cluster's keys changed", id="keys never came"),
    pytest.param(worker(BETA, keys=f"{BETA.keys}.0a"), "its secrets changed", id="secrets"),
    pytest.param(worker(BETA, keys="old.0a"), "the cluster's keys changed", id="keys, with secrets"),
    pytest.param(worker(BETA, code="c0"), "the code changed", id="code"),
    pytest.param(worker(BETA, code=""), "the code changed", id="code is new"),
    pytest.param(worker(BETA, image_digest="i0"), "the image changed", id="content of the image"),
    pytest.param(worker(BETA, image="sha256:abcdef"), "the image changed", id="the name means another image now"),
    pytest.param(worker(BETA, image="trainer:0"), "the image changed", id="name of the image"),
    pytest.param(worker(BETA, spec="old", keys="old", code="c0"), "cluster.yaml changed for it", id="first cause"),
    pytest.param(worker(BETA, state="exited", status="Exited (1) 1 s ago"), "its worker ended with exit 1", id="ended"),
    pytest.param(worker(BETA, state="exited", status="Exited (0) 1 s ago"), "its worker ended with exit 0", id="well"),
    pytest.param(worker(BETA, status="Up 1 m (unhealthy)"), "its worker is unhealthy", id="unhealthy"),
    pytest.param(worker(BETA, state="created", status="Created"), "its worker is created", id="never started"),
    pytest.param(worker(BETA, state="paused", status="Up 1 m (Paused)"), "its worker is paused", id="paused"),
    pytest.param(worker(BETA, state="dead", status="Dead"), "its worker is dead", id="dead"),
    pytest.param(
        worker(BETA, state="restarting", status="Restarting (1) 2 s ago"), "its worker is restarting", id="restarting"
    ),
    pytest.param(
        worker(BETA, spec="old", state="exited", status="Exited (1) 1 s ago"),
        "cluster.yaml changed for it",
        id="changed and ended: another one is made anyway",
    ),
]


@pytest.mark.parametrize(("stands", "cause"), DRIFT)
def test_a_worker_is_made_anew_and_says_why(stands, cause):
    assert printed(beta=(stands,), history=frozenset({"d1"})) == [f"beta: recreate: {cause}"]


def test_a_worker_without_a_word_on_its_health_is_left_alone():
    assert printed(beta=(worker(BETA, status="Up 1 minute"),), history=frozenset({"d1"})) == []


def test_a_worker_that_has_just_started_is_checked_and_a_live_run_does_not_mind():
    starting = (worker(BETA, status="Up 1 second (health: starting)"),)
    assert printed(beta=starting, history=frozenset({"d1"})) == ["beta: check: its worker has just started"]
    proved = tuple(replace(container, proved=True) for container in starting)
    assert printed(beta=proved, history=frozenset({"d1"})) == []
    assert plan(beta=starting, alpha=(RUNNING,)).disturbs == ()


def test_an_image_that_is_not_known_yet_is_no_drift():
    unknown = tuple(replace(want, image=None) for want in ALL)
    assert printed(unknown, beta=(worker(BETA, image_digest="i0"),), history=frozenset({"d1"})) == []


def test_without_a_code_folder():
    plain = tuple(replace(want, code="") for want in ALL)
    stands = {"beta": (worker(BETA, code=""),), "gamma": (worker(GAMMA),)}
    assert printed(plain, history=frozenset({"d1"}), **stands) == ["gamma: recreate: the code changed"]


def test_a_change_of_roles_leaves_nothing_of_the_old_ones():
    """gamma launched, alpha worked; now it is the other way round."""
    stands = {"alpha": (worker(ALPHA),), "gamma": (replace(LAUNCHER, host="gamma"),)}
    assert printed(**stands) == [
        "gamma: remove: its launcher is not in cluster.yaml",
        "gamma: create: no worker there",
        "alpha: remove: its worker is not in cluster.yaml",
        "alpha: launch: not run yet as it is now: python train.py (3 ranks on 3 hosts)",
    ]


def test_a_helper_is_tidied_up_once_nobody_can_be_using_it():
    """It is no container of the cluster: one that another command made a moment ago is left alone."""
    fill = Container("id", "quirky_name", "created", "Created", "trainer:1", "fill", age=3.0)
    old = replace(fill, age=120.0)
    reading = replace(old, state="running", status="Up 2 minutes")  # for a client that brings files home
    stands = {"alpha": (LAUNCHER, fill, reading), "beta": (worker(BETA), old)}
    assert printed(history=frozenset({"d1"}), **stands) == [
        "beta: tidy: an interrupted client left a helper container there"
    ]
    live = plan(alpha=(RUNNING,), beta=(worker(BETA), old))
    assert live.live and not live.disturbs and not live.empty


def test_a_container_of_no_service_of_ours_is_removed():
    other = Container("id", "demo-extra-1", "running", "Up 1 minute", "trainer:1", "extra", cluster="demo")
    assert printed(beta=(worker(BETA), other), history=frozenset({"d1"})) == [
        "beta: remove: its extra is not in cluster.yaml"
    ]


def test_a_host_that_left():
    gone = {"delta": Observed((worker(BETA),))}
    assert printed(gone=gone, history=frozenset({"d1"})) == ["delta: remove: it left cluster.yaml"]


def test_steps_come_in_the_order_in_which_they_are_done():
    steps = plan(
        gone={"delta": Observed()},
        images=ImageNeeds(build="not built yet", pull={"beta": "p"}, send={"gamma": "s"}),
        code_missing=["beta"],
        alpha=(),
        beta=(),
        gamma=(worker(GAMMA, spec="old"),),
    ).steps
    assert [str(step) for step in steps] == [
        "delta: remove: it left cluster.yaml",
        "this machine: build image: not built yet",
        "beta: pull image: p",
        "gamma: send image: s",
        "beta: send code: this version is not there",
        "beta: create: no worker there",
        "gamma: recreate: cluster.yaml changed for it",
        "alpha: launch: not run yet as it is now: python train.py (3 ranks on 3 hosts)",
    ]


TITLE = LAUNCH.title
EXIT_69 = replace(LAUNCHER, status="Exited (69) 1 minute ago")
LAUNCHES = [
    pytest.param((), {"d1"}, [], id="ran, and its container is gone"),
    pytest.param((), set(), [f"not run yet as it is now: {TITLE}"], id="never ran, no container"),
    pytest.param((), {"d0"}, [f"not run yet as it is now: {TITLE}"], id="another one ran"),
    pytest.param((LAUNCHER,), None, [], id="ran well: the records are not asked for"),
    pytest.param((LAUNCHER,), {"d1"}, [], id="ran well"),
    pytest.param((RUNNING,), None, [], id="is live"),
    pytest.param((replace(LAUNCHER, status="Exited (1) 1 minute ago"),), {"d1"}, [], id="ran and failed"),
    pytest.param((replace(LAUNCHER, status="Exited (143) 1 minute ago"),), {"d1"}, [], id="was stopped"),
    pytest.param(
        (EXIT_69,),
        set(),
        [f"it was never started, the launcher ended with exit 69: {TITLE}"],
        id="failed before it started",
    ),
    pytest.param((EXIT_69,), {"d0"}, [f"it was never started, the launcher ended with exit 69: {TITLE}"], id="again"),
    pytest.param(
        (replace(LAUNCHER, state="created", status="Created"),),
        set(),
        [f"not run yet as it is now: {TITLE}"],
        id="created",
    ),
    pytest.param(
        (replace(LAUNCHER, launch="d0"),), {"d0"}, [f"not run yet as it is now: {TITLE}"], id="another launch ran last"
    ),
    pytest.param((replace(LAUNCHER, launch="d0"),), {"d0", "d1"}, [], id="back to one that ran before"),
    pytest.param((replace(LAUNCHER, launch=""),), {"d1"}, [], id="an ad-hoc run is no drift"),
    pytest.param(
        (replace(LAUNCHER, launch=""),), set(), [f"not run yet as it is now: {TITLE}"], id="only an ad-hoc run"
    ),
    pytest.param((replace(LAUNCHER, spec="old", keys="old"),), {"d1"}, [], id="an old launcher is no worker to renew"),
]


@pytest.mark.parametrize(("stands", "history", "causes"), LAUNCHES)
def test_a_launch_runs_once(stands, history, causes):
    known = None if history is None else frozenset(history)
    assert printed(alpha=stands, history=known) == [f"alpha: launch: {cause}" for cause in causes]


@pytest.mark.parametrize("stands", [(), (LAUNCHER,), (EXIT_69,)], ids=["no container", "ran", "failed"])
def test_a_launch_that_is_asked_for(stands):
    forced = replace(LAUNCH, forced=True)
    assert printed(launch=forced, alpha=stands, history=frozenset({"d1"})) == [f"alpha: launch: asked for: {TITLE}"]


def test_no_launch_at_all():
    assert printed(launch=None, alpha=()) == []
    assert printed(launch=None, alpha=(), beta=()) == ["beta: create: no worker there"]


def test_a_live_run_and_nothing_to_change():
    done = plan(alpha=(RUNNING,), history=None)
    assert (str(done), done.live, done.disturbs) == ("", "20260101-120000-abc", ())


CHANGED = {"alpha": (RUNNING,), "beta": (worker(BETA, spec="old"),)}


def test_a_live_run_is_not_disturbed():
    done = plan(history=None, **CHANGED)
    assert str(done) == "beta: recreate: cluster.yaml changed for it"
    assert done.live == "20260101-120000-abc"
    assert [str(step) for step in done.disturbs] == ["beta: recreate: cluster.yaml changed for it"]


def test_a_live_run_is_ended_first_when_that_is_asked_for():
    done = plan(history=None, replace=True, **CHANGED)
    assert str(done).splitlines() == [
        "alpha: stop run: run 20260101-120000-abc is live, --replace",
        "beta: recreate: cluster.yaml changed for it",
        f"alpha: launch: again, in the place of the run that is stopped: {TITLE}",
    ]
    assert done.disturbs == ()


def test_a_command_of_its_own_that_is_ended_does_not_come_back():
    stands = {**CHANGED, "alpha": (replace(RUNNING, launch=""),)}
    done = plan(history=frozenset({"d1"}), replace=True, **stands)
    assert [str(step) for step in done.steps if step.action == "launch"] == []


def test_replace_ends_no_run_that_is_not_in_the_way():
    assert str(plan(history=None, replace=True, alpha=(RUNNING,))) == ""


def test_another_launch_is_refused_while_one_is_live():
    changed = Launch("d2", TITLE)
    done = plan(launch=changed, alpha=(RUNNING,), history=frozenset())
    assert [str(step) for step in done.disturbs] == [f"alpha: launch: not run yet as it is now: {TITLE}"]
    done = plan(launch=changed, alpha=(RUNNING,), history=frozenset(), replace=True)
    assert str(done).splitlines() == [
        "alpha: stop run: run 20260101-120000-abc is live, --replace",
        f"alpha: launch: not run yet as it is now: {TITLE}",
    ]


def test_building_an_image_here_disturbs_nobody():
    done = plan(alpha=(RUNNING,), history=None, images=ImageNeeds(build="its folder changed"))
    assert done.disturbs == () and not done.empty


LIVE = [
    (None, None),
    (LAUNCHER, None),
    (RUNNING, "20260101-120000-abc"),
    (replace(RUNNING, run=""), "0123456789ab"),
    (replace(RUNNING, state="paused"), "20260101-120000-abc"),
    (replace(RUNNING, state="created"), None),
]


@pytest.mark.parametrize(("launcher", "run"), LIVE)
def test_live(launcher, run):
    seen = {"beta": Observed((worker(BETA),)), "alpha": Observed((launcher,) if launcher else ())}
    live = live_run(seen)
    assert (live and (live.host, live.run)) == (run and ("alpha", run))


@pytest.mark.parametrize(
    "where", [{"beta": (RUNNING,)}, {"gone": {"delta": Observed((RUNNING,))}}], ids=["host", "gone"]
)
def test_a_live_run_of_another_primary_is_not_disturbed_either(where):
    refused = plan(alpha=(), history=frozenset({"d1"}), **where)
    assert refused.live == "20260101-120000-abc"
    assert [str(step) for step in refused.disturbs] == [str(step) for step in refused.steps] != []
    replaced = plan(alpha=(), history=frozenset({"d1"}), replace=True, **where)
    assert str(replaced.steps[0]).endswith("stop run: run 20260101-120000-abc is live, --replace")
    assert replaced.steps[0].host == ("beta" if "beta" in where else "delta")


def test_containers_that_are_not_ours_are_named():
    other = Container("id", "demo-jupyter-1", "running", "Up 1 minute", "jupyter:1", "jupyter")
    assert foreign({"alpha": Observed((LAUNCHER,)), "beta": Observed((worker(BETA), other))}) == {
        "beta": ["demo-jupyter-1"]
    }


def test_a_plan_is_asked_by_host_and_by_action():
    from hvdcompose.deploy.reconcile import Action

    done = plan(beta=(), gamma=(worker(GAMMA, spec="old"),), alpha=(), code_missing=["beta", "gamma"])
    assert done.hosts(Action.CREATE, Action.RECREATE) == ("beta", "gamma")
    assert done.hosts(Action.SEND_CODE, Action.CREATE) == ("beta", "gamma"), "each once"
    assert done.hosts(Action.STOP_RUN) == ()
    assert [str(step) for step in done.of("beta")] == [
        "beta: send code: this version is not there",
        "beta: create: no worker there",
    ]
