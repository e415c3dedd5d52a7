"""An image from one engine to many hosts without a registry: one `docker save`, a `docker load` on each."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hvdcompose.errors import HostError
from hvdcompose.hosts import process
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import Outcome, begin, on_all
from hvdcompose.hosts.images import ImageFacts, image_facts
from hvdcompose.hosts.pump import Ending, Pump, Sink, SourceFailed
from hvdcompose.hosts.transfer import percent, shown

DISK_FULL = "no space left on device"


class NotArrived(HostError):
    """The image did not arrive whole; once more, alone, may do."""


@dataclass(frozen=True)
class Sending:
    """An image that is to go from an engine to hosts; `say` tells of a host, `progress` how far it is in percent."""

    source: Engine
    name: str
    image: ImageFacts
    say: Callable[[str, str], None]
    progress: Callable[[str, str, int], None]

    def to(self, engines: Mapping[str, Engine]) -> dict[str, Outcome[None]]:
        """Send it to all at once; return an outcome for each, in the given order.

        A host that holds the others up, or to which it does not come whole, is served once more, alone, afterwards.
        Raises HostError where the source fails: that is told once, not of every host.
        """
        outcomes = self._try(engines, shared=len(engines) > 1)
        again = [host for host, outcome in outcomes.items() if isinstance(outcome.error, NotArrived)]

        def alone(host: str) -> None:
            self.say(host, f"image {self.name} is sent once more, alone")
            error = self._try({host: engines[host]}, shared=False)[host].error
            if error is not None:
                raise error

        return outcomes | on_all(again, alone)

    def _try(self, engines: Mapping[str, Engine], *, shared: bool) -> dict[str, Outcome[None]]:
        arrivals: dict[str, Callable[[], None]] = {}

        def ended(host: str, ending: Ending) -> None:
            arrivals[host] = begin(lambda: self._arrived(engines[host], ending, shared)).result

        self._stream(engines, ended)
        return on_all(engines, lambda host: arrivals[host]())

    def _stream(self, engines: Mapping[str, Engine], ended: Callable[[str, Ending], None]) -> None:
        """Pump the image through the client until every host's load has ended. Raises HostError of the source."""
        save, pipe = self.source.words("save", self.name), subprocess.PIPE
        with contextlib.ExitStack() as children:
            saving = children.enter_context(process.child(save, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL))
            sinks = {
                host: Sink(
                    children.enter_context(
                        process.child(
                            engine.words("load", "--quiet"),
                            stdin=pipe,
                            stdout=pipe,
                            stderr=subprocess.STDOUT,
                            bufsize=0,
                        )
                    )
                )
                for host, engine in engines.items()
            }
            try:
                Pump(saving, sinks, self.image.size, self._show, self._unpacking, ended).run()
            except SourceFailed as failed:
                raise HostError(self.source.host, f"docker save {self.name} failed", output=str(failed)) from None
            except KeyboardInterrupt:
                process.end_children()  # all at once: one after the other takes seconds each over a frozen ssh
                raise

    def _show(self, host: str, sent: int, seconds: float) -> None:
        self.progress(host, shown(sent, self.image.size, seconds), percent(sent, self.image.size))

    def _unpacking(self, host: str) -> None:
        self.progress(host, "image unpacking", 99)

    def _arrived(self, engine: Engine, ending: Ending, shared: bool) -> None:
        """Raise HostError unless the host has the whole image now."""
        doing = f"sending {self.name}"
        if ending.why is not None:
            if shared:
                self.say(engine.host, f"{ending.why}: the others go on without it")
            error = HostError(engine.host, f"{doing}: {ending.why}", hint="is the host frozen or overloaded?")
            raise _worth_another(error) if shared else error
        if not ending.ok:
            error = engine.fail(process.Completed(ending.code, ending.output, ""), doing, 0)
            raise error if DISK_FULL in ending.output else _worth_another(error)
        there = image_facts(engine, self.name)
        if there is None or there.digest != self.image.digest:
            found = f"it has {there.digest}" if there else "it has no such image"
            raise NotArrived(engine.host, f"{doing}: after the load {found}, not {self.image.digest}")
        self.say(engine.host, "image is there")


def _worth_another(error: HostError) -> NotArrived:
    return NotArrived(error.host, error.message, hint=error.hint, output=error.output)
