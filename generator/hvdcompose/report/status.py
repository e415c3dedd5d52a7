"""Rows of `hvdcompose status`, and what lies about on the hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from hvdcompose.deploy.reconcile import Plan, stale_helpers
from hvdcompose.deploy.survey import Survey, Traces
from hvdcompose.hosts.delivery import FILL
from hvdcompose.hosts.fanout import Outcome
from hvdcompose.hosts.observed import Observed
from hvdcompose.stack.plan import HostPlan


@dataclass(frozen=True)
class Row:
    """One host: what it runs and how that stands. `needs` is what apply would do there, in words."""

    host: str
    context: str
    role: str
    state: str
    run: str
    needs: str
    failed: bool = False  # the host did not answer

    def to_json(self) -> dict[str, str | bool]:
        """Return the row as JSON."""
        return asdict(self)


def row(plan: HostPlan, answer: Outcome[Observed], whole: Plan | None, unplanned: str = "") -> Row:
    """Return the row of a host: its container's state, or why the host could not be asked.

    unplanned: what apply would do, in words, where there is no plan.
    """
    seen = answer.value
    if seen is None:
        why = answer.error.message if answer.error else "no answer"
        return Row(plan.host, plan.context, plan.role, why, "", "", failed=True)
    container = seen.service(plan.role)
    steps = whole.of(plan.host) if whole else ()
    needs = "; ".join(f"{step.action}: {step.cause}" for step in steps) if whole else unplanned
    if container is None:
        return Row(plan.host, plan.context, plan.role, "not there", "", needs)
    return Row(plan.host, plan.context, plan.role, container.status or container.state, container.run, needs)


@dataclass(frozen=True)
class Stray:
    """Something on a host that no longer belongs there, or a client that is at work; and what to do about it."""

    host: str
    what: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """Return the stray as JSON."""
        return asdict(self)


def strays(plans: Mapping[str, HostPlan], seen: Survey) -> list[Stray]:
    """Return what lies about, host by host; hosts that left cluster.yaml and the client at work come last."""
    found: list[Stray] = []
    for name, plan in plans.items():
        answer = seen.hosts[name].value
        if answer is not None:
            found += _on_host(plan, answer, seen.traces.get(name, Traces()))
    for name, outcome in seen.gone.items():
        found += _on_gone_host(name, outcome)
    if seen.claim is not None:
        primary = next(plan.host for plan in plans.values() if plan.role == "launcher")
        remedy = "wait for its end; if that client is gone for good: hvdcompose apply --take-over"
        found.append(Stray(primary, f"the cluster is being changed: {seen.claim}", remedy))
    return found


def _on_host(plan: HostPlan, answer: Observed, traces: Traces) -> Iterator[Stray]:
    if traces.ranks:
        count = f"{len(traces.ranks)} rank{'s' * (len(traces.ranks) != 1)}"
        restart = f"docker --context {plan.context} restart {plan.container}"
        command = traces.ranks[0]
        yield Stray(plan.host, f"{count} without a launcher: {command}", f"ends within 15 s by itself; else: {restart}")
    for container in answer.containers:
        if container.service not in (plan.role, FILL):
            what = f"container {container.name} has no role in cluster.yaml"
            yield Stray(plan.host, what, "hvdcompose apply removes it")
    for helper in stale_helpers(answer):
        what = f"container {helper.name} helped a client that was interrupted"
        yield Stray(plan.host, what, "hvdcompose apply removes it")
    if not any(container.service == FILL and container.recent for container in answer.containers):
        for volume in traces.half_full:
            what = f"volume {volume} is half full: its client was interrupted"
            yield Stray(plan.host, what, "hvdcompose apply fills it, or removes it where the code is another by now")


def _on_gone_host(name: str, outcome: Outcome[Observed]) -> Iterator[Stray]:
    if outcome.error is not None:
        what = f"it left cluster.yaml and cannot be cleared: {outcome.error.message}"
        yield Stray(name, what, f"if that machine is gone for good: rm -r compose/{name}")
    else:
        yield Stray(name, "it left cluster.yaml", "hvdcompose apply clears it")
