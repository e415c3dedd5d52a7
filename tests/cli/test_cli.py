"""The command line as a person meets it: whole output, exit codes, and never a traceback for a mistake of theirs.

Every test runs the real program in a folder of its own, without a Docker engine; `docker` is a stand-in.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from clusters import TWO
from workdesk import CONTEXTS

from hvdcompose import __version__

BROKEN = """\
name: demo
image: trainer:1
hosts:
  alpha: {address: 10.0.0.1, slots: two}
  beta: {addres: 10.0.0.2}
train:
  command: python train.py
  np: 0
"""


COMMANDS = (
    *("init", "render", "plan", "doctor", "apply", "run", "stop", "runs", "report", "fetch"),
    *("status", "exec", "logs", "down", "keys", "lab", "schema"),
)


def test_help_lists_every_command(desk):
    code, out, err = desk.run("--help")
    assert (code, err) == (0, "")
    shown = dict(re.findall(r"^  ([a-z]+) +(\S.*)", out, re.MULTILINE))
    assert sorted(shown) == sorted(COMMANDS)
    assert "Cluster:\n  init " in out and "\n\nHosts:\n  status " in out, "under their headings"
    assert "launch its run if it never ran." in " ".join(out.split()), "told to the end"
    assert desk.run("-h") == (code, out, err)


def test_no_words_at_all_show_the_help(desk):
    code, out, err = desk.run()
    assert code in (0, 2)
    assert "apply" in out + err


LAB = ("lab up", "lab down", "lab status", "lab shell", "lab break", "lab mend")


@pytest.mark.parametrize("command", [*COMMANDS, "keys rotate", *LAB])
def test_every_command_has_a_help(command, desk):
    code, out, err = desk.run(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert f"Usage: hvdcompose {command}" in out


def test_the_schema_is_json_and_needs_nothing_else(desk):
    desk.env["PATH"] = str(desk.bin)
    code, out, err = desk.run("schema")
    assert (code, err) == (0, "")
    assert {"name", "image", "hosts", "train"} == set(json.loads(out)["required"])


def test_version(desk):
    assert desk.run("--version") == (0, f"hvdcompose {__version__}\n", "")


def test_the_help_imports_nothing_heavy(desk):
    program = (
        "import sys\nfrom hvdcompose.cli.main import run\ncode = run(['--help'])\n"
        "heavy = ('rich', 'pydantic', 'jinja2', 'yaml', 'python_on_whales', 'cryptography')\n"
        "print(code, sorted(name for name in heavy if name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=desk.env, capture_output=True, text=True)
    assert done.stderr == "0 []\n"


def test_render_writes_a_file_per_host(desk):
    desk.write(TWO)
    root = desk.folder / "compose"
    assert desk.run("render") == (0, "", f"2 of 2 files written below {root}\n")
    assert sorted(path.relative_to(root).as_posix() for path in root.rglob("*.yaml")) == [
        "alpha/compose.yaml",
        "beta/compose.yaml",
    ]
    assert desk.run("render") == (0, "", "all 2 files were up to date\n")
    assert desk.run("render", "--check") == (0, "", "all 2 files are what cluster.yaml renders\n")


def test_render_needs_no_docker(desk):
    desk.write(TWO)
    desk.docker("echo called > called; exit 1\n")
    assert desk.run("render")[0] == 0
    assert not (desk.folder / "called").exists()


def test_check_names_stale_and_missing_files_and_writes_nothing(desk):
    path = desk.write(TWO)
    root = desk.folder / "compose"
    names = [root / host / "compose.yaml" for host in ("alpha", "beta")]
    told = "".join(f"{name} is not what cluster.yaml renders\n" for name in names)
    assert desk.run("render", "--check") == (1, "", f"{told}  -> hvdcompose render\n")
    assert not root.exists()
    desk.run("render")
    path.write_text(TWO.replace("slots: 2", "slots: 1"))  # the launcher's words, not the worker's
    told = f"{names[0]} is not what cluster.yaml renders\n  -> hvdcompose render\n"
    assert desk.run("render", "--check") == (1, "", told)
    assert desk.run("render") == (0, "", f"1 of 2 files written below {root}\n")


def test_a_file_elsewhere(desk, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "c.yaml").write_text(TWO)
    code, _, err = desk.run("render", "-f", str(other / "c.yaml"))
    assert (code, err) == (0, f"2 of 2 files written below {other / 'compose'}\n")
    desk.env["HVDCOMPOSE_FILE"] = str(other / "c.yaml")
    assert desk.run("render") == (0, "", "all 2 files were up to date\n")


WRONG = """\
error: cluster.yaml:4:37: hosts.alpha.slots: must be a whole number from 1 to 1024, not two
cluster.yaml:5:3: hosts.beta.address: is missing
cluster.yaml:5:10: hosts.beta.addres: unknown key; did you mean "address"?
cluster.yaml:8:7: train.np: must be a whole number from 1 to 1048576, not 0
"""


@pytest.mark.parametrize(
    "command", ["render", "plan", "doctor", "apply", "run", "stop", "status", "logs", "down", "keys rotate"]
)
def test_a_wrong_file_is_told_whole_by_every_command(command, desk):
    desk.write(BROKEN)
    desk.docker(CONTEXTS)
    code, out, err = desk.run(*command.split())
    assert (code, out) == (3, "")
    lines = err.splitlines()
    assert len(lines) == 4 and lines[0].startswith("error: ")
    for line, where in zip(lines, ("4:", "5:", "5:", "8:"), strict=True):
        assert re.match(rf"(error: )?cluster\.yaml:{where}\d+: \S+: \S", line), line
    assert not (desk.folder / "compose").exists()


def test_the_words_for_a_wrong_file(desk):
    desk.write(BROKEN)
    assert desk.run("render") == (3, "", WRONG)


def test_a_missing_file(desk):
    """The hint names no command that does not exist."""
    assert desk.run("render") == (
        3,
        "",
        "error: cluster.yaml: there is no such file\n  -> hvdcompose init writes a first one; -f names another file\n",
    )
    code, out, err = desk.run("render", "-f", "elsewhere.yaml")
    assert (code, out) == (3, "")
    assert err.splitlines()[0] == "error: elsewhere.yaml: there is no such file"


USAGE = [
    ("redner",),
    ("render", "--chekc"),
    ("render", "extra"),
    ("apply", "--bogus"),
    ("run", "--replcae"),
    ("run", "--bogus", "python"),
    ("exec", "alpha", "--bogus"),
    ("keys", "burn"),
    ("lab", "up", "--hosts", "none"),
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_a_command_line_that_is_no_command(words, desk):
    desk.write(TWO)
    code, out, err = desk.run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: hvdcompose ") and "\nError: " in err
    assert not (desk.folder / "compose").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run python train.py", "error: python: a command stands after --\n  -> hvdcompose run -- python train.py\n"),
        (
            "run -d python train.py --lr 1",
            "error: python: a command stands after --\n  -> hvdcompose run -d -- python train.py --lr 1\n",
        ),
        (
            "exec alpha nvidia-smi -L",
            "error: nvidia-smi: a command stands after --\n  -> hvdcompose exec alpha -- nvidia-smi -L\n",
        ),
    ],
    ids=["run", "run -d", "exec"],
)
def test_without_dashes(words, told, desk):
    desk.write(TWO)
    assert desk.run(*words.split()) == (2, "", told)


def test_an_option_without_its_value(desk):
    desk.write(TWO)
    assert desk.run("render", "-f") == (2, "", "Error: Option '-f' requires an argument.\n")


@pytest.mark.parametrize("command", ["render", "apply"])
def test_a_file_of_somebody_else_is_left_alone(command, desk):
    desk.write(TWO)
    desk.docker(CONTEXTS)
    path = desk.folder / "compose" / "beta" / "compose.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("services: {}\n")
    code, out, err = desk.run(command)
    assert out == ""
    if command == "render":
        assert (code, err) == (
            2,
            f"error: {path} belongs to somebody else: it is not overwritten\n"
            "  -> give each cluster.yaml a folder of its own, or move that file away\n",
        )
    assert code != 0 and path.read_text() == "services: {}\n"
    assert not (desk.folder / "compose" / "alpha").exists()


def test_removing_data_asks_first_and_fails_where_nobody_can_be_asked(desk):
    desk.write(TWO.replace("train:\n", "train:\n  volumes: {/data: mnist-data}\n"))
    desk.docker(CONTEXTS)
    code, out, err = desk.run("down", "--volumes")
    assert (code, out, err) == (
        2,
        "",
        "error: Remove cluster demo from 2 hosts, with its keys, run records and the data in mnist-data? "
        "There is no terminal to ask at\n  -> --yes goes on without asking\n",
    )


NO_DOCKER = "error: there is no docker command on this machine\n  -> install the Docker CLI and Compose\n"


@pytest.mark.parametrize("command", ["plan", "doctor", "apply", "run", "stop", "status", "logs", "down", "keys rotate"])
def test_no_docker_on_this_machine(command, desk):
    desk.write(TWO)
    desk.env["PATH"] = str(desk.bin)
    assert desk.run(*command.split()) == (1, "", NO_DOCKER)


@pytest.mark.parametrize("command", ["plan", "apply", "run", "down", "keys rotate"])
def test_every_host_that_does_not_answer_is_told(command, desk):
    desk.write(TWO)
    desk.docker(CONTEXTS)
    code, out, err = desk.run(*command.split())
    assert (code, out) == (1, "")
    for host in ("alpha", "beta"):
        told = f"its Docker engine does not answer at /nowhere/{host}.sock: No such file or directory"
        assert f"error: {host}: {told}\n  -> docker --context {host} version\n" in err


def test_a_host_without_context_is_told_how_to_make_one(desk):
    desk.write(TWO.replace("beta: {", "beta: {context: rack-2, "))
    desk.docker(CONTEXTS)
    code, _, err = desk.run("plan")
    assert code == 1
    assert (
        "error: beta: there is no Docker context rack-2 on this machine\n"
        "  -> docker context create rack-2 --docker host=ssh://USER@HOST\n"
    ) in err


def test_status_shows_every_host_though_none_answers(desk):
    desk.write(TWO)
    desk.docker(CONTEXTS)
    code, out, _ = desk.run("status")
    assert code == 1
    lines = out.splitlines()
    assert lines[0].split() == ["HOST", "CONTEXT", "ROLE", "STATE", "RUN", "APPLY", "WOULD"]
    assert [line.split()[:3] for line in lines[1:]] == [["alpha", "alpha", "launcher"], ["beta", "beta", "worker"]]
    code, out, _ = desk.run("status", "--json")
    told = json.loads(out)
    assert (code, told["version"], told["command"], told["ok"], told["error"]) == (1, 1, "status", False, None)
    assert [(row["host"], row["failed"]) for row in told["data"]["hosts"]] == [("alpha", True), ("beta", True)]


def test_logs_of_a_host_that_is_not_there(desk):
    desk.write(TWO)
    desk.docker(CONTEXTS)
    assert desk.run("logs", "--host", "gamma") == (
        2,
        "",
        "error: there is no host gamma in cluster.yaml\n  -> hosts: alpha, beta\n",
    )
    assert desk.run("logs", "--tail", "few") == (2, "", "error: --tail takes a number or all, not 'few'\n")


def test_code_that_cannot_be_read(desk):
    desk.write(f"{TWO}  code: ./model\n")
    (desk.folder / "model").mkdir()
    (desk.folder / "model" / "mem").symlink_to("/proc/self/mem")
    desk.docker(CONTEXTS)
    code, out, err = desk.run("plan")
    assert (code, out) == (2, "")
    assert err == f"error: train.code: cannot read {desk.folder / 'model' / 'mem'}: Input/output error\n"


def test_a_folder_that_cannot_be_written(desk):
    desk.write(TWO)
    (desk.folder / "compose").write_text("a file where the folder should be")
    code, out, err = desk.run("render")
    assert (code, out) == (2, "")
    assert err.startswith("error: cannot ")


def test_ctrl_c_ends_what_was_started_and_says_so(desk):
    desk.write(TWO)
    pid = desk.folder / "pid"
    desk.docker(f"echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 60\n")
    process = desk.start("plan", start_new_session=True)
    limit = time.monotonic() + 60
    while not pid.exists():
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    told = "\ninterrupted: what was done stays; the same command goes on from there\n"
    assert (process.returncode, out, err) == (130, "", told)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_text_for_people_goes_to_stderr_and_has_no_colour_in_a_pipe(desk):
    desk.env.pop("NO_COLOR")
    desk.write(BROKEN)
    _, out, err = desk.run("render")
    assert out == "" and "\x1b" not in err


def test_markup_in_names_is_printed_as_it_is(desk):
    desk.write(TWO.replace("trainer:1", "'[bold]x[/bold]'"))
    _, _, err = desk.run("render")
    assert "[bold]x[/bold]" in err


def test_the_shipped_cluster_renders_through_the_command(desk):
    """The same bytes as the committed files, whatever folder it is called from."""
    root = Path(__file__).parents[2]
    desk.write((root / "cluster.yaml").read_text())
    (desk.folder / "trainer").mkdir()
    assert desk.run("render")[0] == 0
    for path in (root / "compose").glob("*/compose.yaml"):
        assert (desk.folder / path.relative_to(root)).read_text() == path.read_text()
    assert yaml.safe_load((desk.folder / "compose" / "lab1" / "compose.yaml").read_text())["name"] == "mnist"


def test_a_script_that_the_hosts_would_not_have_is_told_before_they_are_asked(desk):
    desk.write(f"{TWO}  code: ./job\n")
    desk.docker(CONTEXTS)
    (desk.folder / "job").mkdir()
    (desk.folder / "job" / "train.py").touch()
    wrong = (
        "the command runs train.py, and there is no such file where it runs: in /hvd/code, the code is /hvd/code/job"
    )
    for words in (["plan"], ["apply"], ["run", "--", "python", "-u", "train.py"]):
        assert desk.run(*words) == (4, "", f"error: {wrong}\n  -> write job/train.py\n")
