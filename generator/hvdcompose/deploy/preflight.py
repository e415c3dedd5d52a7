"""Before anything starts: `doctor` looks at the hosts, at all of it only where something changed since last time."""

from __future__ import annotations

from hvdcompose.deploy.examine import digest, examine, glance
from hvdcompose.deploy.look import Seen, refuse_errors
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.doctor.facts import Facts
from hvdcompose.errors import HostsFailed
from hvdcompose.hosts.green import last_green, remember_green


def refuse_what_cannot_start(target: Target, seen: Seen, image: str, report: Reporter) -> None:
    """Look at all hosts and between them, or only into a container where one is made, if the rest is known to be well.

    Raises HostsFailed where a host stops to answer, Refused for what would stop the run.
    """
    if not seen.plan.changing:
        return
    looked_at = digest(target, seen.engines, image)
    if last_green(target.cluster) == looked_at:
        refuse_errors(_answered(glance(target, _worth_a_glance(target, seen), seen.engines)))
        return
    remember_green(target.cluster, "")
    found = refuse_errors(_answered(examine(target, seen.engines)))
    for note in found:
        report.host(note.host, f"note: {note.message}")
    remember_green(target.cluster, looked_at)


def _worth_a_glance(target: Target, seen: Seen) -> list[str]:
    """Return the hosts where a container is made of what may have gone since: folders, GPUs, a user's own keys."""
    return [
        name
        for name, plan in target.plans.items()
        if not plan.ssh_managed
        or (name in seen.plan.changing and (plan.gpus.kind != "none" or any(mount.is_path for mount in plan.mounts)))
    ]


def _answered(facts: Facts) -> Facts:
    lost = [host.error for host in facts.hosts.values() if host.error is not None]
    if lost:
        count = f"{len(lost)} of {len(facts.hosts)} hosts failed"
        raise HostsFailed(f"looking at the hosts: {count}; nothing was launched", lost)
    return facts


def remember(target: Target, facts: Facts, *, green: bool) -> None:
    """Keep that a whole look found nothing, so that the next apply need not look again; or that it found something."""
    images = {host.image.digest for host in facts.hosts.values() if host.image is not None}
    whole = len(images) == 1 and all(host.probe is not None for host in facts.hosts.values())
    remember_green(target.cluster, digest(target, facts.engines, images.pop()) if green and whole else "")
