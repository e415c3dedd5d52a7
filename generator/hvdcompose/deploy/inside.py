"""Run a command of a person's in the containers of a cluster, in the environment that a rank has there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hvdcompose.deploy.target import Target
from hvdcompose.errors import HostError
from hvdcompose.hosts import process
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.fanout import Outcome, on_all
from hvdcompose.hosts.observed import Container, observe

DAY_SECONDS = 86_400.0  # the deadline of a command on all hosts: it is a person's own, and may take its time
# runs in the container: what a rank's environment has more than the container's is put together by our script there
AS_A_RANK = """\
import os, sys
sys.path.insert(0, "/hvd")
import hvdlib, hvdproc
try:
    env = hvdproc.rank_environment(hvdlib.settings(), os.environ, {})
    os.execvpe(sys.argv[1], sys.argv[1:], env)
except hvdlib.Fault as fault:
    hvdlib.say(str(fault))
    sys.exit(1)
except OSError as error:
    hvdlib.say("cannot run %r: %s" % (sys.argv[1], error.strerror))
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""


def exec_words(engine: Engine, container: str, command: Sequence[str], *, terminal: bool, stdin: bool) -> list[str]:
    """Return the docker command that runs a command in a container. Pure."""
    options = [*(["--interactive"] if stdin else []), *(["--tty"] if terminal else [])]
    return engine.words("exec", *options, container, "python3", "-c", AS_A_RANK, *command)


def running_container(target: Target, host: str) -> Container | None:
    """Return a host's running container, None for the launcher's between runs. Raises HostError for a worker's."""
    plan = target.plans[host]
    container = observe(target.engines[host], target.cluster.name).service(plan.role)
    if container is not None and container.state == "running":
        return container
    if plan.role == "launcher":
        return None
    state = "there is no worker" if container is None else f"its worker does not run: {container.status}"
    raise HostError(host, state, hint="hvdcompose apply starts it")


def no_launcher(target: Target, host: str) -> HostError:
    """Return the error for the primary while no run is live."""
    workers = [name for name, plan in target.plans.items() if plan.role == "worker"]
    other = f"; a worker is there at all times: hvdcompose exec {workers[0]} -- COMMAND" if workers else ""
    return HostError(
        host,
        "its container, the launcher's, is there only during a run, and none is live",
        hint=f"start one: hvdcompose run -d{other}",
    )


def exec_on(target: Target, host: str, command: Sequence[str], *, terminal: bool) -> int:
    """Run a command on one host with this process's own stdin, stdout and stderr; return its exit code.

    terminal: give it a terminal, this process's own. Raises HostError.
    """
    container = running_container(target, host)
    if container is None:
        raise no_launcher(target, host)
    return process.pass_through(exec_words(target.engines[host], container.id, command, terminal=terminal, stdin=True))


def exec_on_all(
    target: Target, hosts: Iterable[str], command: Sequence[str], say: Callable[[str, str], None]
) -> dict[str, Outcome[int | None]]:
    """Run a command on hosts at once, without stdin, telling (host, line) of what it prints.

    Returns its exit code for each host; None for the primary where no run is live.
    """

    def work(host: str) -> int | None:
        container = running_container(target, host)
        if container is None:
            return None
        words = exec_words(target.engines[host], container.id, command, terminal=False, stdin=False)
        done = process.tell_lines(words, lambda line: say(host, line), deadline=DAY_SECONDS)
        if done.timed_out:
            raise HostError(host, "the command was left after a day")
        return done.code

    return on_all(hosts, work)
