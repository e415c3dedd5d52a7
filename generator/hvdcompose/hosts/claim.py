"""One client at a time changes a cluster: a labelled volume on the primary's engine says who, since when, from where.

dockerd makes a volume of a name once; whoever comes later is given that one, with the labels it was made with.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from hvdcompose.config.model import Cluster
from hvdcompose.errors import HostError, HvdError, Refused
from hvdcompose.hosts import process
from hvdcompose.hosts.engine import ASK_SECONDS, Engine
from hvdcompose.hosts.keys import NOTES, state_folder
from hvdcompose.hosts.observed import OBSERVE_SECONDS

LABEL = "hvdcompose.claim"
TRIES = 5


@dataclass(frozen=True)
class Claim:
    """Who changes a cluster: `who` is user@machine, `since` unix seconds; no two claims have one token."""

    token: str
    who: str
    pid: str
    command: str
    since: float

    def __str__(self) -> str:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"hvdcompose {self.command} by {self.who} (pid {self.pid}), since {began}"

    def labels(self, cluster: str) -> dict[str, str]:
        """Return the labels of the volume that stands for the claim."""
        own = {"token": self.token, "who": self.who, "pid": self.pid, "command": self.command}
        return {LABEL: cluster, **{f"{LABEL}.{name}": value for name, value in own.items()}} | {
            f"{LABEL}.since": f"{self.since:.0f}"
        }


def claim_volume(cluster: str) -> str:
    """Return the name of the volume that stands for the claim."""
    return f"hvdcompose-claim-{cluster}"


def new_claim(command: str) -> Claim:
    """Return a claim of this process, from now on."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        user = f"uid {os.getuid()}"
    return Claim(secrets.token_hex(8), f"{user}@{socket.gethostname()}", str(os.getpid()), command, time.time())


def parse_claim(labels: dict[str, str]) -> Claim:
    """Return the claim that a volume's labels tell. Pure."""
    told = {name: labels.get(f"{LABEL}.{name}", "") for name in ("token", "who", "pid", "command", "since")}
    since = float(told["since"]) if told["since"].isdigit() else 0.0
    return Claim(told["token"], told["who"], told["pid"], told["command"], since)


def standing_claim(engine: Engine, cluster: str, *, when_stopping: bool = False) -> Claim | None:
    """Return the claim that stands on the primary, or None. Raises HostError."""
    found = engine.inspect("volume", claim_volume(cluster), when_stopping=when_stopping)
    return None if found is None else parse_claim(found.get("Labels") or {})


def _place(engine: Engine, cluster: str, claim: Claim) -> Claim:
    """Make the claim; return it, or the one that was there before it. Raises HostError."""
    labels = [word for name, value in claim.labels(cluster).items() for word in ("--label", f"{name}={value}")]
    for _ in range(TRIES):
        words = ("volume", "create", *labels, claim_volume(cluster))
        engine.call(*words, doing="claiming the cluster", deadline=OBSERVE_SECONDS)
        standing = standing_claim(engine, cluster)
        if standing is not None:  # else its holder let go of it between the two calls
            return standing
    raise Refused(f"other clients change cluster {cluster} all the time", hint="once more")


def _remove(engine: Engine, cluster: str, claim: Claim) -> bool:
    """Remove a claim unless another stands by now; tell whether it is gone. Runs after Ctrl-C too, and never raises."""
    try:
        standing = standing_claim(engine, cluster, when_stopping=True)
    except HostError:
        return False
    if standing is None or standing.token != claim.token:
        return True
    words = engine.words("volume", "rm", claim_volume(cluster))
    return process.run(words, deadline=ASK_SECONDS, when_stopping=True).ok


def _noted(cluster: Cluster) -> set[str]:
    """Return the tokens of claims of this client that were never let go of: it was killed."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return set((state_folder(cluster) / NOTES).read_text(encoding="ascii").split())
    return set()


def _note(cluster: Cluster, claim: Claim) -> None:
    """Note a claim before it is made."""
    try:
        with (state_folder(cluster) / NOTES).open("a", encoding="ascii") as file:
            file.write(f"{claim.token}\n")
    except OSError as error:
        raise HvdError(f"cannot write under {state_folder(cluster)}: {error.strerror}") from None


def drop_stale(cluster: Cluster, engine: Engine) -> None:
    """Remove the claim of a killed process of this client; no question where none was killed. `working_on` is held."""
    tokens = _noted(cluster)
    if tokens:
        standing = standing_claim(engine, cluster.name)
        if standing is None or standing.token not in tokens or _remove(engine, cluster.name, standing):
            (state_folder(cluster) / NOTES).unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(cluster: Cluster, engine: Engine, command: str, *, take_over: bool = False) -> Iterator[None]:
    """Hold the claim to a cluster; `engine` is the primary's, and `working_on` is held.

    Raises Refused while another client holds it, unless told to take over; HostError.
    """
    claim, earlier = new_claim(command), _noted(cluster)
    _note(cluster, claim)
    standing = claim
    try:
        standing = _place(engine, cluster.name, claim)
        if standing.token != claim.token and (take_over or standing.token in earlier):
            # one of this client's own is a dead process's: the kernel let go of its lock on this machine
            _remove(engine, cluster.name, standing)
            standing = claim  # from here on it may stand
            standing = _place(engine, cluster.name, claim)
        if standing.token != claim.token:
            raise Refused(
                f"cluster {cluster.name} is being changed from elsewhere: {standing}",
                hint=f"wait for its end; if that client is gone for good: hvdcompose {command} --take-over",
            )
        yield
    except KeyboardInterrupt:
        process.end_children()  # nothing of ours goes on once the claim is given up
        raise
    finally:
        if standing.token != claim.token or _remove(engine, cluster.name, claim):
            (state_folder(cluster) / NOTES).unlink(missing_ok=True)  # none of this client's stands
