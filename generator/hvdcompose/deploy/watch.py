"""Follow a run and read logs: streams of lines, reconnected where the way to the host breaks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from hvdcompose.errors import HostError
from hvdcompose.hosts.delivery import result_of
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import arriving

NEVER_STARTED = 69  # the launcher's exit code when it did not get as far as horovodrun
RECONNECT_SECONDS = 2.0
GIVE_UP_SECONDS = 60.0
TICK_SECONDS = 0.1  # how often a view looks whether a line has been held long enough
Stamped = tuple[str, str]  # a line of a log: its RFC 3339 timestamp, its text
Entry = tuple[str, Stamped | HostError]  # with the host it was read on; or why there is nothing to read


@dataclass(frozen=True)
class Ended:
    """How a launcher's container ended; `result` is what it recorded, None when it was killed."""

    code: int
    oom_killed: bool
    result: dict[str, object] | None


def split_stamp(line: str) -> Stamped:
    """Return (RFC 3339 timestamp, text) of a line of `docker logs --timestamps`; ("", line) for a line without one."""
    stamp, blank, text = line.partition(" ")
    return (stamp, text) if blank and stamp[:4].isdigit() and "T" in stamp else ("", line)


def follow(engine: Engine, container: str) -> Iterator[Entry | None]:
    """Yield (host, (timestamp, line)) of a container until it ends, None while nothing comes.

    An error takes the place of the line when the host cannot be reached for 60 s.
    """
    return arriving([engine.host], lambda _: follow_stamped(engine, container), tick=TICK_SECONDS)


def follow_stamped(engine: Engine, container: str, *, after: str = "", tail: str = "all") -> Iterator[tuple[str, str]]:
    """Yield (timestamp, line) of a container until it ends; when the stream breaks, go on after the last line seen.

    after: the timestamp of the last line that is known already; `tail` counts where there is none.
    Raises HostError when the host cannot be reached for 60 s.
    """
    last, lost_at = after, 0.0
    while True:
        since = last
        for line in engine.follow_logs(container, since=since or None, tail="all" if since else tail):
            stamp, text = split_stamp(line)
            if not stamp or stamp <= since:
                continue  # docker's own word on why the stream broke; or the line that `--since` names
            last, lost_at = max(stamp, last), 0.0
            yield stamp, text
        try:
            state = engine.inspect("container", container)
        except HostError:
            lost_at = lost_at or time.monotonic()
            if time.monotonic() - lost_at > GIVE_UP_SECONDS:
                raise
            time.sleep(RECONNECT_SECONDS)
            continue
        if state is None or not state["State"]["Running"]:
            return
        time.sleep(RECONNECT_SECONDS / 10)


def container_of(engine: Engine, name: str, run: str) -> str:
    """Return the id of a run's container: its name may be another run's later. Raises HostError."""
    told = engine.inspect("container", name)
    if told is None or (told["Config"].get("Labels") or {}).get("hvdcompose.run", run) not in (run, ""):
        raise HostError(engine.host, f"the launcher of run {run} is gone: removed, or replaced by another run")
    return str(told["Id"])


def ended(engine: Engine, container: str, run: str) -> Ended:
    """Return how the launcher ended. Raises HostError."""
    told = engine.inspect("container", container)
    if told is None:
        raise HostError(engine.host, f"the launcher of run {run} is gone: removed, or replaced by another run")
    state = told["State"]
    return Ended(int(state["ExitCode"]), bool(state.get("OOMKilled")), result_of(engine, container, run))
