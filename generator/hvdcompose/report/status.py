"""Rows of `hvdcompose status`. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hvdcompose.deploy.reconcile import Plan
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
