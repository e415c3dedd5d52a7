"""Where the progress of long work goes."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Told of the progress of long work; `cli/` prints it."""

    def host(self, host: str, text: str) -> None:
        """Tell what happens on a host."""

    def progress(self, host: str, text: str, percent: int) -> None:
        """Tell how far something on a host is, as often as one likes; the next event there ends that."""
