"""Try what the containers will need, before anything starts: folders, GPUs, a user's own ssh folder."""

from __future__ import annotations

from collections.abc import Mapping

from hvdcompose.deploy.look import Seen, must
from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError, HostsFailed, Refused
from hvdcompose.hosts.delivery import try_folders
from hvdcompose.hosts.fanout import errors, on_all, values
from hvdcompose.hosts.gpus import try_gpus
from hvdcompose.hosts.ssh_folder import faults, look, strangers


def refuse_what_cannot_start(target: Target, seen: Seen) -> None:
    """Try folders and GPUs, look into the user's ssh folder: before anything starts. Raises HostsFailed, Refused."""
    changing = seen.plan.changing
    folders = {name: [m.source for m in plan.mounts if m.is_path] for name, plan in target.plans.items()}
    cluster = target.cluster
    mounting = [name for name, paths in folders.items() if name in changing and paths]
    must(
        on_all(
            mounting, lambda name: try_folders(target.engines[name], cluster.name, cluster.image.name, folders[name])
        ),
        "trying the folders that are mounted",
    )
    with_gpus = [name for name, plan in target.plans.items() if name in changing and plan.gpus.kind != "none"]
    outcomes = on_all(
        with_gpus,
        lambda name: try_gpus(target.engines[name], target.cluster.image.name, target.plans[name].gpus),
    )
    must(outcomes, "trying the GPUs")
    _refuse_uncounted(target, values(outcomes))
    if not target.cluster.ssh.managed:
        _refuse_ssh_folder(target)


def _refuse_uncounted(target: Target, counted: Mapping[str, int]) -> None:
    """With `gpus: all`, GPUs that are counted here must fit the ranks; 0 says only that the image cannot count them."""
    told = {}
    for name, number in counted.items():
        host = target.host(name)
        if host.gpus.kind != "all":
            continue
        if number > 1 and not host.slots_given:
            told[name] = f"`gpus: all` gives {number} GPUs, and `slots` does not say how many ranks use them"
        elif 0 < number < host.slots:
            told[name] = f"{host.slots} slots but only {number} GPU{'s' * (number > 1)} there"
    if told:
        raise Refused(
            "\n".join(f"hosts.{name}: {text}" for name, text in told.items()),
            hint="; ".join(f"hosts.{name}: slots: {counted[name]}" for name in told),
        )


def _refuse_ssh_folder(target: Target) -> None:
    folder = target.cluster.ssh.volume
    outcomes = on_all(target.engines, lambda name: look(target.engines[name], target.cluster.image.name, folder))
    files, primary = values(outcomes), target.primary.host
    told = [
        HostError(name, fault)
        for name, entries in files.items()
        for fault in faults(folder, entries, launches=name == primary)
    ]
    told += [
        HostError(name, f"{folder}/authorized_keys has none of the keys that {primary} offers")
        for name, entries in files.items()
        if name != primary and strangers(files.get(primary, ()), entries)
    ]
    failed = errors(outcomes)
    if failed:
        raise HostsFailed(f"the ssh folder {folder} will not do; nothing was launched", [*failed, *told])
    if told:
        raise Refused(
            "\n".join(f"{fault.host}: {fault.message}" for fault in told),
            hint="or let hvdcompose keep the keys: name a volume in `ssh.volume` instead of a path",
        )
