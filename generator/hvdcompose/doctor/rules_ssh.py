"""Rules over ssh: the port is the worker's, the keys are in order, and the launcher's own login works."""

from __future__ import annotations

from collections.abc import Iterator

from hvdcompose.doctor.facts import Facts
from hvdcompose.doctor.rule import At, rule
from hvdcompose.doctor.rules_network import bad
from hvdcompose.hosts.probe import ProbeFacts
from hvdcompose.hosts.ssh_folder import faults, strangers

TITLE = "ssh"
REMEDY_FOLDER = "or name a volume in `ssh.volume` instead of a path: hvdcompose apply fills it with keys of its own"


@rule(
    "port free", needs="probe", remedy="stop that program on {host} (ss -ltnp shows it), or another `port` under `ssh`"
)
def the_port_is_the_workers(facts: Facts) -> Iterator[At]:
    """Nothing but the cluster's own worker listens on the ssh port: two sshd at one address mislead (case S02)."""
    for name, host, probe in facts.probed():
        if probe.ssh_free or host.taken or host.worker_runs or name == facts.cluster.primary_name:
            continue
        who = probe.holder or "it does not say what it is"
        yield At(name, f"another program listens on port {facts.cluster.ssh.port}: {who}", found=who, wanted="free")


def folder_faults(facts: Facts, name: str, probe: ProbeFacts) -> list[str]:
    """Return what is wrong with a host's ssh folder; a volume of ours that is not filled yet is no fault."""
    managed, launches = facts.cluster.ssh.managed, name == facts.cluster.primary_name
    if not probe.ssh_folder or (managed and not any(entry.private or entry.public for entry in probe.ssh_folder)):
        return []
    folder = "/root/.ssh" if managed else facts.cluster.ssh.volume
    return faults(folder, probe.ssh_folder, launches=launches)


def _folders(facts: Facts) -> Iterator[At]:
    for name, _, probe in facts.probed():
        if len(facts.hosts) > 1:
            for fault in folder_faults(facts, name, probe):
                yield At(name, fault)


@rule("ssh folder", needs="probe", remedy="hvdcompose keys rotate makes the volume anew, on every host")
def our_ssh_volume_is_taken(facts: Facts) -> Iterator[At]:
    """sshd and ssh accept what is in the volume with our keys: owner root, closed to others (cases S03, S04)."""
    if facts.cluster.ssh.managed:
        yield from _folders(facts)


@rule("ssh folder", needs="probe", remedy=REMEDY_FOLDER)
def a_users_ssh_folder_is_taken(facts: Facts) -> Iterator[At]:
    """sshd and ssh accept a path as `ssh.volume`: owner root, modes, a key without a passphrase (S03, S04, S10)."""
    if not facts.cluster.ssh.managed:
        yield from _folders(facts)


@rule("ssh folder", needs="probe", remedy=REMEDY_FOLDER)
def the_primarys_key_is_accepted(facts: Facts) -> Iterator[At]:
    """With a path as `ssh.volume`, every worker's authorized_keys has a key that the primary offers (case S04)."""
    primary, folder = facts.hosts.get(facts.cluster.primary_name), facts.cluster.ssh.volume
    offered = primary.probe.ssh_folder if primary and primary.probe else ()
    for name, _, probe in facts.probed():
        others = not facts.cluster.ssh.managed and name != facts.cluster.primary_name
        if others and strangers(offered, probe.ssh_folder):
            message = f"{folder}/authorized_keys has none of the keys that {facts.cluster.primary_name} offers"
            yield At(name, message)


@rule("login", needs="login", remedy="hvdcompose keys rotate; hvdcompose logs --host {host} shows its sshd's reason")
def the_launcher_can_log_in(facts: Facts) -> Iterator[At]:
    """The launcher's own login to every running worker works, with the run's key and the pinned host key.

    It reads who answers: another machine, the machine's own sshd, another host key, a refused key (S02, S04, S08, H05).
    """
    primary = facts.cluster.primary_name
    for name, login in facts.logins.items():
        called = facts.reaches.get((primary, name), ())
        unreached = any(bad(facts, name, reach) for reach in called[:1])
        spoilt = any(folder_faults(facts, host, probe) for host, _, probe in facts.probed() if host in (primary, name))
        if not login.ok and not unreached and not spoilt:
            silent = "timed out" in login.reason  # nothing that keys could change
            remedy = "hvdcompose doctor once its address is right and the ssh port is let through" if silent else None
            told = f"the launcher cannot log in: {login.reason}"
            yield At(name, told, found=login.reason, peers=(primary,), remedy=remedy)


RULES = (
    the_port_is_the_workers,
    our_ssh_volume_is_taken,
    a_users_ssh_folder_is_taken,
    the_primarys_key_is_accepted,
    the_launcher_can_log_in,
)
