"""Lines of several hosts that come as they come, put in the order of their timestamps. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
HOLD = 0.4  # seconds a line waits for an older one of another host


class Reorder(Generic[T]):
    """Holds what arrives for `HOLD` seconds. Times of arrival are seconds of one clock that never goes back."""

    def __init__(self) -> None:
        self._heap: list[tuple[str, int, T]] = []
        self._arrived: deque[tuple[float, str, int]] = deque()
        self._number = 0
        self._out: set[int] = set()

    def push(self, now: float, stamp: str, item: T) -> list[T]:
        """Take an item with the timestamp by which it is ordered; return what is due."""
        heapq.heappush(self._heap, (stamp, self._number, item))
        self._arrived.append((now, stamp, self._number))
        self._number += 1
        return self.due(now)

    def due(self, now: float) -> list[T]:
        """Return, in order, every item that has waited long enough, with all that is older than one of those."""
        given: list[T] = []
        while self._arrived and self._arrived[0][0] <= now - HOLD:
            _, stamp, number = self._arrived.popleft()
            if number in self._out:
                self._out.discard(number)
                continue
            while self._heap and self._heap[0][:2] <= (stamp, number):
                _, other, item = heapq.heappop(self._heap)
                given.append(item)
                if other != number:
                    self._out.add(other)
        return given

    def end(self) -> list[T]:
        """Return all that is left."""
        return self.due(float("inf"))
