"""Bring every host the image and the code that it lacks."""

from __future__ import annotations

from hvdcompose.deploy.look import Seen, must
from hvdcompose.deploy.reconcile import Action
from hvdcompose.deploy.reporter import Reporter
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError, HvdError
from hvdcompose.hosts import images
from hvdcompose.hosts.delivery import FILL, drop_half_filled, fill_code
from hvdcompose.hosts.fanout import on_all


def deliver_image(target: Target, seen: Seen, report: Reporter) -> str:
    """Build, pull and send as planned; return the digest of the image that all hosts now have."""
    plan, image = seen.plan, target.cluster.image
    if plan.hosts(Action.BUILD_IMAGE):
        assert image.build is not None
        report.host("this machine", f"building {image.name}")
        images.build(
            image.name,
            target.base / image.build,
            image.args,
            target.build,
            lambda line: report.host("this machine", line),
        )
    changed = plan.hosts(Action.PULL_IMAGE, Action.SEND_IMAGE)
    if seen.image is not None and not changed:
        return seen.image
    client = images.client_image(image.name)

    def deliver(name: str) -> None:
        engine = target.engines[name]
        if name in plan.hosts(Action.PULL_IMAGE):
            report.host(name, f"pulling {image.name}")
            images.pull(engine, image.name)
        elif client is None:
            raise HostError(name, f"cannot send {image.name}: this machine has it no more")
        else:
            report.host(name, f"image {image.name}, {client.size / 1e9:.2f} GB, is sent")
            images.send(engine, image.name, client.size, lambda text: report.host(name, text))
            report.host(name, "image is there")

    must(on_all(changed, deliver), "delivering the image")
    return _common_digest(target)


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
        helpers = {c.id: c.code for c in seen.observed[name].containers if c.service == FILL}
        drop_half_filled(engine, cluster.name, helpers)
        if fill_code(engine, cluster.name, cluster.image.name, code):
            report.host(name, f"code {code.name} {code.digest} is there")

    needy = dict.fromkeys((*seen.plan.hosts(Action.SEND_CODE), *seen.plan.changing))
    must(on_all(needy, deliver), "sending the code")
