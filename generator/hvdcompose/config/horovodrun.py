"""Which words of `horovod.args` horovodrun may be given beside those that hvdcompose writes."""

from __future__ import annotations

_OWN = (
    *("-np", "--num-proc", "-H", "--hosts", "-hostfile", "--hostfile", "-p", "--ssh-port"),
    *(
        "-i",
        "--ssh-identity-file",
        "--network-interfaces",
        "--network-interface",
        "--gloo",
        "--mpi",
        "--jsrun",
    ),
    *("--disable-cache", "--start-timeout", "--config-file", "--"),
)
_BY_KEY = {
    "--fusion-threshold-mb": "fusion_threshold_mb",
    "--cycle-time-ms": "cycle_time_ms",
    "--timeline-filename": "timeline",
    "--stall-check-shutdown-time-seconds": "stall_shutdown",
}
_ELASTIC = (
    *("--min-np", "--min-num-proc", "--max-np", "--max-num-proc", "--slots-per-host", "--slots"),
    *("--host-discovery-script", "--elastic-timeout", "--reset-limit", "--blacklist-cooldown-range"),
)
_NO_RUN = ("-v", "--version", "-cb", "--check-build", "-h", "--help")
_ALLOWED = (
    "--stall-check",
    "-prefix-timestamp",
)  # though they look like another one, cut short or with a value


def argument_complaint(word: str) -> str | None:
    """Complain about an option that hvdcompose sets itself, also where it is cut short or holds its value."""
    option = word.partition("=")[0]
    if option in _ALLOWED or not option.startswith("-"):
        return None
    if _names_one(option, _OWN):
        return f"hvdcompose sets {option} itself"
    for long, key in _BY_KEY.items():
        if _names_one(option, (long,)):
            return f"write horovod.{key} instead of {option}"
    if _names_one(option, _ELASTIC):
        return f"{option} is for elastic runs, which are not accepted yet"
    return f"with {option} horovodrun would not start a run" if _names_one(option, _NO_RUN) else None


def _names_one(option: str, names: tuple[str, ...]) -> bool:
    """Read an option as argparse does: any may be cut short, one with a single dash may hold its value."""
    if option.startswith("--"):
        return any(name.startswith(option) for name in names)
    short = [name for name in names if not name.startswith("--")]
    return any(name.startswith(option) or option.startswith(name) for name in short)
