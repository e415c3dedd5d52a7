"""A cluster as the client sees it before a host is asked: what is wanted of each host, and the way to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hvdcompose.config.model import Cluster, Host
from hvdcompose.deploy.reconcile import Desired, Launch
from hvdcompose.errors import Refused
from hvdcompose.hosts import composefiles, contexts
from hvdcompose.hosts.code import Code, missing_script, read_code
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import begin
from hvdcompose.hosts.images import build_digest
from hvdcompose.hosts.keys import ClusterKey, keys_digest, keys_tar
from hvdcompose.hosts.secrets import read_secrets
from hvdcompose.stack.launch import hosts_of_run, launch_digest
from hvdcompose.stack.plan import HostPlan, plan_hosts
from hvdcompose.stack.render import render, spec_of


@dataclass(frozen=True)
class Target:
    """A cluster with everything that can be known without asking a host."""

    cluster: Cluster
    base: Path  # folder of cluster.yaml
    plans: Mapping[str, HostPlan]
    texts: Mapping[str, str]
    engines: Mapping[str, Engine]  # of the hosts in cluster.yaml
    gone: Mapping[str, Engine]  # of the hosts that left it, by what is rendered on disk
    adhoc: bool = False  # the command is not cluster.yaml's: a run of it is no launch of the cluster's own

    @cached_property
    def code(self) -> Code | None:
        """The code folder as it is now, read when it is first asked for. Raises UsageError."""
        return read_code(self.base / self.cluster.train.code) if self.cluster.train.code else None

    def refuse_missing_script(self) -> None:
        """Raise Refused where the command runs a script that would not be there."""
        mounted = [mount.target for plan in self.plans.values() for mount in plan.mounts]
        wrong = missing_script(self.code, self.cluster.train.command, mounted) if self.code else None
        if wrong:
            raise Refused(wrong[0], hint=wrong[1])

    @cached_property
    def build(self) -> str:
        """The digest of the build folder, "" without one. Raises UsageError."""
        image = self.cluster.image
        return build_digest(self.base / image.build, image.args) if image.build else ""

    @cached_property
    def secrets(self) -> dict[str, bytes]:
        """The values of the secrets, read when they are first asked for. Raises Refused."""
        return read_secrets(self.cluster.train.secrets, self.base, os.environ)

    @property
    def root(self) -> Path:
        """The folder of the rendered files."""
        return compose_root(self.base)

    @property
    def primary(self) -> HostPlan:
        """The plan of the host that launches."""
        return self.plans[self.cluster.primary_name]

    @property
    def launcher(self) -> str:
        """The name Compose gives the launcher's container, on whichever host it is."""
        return self.primary.container

    @property
    def key_volumes(self) -> tuple[str, ...]:
        """The volumes on each host that hold keys of ours; a user's own ssh folder is none of them."""
        own = f"{self.cluster.name}-host"
        return (own, self.cluster.ssh.volume) if self.cluster.ssh.managed else (own,)

    @property
    def code_digest(self) -> str:
        """The digest of the code folder, "" without one."""
        return self.code.digest if self.code else ""

    def host(self, name: str) -> Host:
        """Return a host of cluster.yaml by its name."""
        return next(host for host in self.cluster.hosts if host.name == name)

    def keys_digest(self, name: str, key: ClusterKey) -> str:
        """Return what identifies what a host's volumes should hold. Raises Refused without a secret."""
        return keys_digest(self.cluster, self.host(name), key, self.secrets)

    def keys_tar(self, name: str, key: ClusterKey) -> bytes:
        """Return the tar that fills a host's volumes. Raises Refused without a secret."""
        return keys_tar(self.cluster, self.host(name), key, self.secrets)

    def desired(self, key: ClusterKey, image: str | None) -> tuple[Desired, ...]:
        """Return what should stand on each host; `image` is the content that is wanted, None when it is not known."""
        return tuple(
            Desired(
                host=plan.host,
                role=plan.role,
                image_name=plan.image,
                spec=spec_of(self.texts[plan.host]),
                keys=self.keys_digest(plan.host, key),
                code=self.code_digest,
                image=image,
            )
            for plan in self.plans.values()
        )

    def launch(self, image: str | None, *, forced: bool = False) -> Launch:
        """Return the launch that cluster.yaml asks for."""
        digest = launch_digest(self.cluster, image=image or "", code=self.code_digest)
        return Launch(digest, launch_title(self.cluster), forced)

    def with_command(self, command: tuple[str, ...]) -> Target:
        """Return the same target with another command, for one run; the files are not rendered anew."""
        train = self.cluster.train.model_copy(update={"command": command})
        return replace(self, cluster=self.cluster.model_copy(update={"train": train}), adhoc=True)


def compose_root(base: Path) -> Path:
    """Return the folder of the rendered files of the cluster.yaml in `base`."""
    return base / "compose"


def launch_title(cluster: Cluster) -> str:
    """Return a launch in a few words: the command, ranks and hosts."""
    command = " ".join(cluster.train.command)
    command = command if len(command) <= 70 else f"{command[:67]}..."
    hosts = len(hosts_of_run(cluster))
    return f"{command} ({cluster.train.np} rank{'s' * (cluster.train.np != 1)} on {hosts} host{'s' * (hosts != 1)})"


def new_target(cluster: Cluster, base: Path) -> Target:
    """Return the target of a cluster.yaml in the folder `base`. Raises UsageError for a folder that cannot be read."""
    listed = begin(contexts.endpoints)
    plans = {plan.host: plan for plan in plan_hosts(cluster)}
    texts = {name: render(plan) for name, plan in plans.items()}
    known = listed.result()
    on_disk = composefiles.rendered(compose_root(base), cluster.name)
    return Target(
        cluster=cluster,
        base=base,
        plans=plans,
        texts=texts,
        engines={name: Engine(name, plan.context, known.get(plan.context)) for name, plan in plans.items()},
        gone={
            found.host: Engine(found.host, found.context, known.get(found.context))
            for found in on_disk
            if found.host not in plans
        },
    )
