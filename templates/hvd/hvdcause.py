"""Which rank failed first, and of what: from the ranks' records and last lines. Pure.

Standard library only: it runs inside the user's image, Python 3.8 or later.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Any

SHOWN_LINES = 20
SHOWN_RANKS = 8
# what a rank says when another one is gone: Horovod, Gloo, NCCL, MPI
FOLLOWS = re.compile(
    r"HorovodInternalError|Horovod has been shut down|gloo/transport|gloo::(Io|Timeout)Exception"
    r"|ncclRemoteError|NCCL error: remote process exited|has lost communication with a remote daemon"
    r"|MPI_ERR_(PROC_FAILED|REVOKED)"
)
TRACEBACK = "Traceback (most recent call last):"
RAISED = re.compile(r"[A-Za-z_][\w.]*(: .*)?$")  # the line under a traceback: ValueError: no such sample
KILLED = "killed by SIGKILL, not by hvdcompose: by hand, or by the kernel for want of memory"
SIGNALS = {
    "SIGSEGV": "segmentation fault (SIGSEGV)",
    "SIGBUS": "bus error (SIGBUS), often a full /dev/shm: `shm_size` sets its size",
    "SIGABRT": "aborted (SIGABRT)",
    "SIGILL": "illegal instruction (SIGILL), often a program built for another processor",
    "SIGFPE": "arithmetic error (SIGFPE)",
    "SIGKILL": KILLED,
}
WIDEST_ERROR = 300

Record = Mapping[str, Any]


def signal_name(code: int) -> str:
    """Return the name of the signal that an exit code tells, also in a shell's way (128 + N), or ""."""
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if code < 0 else ""


def told_code(code: int) -> str:
    """Return how a process ended, in words: its exit code, or the signal that killed it."""
    return f"exit {code}" if code >= 0 else f"killed by {signal_name(code)}"


def traceback_in(lines: Sequence[str]) -> list[str]:
    """Return the last lines of a rank from its last traceback on, or all of them."""
    begins = [at for at, line in enumerate(lines) if line.strip() == TRACEBACK]
    found = list(lines[begins[-1] :] if begins else lines)
    # of a long traceback, the end tells most
    return found if len(found) <= SHOWN_LINES else found[-SHOWN_LINES:]


def raised_in(lines: Sequence[str]) -> str:
    """Return the exception at the end of the last traceback, as Python prints it, or ""."""
    begins = [at for at, line in enumerate(lines) if line.strip() == TRACEBACK]
    for line in lines[begins[-1] + 1 :] if begins else ():
        if line[:1] not in ("", " ", "\t") and RAISED.match(line):
            return line if len(line) <= WIDEST_ERROR else f"{line[:WIDEST_ERROR]}..."
    return ""


def how_it_ended(record: Record, lines: Sequence[str]) -> str:
    """Return in words why a rank ended by itself."""
    code = record["code"]
    if record.get("oom"):
        return "killed for want of memory (the kernel's OOM killer, SIGKILL)"
    name = signal_name(code)
    if code < 0:
        return SIGNALS.get(name, f"killed by {name}")
    if name in SIGNALS:  # a shell told it of the program it ran
        return f"{SIGNALS[name]}, exit {code}"
    raised = raised_in(lines) if code == 1 else ""
    return f"{raised} (exit {code})" if raised else told_code(code)


def failed_itself(record: Record) -> bool:
    """Tell whether a rank ended badly and nobody ended it."""
    return bool(record["ended"] == "itself" and record["code"] != 0)


def follows(record: Record, lines: Sequence[str]) -> bool:
    """Tell whether a rank failed because another was gone, by its last words. Nobody's last words precede a SIGKILL."""
    if record.get("oom") or signal_name(record["code"]) == "SIGKILL":
        return False
    return any(FOLLOWS.search(line) for line in lines)


def mute(record: Record, lines: Sequence[str]) -> bool:
    """Tell whether a rank ended with exit 1 and no exception to tell why.

    horovodrun ends the logins of the others when one rank fails, and their last words may be lost on the way.
    """
    return bool(record["code"] == 1 and not raised_in(lines))


