"""`hvdcompose exec` as a person meets it, with hosts that a stand-in for docker plays."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
import standin
from clusters import TWO
from workdesk import Desk


def row(service: str, state: str = "running", status: str = "Up 2 hours") -> str:
    """Return a container as the stand-in lists it."""
    return json.dumps(standin.listed(service, state, status))


@pytest.fixture
def rack(desk: Desk):
    """Hosts alpha (primary) and beta; `rack(alpha=..., beta=...)` says which containers they have."""
    desk.write(TWO)

    def made(**containers: str) -> Desk:
        listed = "".join(f"{host}) echo '{text}' ;;\n" for host, text in containers.items())
        desk.docker(f"""
if [ "$1 $2" = "context ls" ]; then
  echo '{{"Name": "alpha", "DockerEndpoint": "fd://alpha"}}'
  echo '{{"Name": "beta", "DockerEndpoint": "fd://beta"}}'
  exit
fi
host=$2; shift 2
if [ "$1" = ps ]; then
  case $host in
  {listed}
  *) ;;
  esac
  exit
fi
echo "$host: $(echo "$*" | head -n 1)"
[ "$2" != --interactive ] || cat
for last; do :; done
case $last in *[!0-9]*) ;; *) exit $((last + $(echo $host | grep -c beta))) ;; esac
""")
        return desk

    return made


WORKER, LAUNCHER = row("worker"), row("launcher")


def test_a_command_runs_in_the_worker_and_its_exit_code_is_ours(rack):
    code, out, err = rack(beta=WORKER).run("exec", "beta", "--", "sh", "-c", "5")
    assert (code, err) == (6, "")
    assert out.startswith("beta: exec --interactive id-worker python3 -c ")


def test_stdin_is_the_commands(rack):
    desk = rack(beta=WORKER)
    process = desk.start("exec", "beta", "--", "cat", stdin=subprocess.PIPE)
    out, _ = process.communicate("from here\n", timeout=60)
    assert out.endswith("from here\n")


SLOW = """
trap 'echo interrupted; exit 9' INT
trap 'echo ended > gone; exit 8' TERM
echo ready
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 9), (signal.SIGTERM, 130)])
def test_ctrl_c_is_the_commands_and_an_end_of_ours_ends_it(number, code, rack):
    desk = rack(beta=WORKER)
    script = (desk.bin / "docker").read_text().partition("\n")[2]
    desk.docker(script.replace('echo "$host: ', f'{SLOW}\necho "$host: '))
    process = desk.start("exec", "beta", "--", "id", start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert ("interrupted" in out) == (number == signal.SIGINT)
    assert (desk.folder / "gone").exists() == (number == signal.SIGTERM)


def test_the_launcher_is_entered_during_a_run(rack):
    code, out, _ = rack(alpha=LAUNCHER).run("exec", "alpha", "--", "id")
    assert code == 0
    assert "id-launcher" in out


@pytest.mark.parametrize("launcher", ["", row("launcher", "exited", "Exited (0) 2 hours ago")])
def test_there_is_no_launcher_between_runs(launcher, rack):
    assert rack(alpha=launcher).run("exec", "alpha", "--", "id") == (
        1,
        "",
        "error: alpha: its container, the launcher's, is there only during a run, and none is live\n"
        "  -> start one: hvdcompose run -d; a worker is there at all times: hvdcompose exec beta -- COMMAND\n",
    )


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ("", "there is no worker"),
        (row("worker", "restarting", "Restarting (1)"), "its worker does not run: Restarting (1)"),
    ],
)
def test_a_worker_that_is_not_there(worker, told, rack):
    assert rack(beta=worker).run("exec", "beta", "--", "id") == (
        1,
        "",
        f"error: beta: {told}\n  -> hvdcompose apply starts it\n",
    )


@pytest.mark.parametrize("words", [("all",), ("--all",), ("--all", "all")], ids=" ".join)
def test_all_hosts_at_once_with_the_worst_exit_code(words, rack):
    code, out, err = rack(alpha=LAUNCHER, beta=WORKER).run("exec", *words, "--", "3")
    assert (code, err) == (4, "alpha: exit 3\nbeta: exit 4\n")
    assert sorted(line[:16] for line in out.splitlines()) == ["alpha | alpha: e", "beta  | beta: ex"]
    assert "--interactive" not in out


def test_the_primary_is_left_out_of_all_between_runs(rack):
    code, out, err = rack(beta=WORKER).run("exec", "--all", "--", "id")
    assert (code, out.startswith("beta  | beta: exec")) == (0, True)
    assert err.startswith("alpha: left out: its container, the launcher's, is there only during a run")


def test_a_host_without_its_worker_fails_all(rack):
    code, out, err = rack(alpha=LAUNCHER).run("exec", "--all", "--", "id")
    assert (code, out.startswith("alpha | ")) == (1, True)
    assert err.startswith("error: beta: there is no worker\n  -> hvdcompose apply starts it\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("beta",), "error: there is no command to run\n  -> hvdcompose exec HOST -- nvidia-smi\n"),
        (("beta", "--"), "error: there is no command to run\n  -> hvdcompose exec HOST -- nvidia-smi\n"),
        (("gamma", "--", "id"), "error: there is no host gamma in cluster.yaml\n  -> hosts: alpha, beta, or --all\n"),
        (("--", "id"), "error: no host is named\n  -> hosts: alpha, beta, or --all\n"),
        (("--all", "beta", "--", "id"), "error: --all means all hosts; leave out beta\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_run(words, told, rack):
    assert rack().run("exec", *words) == (2, "", told)
