"""TAB: the shell asks the program itself, which offers commands, hosts and contexts, or silently nothing."""

from __future__ import annotations

import shlex
import subprocess
import time

import pytest
from clusters import TWO
from workdesk import CONTEXTS, MAIN, Desk

BASH = {"_HVDCOMPOSE_COMPLETE": "complete_bash"}


def offered(desk: Desk, line: str) -> list[str]:
    """Return what is offered at the end of a line, as bash's completion function asks for it."""
    desk.env |= {**BASH, "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    code, out, err = desk.run()
    assert (code, err) == (0, "")
    return out.split()


def test_commands(desk):
    assert offered(desk, "hvdcompose rend") == ["render"]
    assert offered(desk, "hvdcompose keys ") == ["rotate"]


@pytest.mark.parametrize("line", ["hvdcompose exec ", "hvdcompose logs --host "])
def test_hosts_of_cluster_yaml(line, desk):
    desk.write(TWO)
    desk.docker("exit 1\n")
    assert offered(desk, line) == ["alpha", "beta"]
    assert offered(desk, f"{line}b") == ["beta"]


def test_hosts_of_another_file(desk):
    desk.write(TWO.replace("beta", "gamma"), "other.yaml")
    assert offered(desk, "hvdcompose exec --file other.yaml g") == ["gamma"]


@pytest.mark.parametrize("line", ["hvdcompose init --context ", "hvdcompose init --primary "])
def test_contexts(line, desk):
    desk.docker(CONTEXTS)
    assert offered(desk, line) == ["default", "alpha", "beta"]
    assert offered(desk, f"{line}al") == ["alpha"]


@pytest.mark.parametrize("text", [None, "hosts: [", "hosts: 3", "- a", "", "\x00"])
def test_a_file_that_cannot_be_read_offers_nothing(text, desk):
    if text is not None:
        desk.write(text)
    assert offered(desk, "hvdcompose exec ") == []


def test_no_docker_offers_nothing(desk):
    desk.env["PATH"] = str(desk.bin)
    assert offered(desk, "hvdcompose init --context ") == []


def test_a_file_of_a_thousand_hosts_is_quick(desk):
    hosts = "".join(f"  h{n}: {{address: 10.0.{n // 250}.{n % 250}}}\n" for n in range(1000))
    desk.write(TWO.replace("  alpha: {address: 10.0.0.1, slots: 2}\n  beta: {address: 10.0.0.2}\n", hosts))
    begin = time.monotonic()
    assert len(offered(desk, "hvdcompose exec ")) == 1000
    assert time.monotonic() - begin < 10, "most of it is this machine's load; alone it takes 0.3 s"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_can_be_shown(shell, desk):
    desk.env["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # the shell is then named, not looked for
    code, out, _ = desk.run("--show-completion", shell)
    assert code == 0
    assert f"_HVDCOMPOSE_COMPLETE=complete_{shell}" in out


def test_the_shell_that_it_is_typed_in_is_found(desk):
    typed = f"{shlex.join([*MAIN, '--show-completion'])}; exit $?"
    done = subprocess.run(["bash", "-c", typed], env=desk.env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_HVDCOMPOSE_COMPLETE=complete_bash" in done.stdout
