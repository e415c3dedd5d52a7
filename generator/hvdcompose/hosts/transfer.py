"""One stream to many hosts: which host holds the others up, and how far each is, in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass

STALLED_SECONDS = 30.0  # without progress: longer than a disk takes to flush, shorter than patience
ALONE_SECONDS = 60.0  # without progress where nobody else waits
HELD_SECONDS = 5.0
LONG_SECONDS = 30.0
SLOWER = "it is slower than the others"


@dataclass(frozen=True)
class Stand:
    """How far a host is: bytes it took, seconds that bytes have waited for it, seconds that it made others wait."""

    sent: int
    idle: float = 0.0
    held: float = 0.0


def given_up(stand: Stand, *, shared: bool, size: int, seconds: float) -> str | None:
    """Return why a stream goes on without a host, or None while it stays.

    shared: others take from the same stream; size: bytes of the whole; seconds: since the stream began to flow.
    A host that is just slow leaves a shared stream when it keeps the others waiting for more than half of the time,
    and would for a while yet: the start anew costs it less than the wait costs them.
    """
    patience = STALLED_SECONDS if shared else ALONE_SECONDS
    if stand.idle > patience:
        return f"nothing moved for {patience:.0f} s"
    left = seconds_left(stand.sent, size, seconds)
    slow = stand.held > HELD_SECONDS and stand.held > seconds / 2 and left is not None and left > LONG_SECONDS
    return SLOWER if shared and slow else None


def seconds_left(sent: int, size: int, seconds: float) -> float | None:
    """Return the seconds that the rest takes at the pace so far; None before anything is known."""
    return (size - sent) * seconds / sent if sent and seconds and size > sent else None


def percent(sent: int, size: int) -> int:
    """Return the share sent, at most 99: `size` is what the image takes on a disk, the stream differs a little."""
    return min(99, 100 * sent // size) if size else 0


def shown(sent: int, size: int, seconds: float) -> str:
    """Return how far a host is: `image 312 of 514 MB, 61 %, 24 MB/s, 8 s left`."""
    if 0 < size <= sent:
        return f"image {told_size(sent)} sent, the host unpacks the rest"
    unit, digits, name = (1e9, 2, "GB") if size >= 1e9 else (1e6, 0, "MB")
    parts = [f"image {sent / unit:.{digits}f} of {size / unit:.{digits}f} {name}, {percent(sent, size)} %"]
    if seconds > 0:
        parts.append(f"{sent / seconds / 1e6:.0f} MB/s")
    left = seconds_left(sent, size, seconds)
    return ", ".join([*parts, f"{duration(left)} left"] if left is not None else parts)


def told_size(size: float) -> str:
    """Return bytes as a person says them: `1.43 GB`, `12.5 MB`, `0.3 kB`."""
    unit, digits, name = (1e9, 2, "GB") if size >= 1e9 else (1e6, 1, "MB") if size >= 1e5 else (1e3, 1, "kB")
    return f"{size / unit:.{digits}f} {name}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them: `8 s`, `2 min 10 s`, `1 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def pulled(layers: dict[str, bool], line: str) -> tuple[str, int] | None:
    """Note a line of `docker pull` in {layer: it is there}; return (how far that is, percent) where it told of one."""
    layer, found, state = line.strip().partition(": ")
    if not found or len(layer) != 12 or not all(letter in "0123456789abcdef" for letter in layer):
        return None
    layers[layer] = layers.get(layer, False) or state.startswith(("Pull complete", "Already exists"))
    done = sum(layers.values())
    return f"image {done} of {len(layers)} layers", 100 * done // len(layers)
