"""`--json`: one envelope on stdout, whatever happens, and text for people on stderr."""

from __future__ import annotations

import json

import pytest
import typer.main
from clusters import TWO
from workdesk import CONTEXTS, Desk

from hvdcompose.cli.main import app
from hvdcompose.console import envelope
from hvdcompose.errors import ConfigError, HostError, HostsFailed, HvdError, Problem, UsageError

KEYS = ["version", "command", "ok", "data", "error"]
ERROR_KEYS = ["message", "hint", "hosts", "problems"]


def told(desk: Desk, *words: str) -> tuple[int, dict]:
    """Run a command with --json; return its exit code and the envelope, after checking what holds for all of them."""
    code, out, _ = desk.run(*words, "--json")
    answer = json.loads(out)
    assert list(answer) == KEYS
    assert (answer["version"], answer["ok"]) == (1, code == 0)
    if answer["error"] is not None:
        assert list(answer["error"]) == ERROR_KEYS
    return code, answer


def test_the_envelope_of_a_command_that_did_its_work():
    assert envelope("plan", {"steps": []}, 0, None) == {
        "version": 1,
        "command": "plan",
        "ok": True,
        "data": {"steps": []},
        "error": None,
    }


def test_the_envelope_of_hosts_that_failed():
    beta = HostError("beta", "its disk is full", hint="docker system df", output="no space left on device")
    error = HostsFailed("1 of 2 hosts failed", [beta], hint="again")
    assert envelope("apply", None, 1, error) == {
        "version": 1,
        "command": "apply",
        "ok": False,
        "data": None,
        "error": {
            "message": "1 of 2 hosts failed",
            "hint": "again",
            "hosts": {
                "beta": {"message": "its disk is full", "hint": "docker system df", "output": "no space left on device"}
            },
            "problems": [],
        },
    }


@pytest.mark.parametrize(
    ("error", "hosts", "problems"),
    [
        (HvdError("no"), {}, []),
        (UsageError("no"), {}, []),
        (HostError("beta", "no"), {"beta": {"message": "no", "hint": None, "output": ""}}, []),
        (
            ConfigError("cluster.yaml", [Problem(3, 7, "hosts.beta", "no")]),
            {},
            [{"line": 3, "column": 7, "path": "hosts.beta", "message": "no"}],
        ),
    ],
    ids=["error", "usage", "one host", "configuration"],
)
def test_the_error_of_an_envelope(error, hosts, problems):
    seen = envelope("plan", None, 1, error)["error"]
    assert (seen["hosts"], seen["problems"]) == (hosts, problems)
    assert seen["message"].endswith("no") and seen["hint"] is None


def test_mistakes_in_the_file_are_told_one_by_one(desk):
    desk.write(TWO.replace("slots: 2", "slots: two"))
    code, answer = told(desk, "plan")
    assert (code, answer["command"], answer["data"]) == (3, "plan", None)
    (problem,) = answer["error"]["problems"]
    assert problem["path"] == "hosts.alpha.slots"
    assert answer["error"]["message"] == "cluster.yaml:{line}:{column}: {path}: {message}".format(**problem)


@pytest.mark.parametrize(
    ("words", "command", "message"),
    [
        (("plan", "--bogus"), "plan", "No such option: --bogus"),
        (("keys", "burn"), "keys burn", "No such command 'burn'"),
        (("pla",), "pla", "No such command 'pla'"),
    ],
    ids=" ".join,
)
def test_a_command_line_that_is_no_command(words, command, message, desk):
    code, answer = told(desk, *words)
    assert (code, answer["command"], answer["data"]) == (2, command, None)
    assert answer["error"]["message"].startswith(message)


def test_what_follows_the_dashes_is_no_option_of_ours(desk):
    desk.write(TWO)
    code, out, err = desk.run("run", "--", "python", "train.py", "--json")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")


# these show what another program prints, or are JSON by themselves
WITHOUT = {"exec", "logs", "lab shell", "schema"}


def commands(group, *above: str) -> dict[str, set[str]]:
    """Return {command: its options} of a group and of the groups in it."""
    found: dict[str, set[str]] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, *above, name)
        else:
            found[" ".join((*above, name))] = {option for param in command.params for option in param.opts}
    return found


def test_every_command_that_tells_something_takes_json():
    found = commands(typer.main.get_command(app))
    assert {name for name, options in found.items() if "--json" not in options} == WITHOUT


def test_render(desk):
    desk.write(TWO)
    root = str(desk.folder / "compose")
    assert told(desk, "render", "--check") == (
        1,
        {
            "version": 1,
            "command": "render",
            "ok": False,
            "data": {"folder": root, "hosts": ["alpha", "beta"], "stale": ["alpha", "beta"], "written": []},
            "error": None,
        },
    )
    assert told(desk, "render")[1]["data"]["written"] == ["alpha", "beta"]
    assert told(desk, "render")[1]["data"] == {"folder": root, "hosts": ["alpha", "beta"], "stale": [], "written": []}


@pytest.mark.parametrize("command", ["plan", "apply", "run", "stop", "keys rotate", "down"])
def test_hosts_that_do_not_answer_are_told_by_name(command, desk):
    desk.write(TWO)
    desk.docker(CONTEXTS)
    code, answer = told(desk, *command.split())
    assert (code, answer["command"]) == (1, command)
    assert set(answer["error"]["hosts"]) == {"alpha", "beta"}
    assert answer["error"]["hosts"]["beta"]["hint"] == "docker --context beta version"


def test_down_tells_which_hosts_are_clear(desk):
    desk.write(TWO)
    desk.docker(CONTEXTS)
    _, answer = told(desk, "down")
    assert answer["data"] == {"hosts": {"alpha": {"cleared": False}, "beta": {"cleared": False}}}


@pytest.mark.parametrize(
    "command", ["lab up", "lab status", "lab down", "lab image", "lab break lab1 frozen", "lab mend"]
)
def test_a_lab_without_an_engine(command, desk):
    desk.docker("echo 'Cannot connect to the Docker daemon at unix:///nowhere.' >&2; exit 1")
    _, answer = told(desk, *command.split())
    assert (answer["command"], answer["ok"], answer["data"]) == (" ".join(command.split()[:2]), False, None)
    assert answer["error"]["message"]
