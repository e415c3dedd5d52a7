"""Bring every host the image and the code that it lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hvdcompose.deploy.look import Seen, must
from hvdcompose.deploy.reconcile import Action
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError, HvdError
from hvdcompose.hosts import images
from hvdcompose.hosts.delivery import fill_code
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import Outcome, on_all
from hvdcompose.hosts.sending import Sending


def deliver_image(target: Target, seen: Seen, report: Reporter) -> str:
    """Build, pull and send as planned; return the digest of the image that all hosts now have."""
    plan = seen.plan
    for builder in plan.hosts(Action.BUILD_IMAGE):
        _build(target, target.engines.get(builder, images.HERE), report)
    pulling, lacking = plan.hosts(Action.PULL_IMAGE), plan.hosts(Action.SEND_IMAGE)
    if seen.image is not None and not pulling and not lacking:
        return seen.image
    must(_pull(target, pulling, report) | _send(target, lacking, report), "delivering the image")
    return _common_digest(target)


def _build(target: Target, engine: Engine, report: Reporter) -> None:
    image = target.cluster.image
    assert image.build is not None
    report.host(engine.host, f"building {image.name}")
    folder = target.base / image.build
    images.build(engine, image.name, folder, image.args, target.build, lambda line: report.host(engine.host, line))


def _pull(target: Target, hosts: Sequence[str], report: Reporter) -> dict[str, Outcome[None]]:
    image = target.cluster.image.name

    def pull(name: str) -> None:
        report.host(name, f"pulling {image}")
        images.pull(target.engines[name], image, lambda text, percent: report.progress(name, text, percent))
        report.host(name, "image is there")

    return on_all(hosts, pull)


def _send(target: Target, hosts: Sequence[str], report: Reporter) -> dict[str, Outcome[None]]:
    """Send the image to the hosts that lack it: the client's, or the primary's where the client has none."""
    if not hosts:
        return {}
    name = target.cluster.image.name
    source, image = images.HERE, None
    with contextlib.suppress(HostError):  # no engine here
        image = images.client_image(name)
    if image is None:
        source = target.engines[target.primary.host]
        image = images.image_facts(source, name)
    if image is None:
        raise HvdError(f"cannot send {name}: neither this machine nor {source.host} has it", hint="hvdcompose plan")
    for host in hosts:
        report.host(host, f"image {name}, {image.size / 1e9:.2f} GB, is sent from {source.host}")
    engines = {host: target.engines[host] for host in hosts}
    return Sending(source, name, image, report.host, report.progress).to(engines)


def _common_digest(target: Target) -> str:
    """Return the digest of the image on all hosts. Raises HostsFailed, HvdError where they differ."""
    outcomes = on_all(target.engines, lambda name: images.image_facts(target.engines[name], target.cluster.image.name))
    must(outcomes, "asking for the image")
    found = {name: outcome.value.digest if outcome.value else "none" for name, outcome in outcomes.items()}
    if len(set(found.values())) > 1 or "none" in found.values():
        told = "\n".join(f"{name}: {digest}" for name, digest in found.items())
        raise HvdError(
            f"the hosts do not have one and the same {target.cluster.image.name}:\n{told}",
            hint="hvdcompose apply",
        )
    return next(iter(found.values()))


def deliver_code(target: Target, seen: Seen, report: Reporter) -> None:
    """Fill the code's volume on the hosts that lack it, or that get a container. Raises HostsFailed."""
    code = target.code
    if code is None:
        return

    def deliver(name: str) -> None:
        engine, cluster = target.engines[name], target.cluster
        if fill_code(engine, cluster.name, cluster.image.name, code):
            report.host(name, f"code {code.name} {code.digest} is there")

    needy = dict.fromkeys((*seen.plan.hosts(Action.SEND_CODE), *seen.plan.changing))
    must(on_all(needy, deliver), "sending the code")
