"""The only door to Docker: which words each call runs, with which environment, and how a failure is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdcompose.errors import HostError
from hvdcompose.hosts.engine import Engine

BETA = Engine("beta", "c1", "")


@pytest.fixture
def docker(program, tmp_path: Path):
    """A stand-in for docker that notes its words, its environment and its stdin, then does what it is told."""

    def write(then: str = "exit 0") -> None:
        program(
            "docker",
            f"""
printf '%s\\n' "$@" >> {tmp_path}/words
echo -- >> {tmp_path}/words
env > {tmp_path}/env
{then}
""",
        )

    return write


def words_of(folder: Path) -> list[str]:
    """The words of the only call; `--` ends a call, and no call here has it among its words."""
    lines = (folder / "words").read_text().splitlines()
    assert lines.count("--") == 1
    return lines[:-1]


def environment(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / "env").read_text().splitlines() if "=" in line)


FILES = [Path("/w/compose/beta/compose.yaml"), Path("/w/compose/beta/.command.yaml")]
FRONT = ["--context", "c1", "compose", "--file", str(FILES[0])]


def test_up_runs_compose_for_one_context_file_and_project(docker, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    monkeypatch.setenv("COMPOSE_FILE", "/elsewhere.yaml")
    monkeypatch.setenv("DOCKER_CONFIG", "/mine")
    docker()
    BETA.up(FILES[:1], "demo", recreate=False)
    words = words_of(tmp_path)
    assert words[:8] == [*FRONT, "--project-name", "demo", "up"]
    assert sorted(words[8:]) == sorted(["--detach", "--no-color", "--remove-orphans", "--pull", "never"])
    told = environment(tmp_path)
    assert "DOCKER_HOST" not in told and "COMPOSE_FILE" not in told
    assert told["DOCKER_CONFIG"] == "/mine"


def test_up_anew_and_with_a_second_file(docker, tmp_path):
    docker()
    BETA.up(FILES, "demo", recreate=True)
    words = words_of(tmp_path)
    assert words[:10] == [*FRONT, "--file", str(FILES[1]), "--project-name", "demo", "up"]
    assert sorted(words[10:]) == sorted(
        ["--detach", "--force-recreate", "--no-color", "--remove-orphans", "--pull", "never"]
    )


@pytest.mark.parametrize(("volumes", "more"), [(False, []), (True, ["--volumes"])])
def test_down(volumes, more, docker, tmp_path):
    docker()
    BETA.down(FILES[:1], "demo", volumes=volumes)
    words = words_of(tmp_path)
    assert words[:8] == [*FRONT, "--project-name", "demo", "down"]
    assert sorted(words[8:]) == sorted(["--remove-orphans", *more])


def test_compose_runs_under_a_deadline_that_kills(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    command = BETA.compose(FILES[:1], "demo", deadline=90.0).client_config.client_call
    assert command == ["env", "-u", "DOCKER_HOST", "timeout", "-k", "2", "90", "docker"]


def test_a_compose_that_fails_is_told_with_the_host_a_sentence_and_its_last_words(docker):
    docker(
        "echo 'Container demo-worker-1 Creating'\n"
        "echo 'Error response from daemon: No such image: trainer:1' >&2\n"
        "exit 17\n"
    )
    with pytest.raises(HostError) as caught:
        BETA.up(FILES[:1], "demo", recreate=False)
    error = caught.value
    assert (error.host, error.message) == ("beta", "starting the container: it has no image trainer:1")
    assert error.output == "Error response from daemon: No such image: trainer:1"


def test_what_is_not_known_is_told_as_it_was_written(docker):
    docker("echo first >&2; echo 'odd trouble' >&2; exit 17\n")
    with pytest.raises(HostError) as caught:
        BETA.down(FILES[:1], "demo", volumes=False)
    assert caught.value.message == "removing the containers: odd trouble"
    assert caught.value.output == "first\nodd trouble"


def test_a_compose_that_hangs_is_ended_at_its_deadline(docker):
    docker("exec sleep 60\n")
    with pytest.raises(HostError) as caught:
        BETA.up(FILES[:1], "demo", recreate=False, deadline=1.0)
    assert caught.value.message == "starting the container: no answer within 1 s"
    assert caught.value.hint == "is the host frozen or overloaded?"


def test_a_compose_that_hangs_and_ignores_sigterm_is_killed(docker):
    docker("trap '' TERM; while :; do sleep 0.2; done\n")
    with pytest.raises(HostError) as caught:
        BETA.up(FILES[:1], "demo", recreate=False, deadline=1.0)
    assert caught.value.message == "starting the container: no answer within 1 s"


def test_a_call_names_its_context_and_drops_what_would_beat_it(docker, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    docker("echo answer\n")
    assert BETA.call("ps", "--filter", "label=a b", doing="asking") == "answer\n"
    assert words_of(tmp_path) == ["--context", "c1", "ps", "--filter", "label=a b"]
    assert not {"DOCKER_HOST", "DOCKER_CONTEXT"} & set(environment(tmp_path))


def test_a_call_that_fails(docker):
    docker("echo out; echo 'Cannot connect to the Docker daemon at unix:///x.' >&2; exit 17\n")
    with pytest.raises(HostError) as caught:
        BETA.call("ps", doing="asking")
    error = caught.value
    assert (error.host, error.message) == ("beta", "asking: its Docker engine does not answer: it is not running")
    assert error.hint == "on that host: systemctl start docker"
    assert error.output.splitlines() == ["out", "Cannot connect to the Docker daemon at unix:///x."]


def test_a_call_that_hangs(docker):
    docker("exec sleep 60\n")
    with pytest.raises(HostError) as caught:
        BETA.call("ps", doing="asking", deadline=0.5)
    assert caught.value.message == "asking: no answer within 0 s"
    with pytest.raises(HostError, match="docker ps: no answer"):
        BETA.ask("ps", deadline=0.5)


def test_ask_takes_a_failure_for_an_answer(docker):
    docker("echo no >&2; exit 17\n")
    assert BETA.ask("ps").code == 17


@pytest.mark.parametrize("kind", ["image", "container", "volume"])
def test_inspect_of_what_is_not_there(kind, docker):
    docker("echo 'no such thing' >&2; exit 1\n")
    assert BETA.inspect(kind, "x") is None


def test_inspect(docker, tmp_path):
    docker("""echo '[{"Name": "x"}]'\n""")
    assert Engine("beta", "c1").inspect("volume", "x") == {"Name": "x"}
    assert words_of(tmp_path) == ["--context", "c1", "volume", "inspect", "x"]


NOWHERE = [
    ("failed to connect: dial unix /x: connect: no such file or directory", "its Docker engine does not answer: "),
    ('unable to resolve docker endpoint: context "c1": context not found: open /x', "there is no Docker context c1"),
    ("command [ssh gpu1 docker] exit status 127: bash: docker: command not found", "docker is not on the PATH of"),
]


@pytest.mark.parametrize(("said", "told"), NOWHERE)
def test_inspect_of_a_host_that_is_not_there_is_no_answer(said, told, program):
    """A context or socket that is `not found` must not pass for a missing volume."""
    program("docker", f"echo '{said}' >&2; exit 1\n", answers=False)
    with pytest.raises(HostError) as caught:
        Engine("beta", "c1").inspect("volume", "x")
    assert told in caught.value.message


def test_an_engine_that_refuses_a_question(docker):
    docker("echo 'client version 1.24 is too old' >&2; exit 1\n")
    with pytest.raises(HostError) as caught:
        Engine("beta", "c1").volumes()
    assert caught.value.message == "listing its volumes: client version 1.24 is too old"


@pytest.mark.parametrize("status", ["200 OK", "502 Bad Gateway"])
def test_what_answers_is_no_engine(status, program):
    page = "<html>It works!</html>"
    program(
        "docker",
        f"read line; printf 'HTTP/1.1 {status}\\r\\nContent-Length: {len(page)}\\r\\n\\r\\n{page}'",
        answers=False,
    )
    with pytest.raises(HostError) as caught:
        Engine("beta", "c1").volumes()
    assert caught.value.message == f"listing its volumes: what answers is no Docker engine: {page}"


@pytest.mark.parametrize("told", ["null", '"no"', '{"message": "no"}'])
def test_an_error_in_whatever_json(told, program):
    answer = f"HTTP/1.1 403 x\\r\\nContent-Length: {len(told)}\\r\\n\\r\\n{told}"
    program("docker", f"read line; printf '{answer}'", answers=False)
    with pytest.raises(HostError, match=r"^listing its volumes: (no|None)$"):
        Engine("beta", "c1").volumes()


def test_a_web_server_in_the_place_of_an_engine(program):
    program("docker", "read line; printf 'HTTP/1.1 404 x\\r\\nContent-Length: 0\\r\\n\\r\\n'", answers=False)
    with pytest.raises(HostError, match=r"what answers is no Docker engine: it knows no /volumes$"):
        Engine("beta", "c1").volumes()


def test_files_go_into_a_container_through_stdin(docker, tmp_path):
    docker(f"cat > {tmp_path}/stdin\n")
    BETA.put("demo-worker-1", b"\0tar\xff")
    assert words_of(tmp_path) == ["--context", "c1", "cp", "-", "demo-worker-1:/"]
    assert (tmp_path / "stdin").read_bytes() == b"\0tar\xff"


def test_files_come_out_of_a_container(docker, tmp_path):
    docker(r"printf '\000tar\377'" + "\n")
    assert BETA.get("demo-launcher-1", "/hvd/runs/launched") == b"\0tar\xff"
    assert words_of(tmp_path) == ["--context", "c1", "cp", "demo-launcher-1:/hvd/runs/launched", "-"]


@pytest.mark.parametrize(
    "text",
    [
        "Error response from daemon: Could not find the file /hvd/x in container demo-launcher-1",
        "Error response from daemon: No such container: demo-launcher-1",
    ],
)
def test_files_that_are_not_there(text, docker):
    docker(f"echo '{text}' >&2; exit 1\n")
    assert BETA.get("demo-launcher-1", "/hvd/x") is None


def test_files_of_a_host_that_is_not_there_are_no_answer(docker):
    docker("echo 'dial unix /x: connect: no such file or directory' >&2; exit 1\n")
    with pytest.raises(HostError):
        BETA.get("demo-launcher-1", "/hvd/x")


def test_logs(docker, tmp_path):
    docker("echo '2026-01-01T00:00:00.1Z one'; echo '2026-01-01T00:00:00.2Z two' >&2\n")
    lines = list(BETA.follow_logs("demo-launcher-1", since="2026-01-01T00:00:00Z", tail="5"))
    assert sorted(lines) == ["2026-01-01T00:00:00.1Z one", "2026-01-01T00:00:00.2Z two"]
    assert words_of(tmp_path) == [
        *("--context", "c1", "logs", "--timestamps", "--follow", "--tail", "5"),
        *("--since", "2026-01-01T00:00:00Z", "demo-launcher-1"),
    ]
