"""The only threads: one function on many hosts at once, every result kept."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hvdcompose.errors import HostError, HvdError
from hvdcompose.hosts import process

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
AT_ONCE = 32


@dataclass(frozen=True)
class Outcome(Generic[T_co]):
    """What a host gave: a value, or the error that says why not."""

    value: T_co | None = None
    error: HostError | None = None

    @property
    def ok(self) -> bool:
        """True when the host did it."""
        return self.error is None


def on_all(hosts: Iterable[str], work: Callable[[str], T]) -> dict[str, Outcome[T]]:
    """Call `work(host)` for all hosts at once; return an outcome for each, in the given order.

    An HvdError is an outcome; anything else is a fault of ours and is raised. Ctrl-C ends all children.
    """
    names = list(hosts)
    if not names:
        return {}
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=min(AT_ONCE, len(names)))
    futures = {name: pool.submit(_outcome, work, name) for name in names}
    try:
        concurrent.futures.wait(futures.values())
        return {name: future.result() for name, future in futures.items()}
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        process.end_children()
        raise
    finally:
        pool.shutdown(wait=False)


def _outcome(work: Callable[[str], T], host: str) -> Outcome[T]:
    try:
        return Outcome(value=work(host))
    except HostError as error:
        return Outcome(error=error)
    except HvdError as error:
        return Outcome(error=HostError(host, error.message, hint=error.hint))


def values(outcomes: Mapping[str, Outcome[T]]) -> dict[str, T]:
    """Return the values of the hosts that gave one."""
    return {host: outcome.value for host, outcome in outcomes.items() if outcome.ok and outcome.value is not None}


def errors(outcomes: Mapping[str, Outcome[T]]) -> list[HostError]:
    """Return the errors, in the order of the hosts."""
    return [outcome.error for outcome in outcomes.values() if outcome.error is not None]


def begin(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Start one piece of work beside this one; its `result()` is waited for, and raises what it raised."""
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


def arriving(
    hosts: Iterable[str], stream: Callable[[str], Iterator[T]], *, tick: float
) -> Iterator[tuple[str, T | HostError] | None]:
    """Yield (host, item) of all hosts' streams as they come, an error in the place of the item where one fails.

    None when nothing came for `tick` seconds.
    """
    names = list(hosts)
    arrived: queue.Queue[tuple[str, T | HostError] | None] = queue.Queue()

    def pass_on(name: str) -> None:
        try:
            for item in stream(name):
                arrived.put((name, item))
        except HostError as error:
            arrived.put((name, error))
        except process.Interrupted:
            pass  # after Ctrl-C nobody listens any more
        finally:
            arrived.put(None)

    for name in names:
        threading.Thread(target=pass_on, args=(name,), daemon=True).start()
    left = len(names)
    while left:
        try:
            entry = arrived.get(timeout=tick)
        except queue.Empty:
            yield None
            continue
        if entry is None:
            left -= 1
        else:
            yield entry