def as_cause(
    told: str,
    code: int | None,
    *,
    rank: int | None = None,
    host: str | None = None,
    oom: bool = False,
    lines: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a cause as the record of a run holds it; rank and host are None where it is no rank's, or no host's."""
    return {"rank": rank, "host": host, "code": code, "oom": oom, "told": told, "lines": list(lines)}


def cause_of(
    code: int,
    hosts: Sequence[str],
    ranks: Sequence[Record],
    tails: Mapping[int | None, Sequence[str]],
    *,
    silent: Collection[str] = (),
    skew: Mapping[str, float] | None = None,
) -> dict[str, Any] | None:
    """Return the first cause of a run's failure; None for a run that went well.

    code: horovodrun's; hosts: the host of each rank; ranks: the records; tails: the last lines of each rank, and of
    None those of horovodrun; silent: the hosts that gave no answer at the end; skew: seconds by which a host's clock
    is ahead of the launcher's, where that is known and matters.
    """
    if code == 0:
        return None
    ends = {entry["rank"]: entry["end"] - (skew or {}).get(hosts[entry["rank"]], 0.0) for entry in ranks}
    failed = sorted((entry for entry in ranks if failed_itself(entry)), key=lambda entry: ends[entry["rank"]])
    roots = [entry for entry in failed if not follows(entry, tails.get(entry["rank"], ()))]
    if roots:
        return of_rank(roots[0], hosts, tails)
    missing = [rank for rank in range(len(hosts)) if rank not in ends]
    if missing and (ranks or silent):
        return of_missing(missing, hosts, silent)
    done = [entry["rank"] for entry in ranks if entry["code"] == 0 and entry["ended"] == "itself"]
    if failed and done and min(ends[rank] for rank in done) < ends[failed[0]["rank"]]:
        first = min(done, key=lambda rank: ends[rank])
        told = f"rank {first} on {hosts[first]}: it ended with exit 0 while the others went on"
        return as_cause(told, 0, rank=first, host=hosts[first])
    if failed:
        return of_rank(failed[0], hosts, tails)
    return as_cause(f"horovodrun itself ended with exit {code}", code, lines=traceback_in(tails.get(None, ())))


def of_rank(record: Record, hosts: Sequence[str], tails: Mapping[int | None, Sequence[str]]) -> dict[str, Any]:
    """Return the cause that is a rank's own failure."""
    rank = record["rank"]
    lines, host = tails.get(rank, ()), hosts[rank]
    told = f"rank {rank} on {host}: {how_it_ended(record, lines)}"
    oom, last = bool(record.get("oom")), traceback_in(lines)
    return as_cause(told, record["code"], rank=rank, host=host, oom=oom, lines=last)


def of_missing(missing: Sequence[int], hosts: Sequence[str], silent: Collection[str]) -> dict[str, Any]:
    """Return the cause where ranks left no record: their host is lost, or their container was."""
    lost = [rank for rank in missing if hosts[rank] in silent]
    rank = (lost or missing)[0]
    why = "the host does not answer any more" if lost else "its container ended, or was killed with it"
    told = f"rank {rank} on {hosts[rank]}: no record of its end: {why}"
    return as_cause(told, None, rank=rank, host=hosts[rank])


def how_rank_ended(rank: int, host: str, record: Record | None) -> str:
    """Return a line on how a rank ended."""
    if record is None:
        return f"rank {rank} on {host}: no record of its end"
    how = told_code(record["code"])
    return f"rank {rank} on {host}: {how}" + (f" ({record['ended']})" if record["ended"] != "itself" else "")


def summary(
    cause: Mapping[str, Any] | None,
    hosts: Sequence[str],
    ranks: Sequence[Record],
    tails: Mapping[int | None, Sequence[str]],
) -> list[str]:
    """Return the lines that tell how a run ended, the first cause and its rank's last lines before all others."""
    records = {entry["rank"]: entry for entry in ranks}
    if cause is None and len(records) == len(hosts) and all(entry["code"] == 0 for entry in ranks):
        return [f"all {len(hosts)} ranks ended with exit 0"]
    if cause is None:
        return [how_rank_ended(rank, host, records.get(rank)) for rank, host in enumerate(hosts)]
    told = [f"first failure: {cause['told']}"]
    if cause["lines"]:
        told += ["its last lines:", *(f"  | {line}" for line in cause["lines"])]
    others = [rank for rank in range(len(hosts)) if rank != cause["rank"]]
    own = [rank for rank in others if rank in records and failed_itself(records[rank])]
    own = [rank for rank in own if not any(led(records[rank], tails.get(rank, ())) for led in (follows, mute))]
    told += [f"rank {r} on {hosts[r]}: {how_it_ended(records[r], tails.get(r, ()))}" for r in own[:SHOWN_RANKS]]
    after = [rank for rank in others if rank not in own]
    if after and cause["rank"] is not None:
        told.append(f"{len(after)} other rank{'s' * (len(after) != 1)} ended because of it:")
    told += [how_rank_ended(rank, hosts[rank], records.get(rank)) for rank in after[:SHOWN_RANKS]]
    unseen = len(own[SHOWN_RANKS:]) + len(after[SHOWN_RANKS:])
    return told + ([f"and {unseen} more"] if unseen else [])
