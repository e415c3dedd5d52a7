"""Break hosts of a lab, and mend them: the commands come from `faults`, here they are run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvdcompose.errors import HostError, HostsFailed, HvdError, Refused
from hvdcompose.hosts import fanout
from hvdcompose.lab import broken, faults, images, operations, plan, spec
from hvdcompose.lab.engine import Engine, Report, find_engine, reason
from hvdcompose.lab.faults import Case, Fault, Value, Words
from hvdcompose.lab.plan import Broken, Host, Standing
from hvdcompose.lab.spec import Lab

STEP_SECONDS = 120  # the longest builds an image


@dataclass(frozen=True)
class Done:
    """What `break` or `mend` did to a host, and how long it took."""

    broken: Broken
    seconds: float


def break_host(
    lab: Lab, name: str, fault: Fault, given: Mapping[Value, str], defaults: Mapping[Value, str], report: Report
) -> Done:
    """Break a host that is sound and ready; what is broken is noted first, so that `mend` knows it in any case.

    `given` and `defaults` say what the fault is about. Raises UsageError, Refused where nothing was changed, HostError.
    """
    engine = find_engine()
    with operations.locked(lab, report):
        host = _sound(lab, engine, name).host
        case = _case(lab, name, str(host.address), fault, faults.settle(fault, host, given, defaults))
        _look(lab, engine, name, case)
        create = _stand_in(lab, engine, host, fault, report)
        began = time.monotonic()
        noted = broken.write_broken(lab, name, fault.name, case.values)
        report(name, f"breaking: {noted.text}")
        if fault.name == "rootless":
            lab.folder(name).chmod(0o777)  # its engine has a uid of its own; the folder above keeps others out
        try:
            _run(lab, engine, name, faults.break_steps(case, create))
        except HvdError as problem:
            hint = f"hvdcompose lab mend {name}{lab.option}"
            output = problem.output if isinstance(problem, HostError) else ""
            raise HostError(name, f"half broken: {problem.message}", hint=hint, output=output) from None
    return Done(noted, time.monotonic() - began)


def _sound(lab: Lab, engine: Engine, name: str) -> Standing:
    seen = operations.observe(lab, engine)
    if name in seen.broken:
        raise Refused(
            f"{name} is broken already: {seen.broken[name].text}", hint=f"hvdcompose lab mend {name}{lab.option}"
        )
    standing = seen.hosts.get(name)
    if standing is None:
        raise operations.no_host(lab, name)
    ready = standing.status == "running" and standing.attached
    if not (ready and operations.answers(lab, name, operations.ANSWER_SECONDS, threading.Event())):
        raise Refused(
            f"{name} is not ready, so that what breaks it could not be told", hint=f"hvdcompose lab up{lab.option}"
        )
    return standing


def _case(lab: Lab, name: str, address: str, fault: Fault, values: Mapping[str, str]) -> Case:
    return Case(fault, spec.container(name), address, values, str(lab.broken(name)), spec.stand_in_volume(name))


def _look(lab: Lab, engine: Engine, name: str, case: Case) -> None:
    look = case.fault.look
    if look is not None and not engine.attempt(*case.filled((look.words,))[0]).ok:
        hint = case.fill(look.hint).replace("shell HOST", f"shell {name}{lab.option}")
        raise Refused(f"{name}: {case.fill(look.message)}", hint=hint)


def _stand_in(lab: Lab, engine: Engine, host: Host, fault: Fault, report: Report) -> Words:
    """Return the words that make the stand-in, whose image is made where it is missing; none for other faults."""
    if fault.stand_in is None:
        return ()
    kind = host.kind if fault.stand_in.kind == "same" else fault.stand_in.kind
    image = images.ensure_image(engine, report, kind)
    words = plan.stand_in_words(
        lab, host, image, rootless=kind == "rootless", size=fault.stand_in.disk,
        privileged=operations.may_be_privileged(engine, image), socket_group=os.getgid(),
    )  # fmt: skip
    return tuple(words)


def _run(lab: Lab, engine: Engine, name: str, steps: Sequence[Words]) -> None:
    for words in steps:
        if words == faults.READY:
            operations.wait_ready(lab, engine, name, threading.Event())
            continue
        done = engine.attempt(*words, seconds=STEP_SECONDS)
        if not done.ok:
            raise HostError(name, f"`docker {words[0]}` failed: {reason(done)}", output=done.tail)


def mend(lab: Lab, names: Sequence[str], report: Report) -> list[Done]:
    """Undo what `break_host` did to these hosts, all at once; no names: to all. A sound host is left as it is.

    Raises UsageError for a name that is not of this lab, HostsFailed.
    """
    engine = find_engine()
    with operations.locked(lab, report):
        seen = operations.observe(lab, engine)
        for name in names:
            if name not in seen.hosts and name not in seen.broken:
                raise operations.no_host(lab, name)
            if name not in seen.broken:
                report(name, "is not broken: nothing to do")
        statuses = _statuses(lab, engine)
        chosen = [name for name in names or seen.broken if name in seen.broken]

        def mend_host(name: str) -> Done:
            return _mend_host(lab, engine, seen.broken[name], seen.hosts.get(name), statuses, report)

        outcomes = fanout.on_all(spec.sort_hosts(lab, chosen), mend_host)
        failed = fanout.errors(outcomes)
        if failed:
            hint = f"mend them once more, or remove all: hvdcompose lab down{lab.option}"
            raise HostsFailed(f"still broken: {', '.join(error.host for error in failed)}", failed, hint=hint)
    return list(fanout.values(outcomes).values())


def _mend_host(
    lab: Lab, engine: Engine, what: Broken, standing: Standing | None, statuses: Mapping[str, str], report: Report
) -> Done:
    report(what.host, f"mending: {what.text}")
    began = time.monotonic()
    fault = faults.find(what.fault)
    # without its container there is nothing on the host to be mended, and no command that needs the address
    address = str(standing.host.address) if standing is not None else ""
    case = _case(lab, what.host, address, fault, what.values)
    _run(lab, engine, what.host, faults.mend_steps(case, statuses))
    if fault.name == "rootless":
        lab.folder(what.host).chmod(0o755)
    broken.forget(lab, what.host)
    return Done(what, time.monotonic() - began)


def _statuses(lab: Lab, engine: Engine) -> dict[str, str]:
    """Return the state of every container of the lab, stand-ins and what they stand for included."""
    listed = engine.call(
        "ps", "--all", "--filter", f"label={spec.LABEL}={lab.name}", "--format", "{{.Names}} {{.State}}"
    )
    return dict(line.split(maxsplit=1) for line in listed.splitlines() if line.strip())
