"""Past runs on the command line: with and without the launcher's container, and where there is nothing to tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import standin
from clusters import TWO
from workdesk import Desk

OLD, NEW = "20261130-090000-aaa", "20261201-100838-32c"


def launcher(**labels: str) -> dict[str, Any]:
    """Return the launcher's container in a snapshot."""
    return standin.listed("launcher", "running", "Up 2 minutes", cluster="demo", host="alpha", **labels)


class Past(Desk):
    """A desk whose hosts are one stand-in for docker: its containers are lines in `ps`, its volume is `runs`."""

    @property
    def runs(self) -> Path:
        return self.folder.parent / "runs"

    def stand(self, *containers: dict[str, Any], image: bool = True, volume: bool = True) -> None:
        (self.folder.parent / "ps").write_text("".join(f"{json.dumps(line)}\n" for line in containers))
        here = self.folder.parent
        self.docker(
            f"""
            echo "$*" >> {here}/calls
            [ "$1 $2" = "context ls" ] && exec cat {here}/contexts
            shift 2
            case "$1 $2" in
            "ps --all") cat {here}/ps ;;
            "volume inspect") {"echo [{}]" if volume else "echo 'no such volume' >&2; exit 1"} ;;
            "image inspect") {"echo [{}]" if image else "echo 'No such image' >&2; exit 1"} ;;
            "create "*) echo helper ;;
            "cp "*)
                path=${{2#*:/hvd/runs/}}
                [ -e {self.runs}/$path ] || {{ echo 'Could not find the file' >&2; exit 1; }}
                exec tar -C {self.runs} -c $path ;;
            esac
            """
        )

    def calls(self) -> list[str]:
        return (self.folder.parent / "calls").read_text().splitlines()

    def record(self, run: str, **told: object) -> None:
        (self.runs / "records").mkdir(parents=True, exist_ok=True)
        whole = {"run": run, "np": 2, "hosts": ["alpha", "beta"], "train_command": ["python", "t.py"], **told}
        (self.runs / "records" / f"{run}.json").write_text(json.dumps(whole))

    def log(self, run: str, name: str, *lines: str) -> None:
        (self.runs / run).mkdir(parents=True, exist_ok=True)
        stamped = [f"2026-12-01T10:08:{at:02d}.000000000Z {line}\n" for at, line in enumerate(lines)]
        (self.runs / run / name).write_text("".join(stamped))


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    """Two past runs, an old one that did well and one that failed, and the launcher's container of the last."""
    desk = Past(tmp_path)
    socket = tmp_path / "socket"
    lines = [{"Name": name, "DockerEndpoint": f"unix://{socket}"} for name in ("alpha", "beta")]
    (tmp_path / "contexts").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    desk.write(TWO)
    cause = {"rank": 1, "host": "beta", "code": 3, "told": "rank 1 on beta: exit 3", "lines": ["SystemExit: 3"]}
    desk.record(OLD, begin=1.8e9, end=1.8e9 + 60, code=0, real=59.5, metrics={"accuracy": 0.9})
    desk.record(NEW, begin=1.9e9, end=1.9e9 + 5, code=1, real=4.0, cause=cause)
    desk.stand(launcher())
    with standin.Socket(socket, desk.bin / "docker"):
        yield desk


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()[1:]]


def test_the_newest_is_first(past):
    code, out, err = past.run("runs")
    assert (code, err) == (0, "")
    newest, oldest = rows(out)
    assert (newest[0], oldest[0]) == (NEW, OLD)
    assert " ".join(newest[3:]) == "4.0s 2 on 2 failed: rank 1 on beta: exit 3 python t.py"
    assert oldest[3:] == ["59.5s", "2", "on", "2", "done", "accuracy", "0.9", "python", "t.py"]


def test_without_a_launcher_the_volume_is_read_through_a_helper_that_goes(past):
    past.stand()
    assert len(rows(past.run("runs")[1])) == 2
    created, copied, removed = [line for line in past.calls() if "volume" not in line][-4:][1:]
    assert "--label com.docker.compose.service=fill" in created
    assert "-v demo-runs:/hvd/runs" in created
    assert copied == "--context alpha cp helper:/hvd/runs/records -"
    assert removed == "--context alpha rm --force helper"


def test_json(past):
    code, out, _ = past.run("runs", "--json")
    told = json.loads(out)["data"]
    assert (code, told["live"], [run["run"] for run in told["runs"]]) == (0, None, [NEW, OLD])
    assert [run["state"] for run in told["runs"]] == ["failed", "done"]
    code, out, _ = past.run("runs", "show", OLD[:8], "--json")
    assert json.loads(out)["command"] == "runs show"
    assert json.loads(out)["data"]["run"]["metrics"] == {"accuracy": 0.9}


def test_a_live_run_and_an_interrupted_one(past):
    past.record("20261202-1", begin=1.95e9)
    past.record("20261203-1", begin=1.96e9)
    past.stand(launcher(run="20261203-1"))
    states = [run["state"] for run in json.loads(past.run("runs", "--json")[1])["data"]["runs"]]
    assert states == ["live", "interrupted", "failed", "done"]


def test_a_run_that_is_not_recorded_yet(past):
    past.stand(launcher(run="20261204-1"))
    assert past.run("runs")[2] == "run 20261204-1 is not launched yet: hvdcompose logs -f\n"


def test_no_run_yet(past):
    past.stand(volume=False)
    assert past.run("runs") == (0, "", "there is no run yet: hvdcompose run\n")
    for words in (("runs", "show"), ("report",), ("logs", "--run", "last")):
        assert past.run(*words) == (1, "", "error: there is no run yet\n  -> hvdcompose run\n")


def test_a_primary_without_the_image(past):
    past.stand(image=False)  # and no container
    told = "error: alpha: its runs cannot be read without an image, and it has no trainer:1\n"
    assert past.run("runs") == (1, "", f"{told}  -> hvdcompose apply brings it\n")


def test_a_primary_that_does_not_answer(past):
    (past.folder.parent / "socket").unlink()
    code, out, err = past.run("runs")
    assert (code, out) == (1, "")
    assert err.startswith("error: alpha: ")


def test_a_record_that_cannot_be_read_hides_no_other(past):
    (past.runs / "records" / "20261204-1.json").write_text("{")
    code, out, err = past.run("runs")
    assert (code, len(rows(out))) == (0, 2)
    assert err == "alpha: the record of run 20261204-1 cannot be read\n"


def test_everything_of_one_run(past):
    code, out, err = past.run("runs", "show")
    assert (code, err) == (0, "")
    assert out.splitlines()[:4] == [
        f"run         {NEW}",
        "result      failed: rank 1 on beta: exit 3",
        "cause       rank 1 on beta, its last lines:",
        "            | SystemExit: 3",
    ]
    code, _, err = past.run("runs", "show", "2025")
    assert (code, err) == (2, f"error: there is no run 2025\n  -> there are: {NEW}, {OLD}\n")


def test_a_file_named_before_the_command_is_meant(past, tmp_path):
    (past.folder / "cluster.yaml").rename(tmp_path / "c.yaml")
    assert past.run("runs", "-f", str(tmp_path / "c.yaml"), "show", "last")[1].startswith(f"run         {NEW}")


LOGS = {
    "launcher.log": ["hvdcompose: go", "[0]<stdout>:a", "[1]<stderr>:b", "[1]<stderr>:c"],
    "worker-beta.log": ["Accepted"],
    "prepare-beta.log": ["data is there"],
}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            (),
            ["alpha     | hvdcompose: go", "beta      | data is there", "beta      | Accepted", "alpha r0  | a",
             "beta  r1  | b", "beta  r1  | c"],
        ),
        (("--rank", "1"), ["beta  r1  | b", "beta  r1  | c"]),
        (("--host", "alpha"), ["alpha     | hvdcompose: go", "alpha r0  | a"]),
        (("--tail", "1"), ["beta      | data is there", "beta      | Accepted", "beta  r1  | c"]),
        (("--tail", "0"), []),
    ],
)  # fmt: skip
def test_the_logs_of_a_past_run(past, words, shown):
    for name, lines in LOGS.items():
        past.log(NEW, name, *lines)
    code, out, err = past.run("logs", "--run", "last", *words)
    assert (code, sorted(out.splitlines()), err) == (0, sorted(shown), "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rank", "2"), f"error: there is no rank 2 in run {NEW}\n  -> ranks: 0 to 1\n"),
        (("--host", "gamma"), f"error: there is no host gamma in run {NEW}\n  -> hosts: alpha, beta\n"),
        (("-f",), None),
    ],
)
def test_what_a_past_run_has_not(past, words, told):
    code, out, err = past.run("logs", "--run", "last", *words)
    assert (code, out) == (2, "")
    assert told is None or err == told


def test_a_run_without_logs(past):
    code, _, err = past.run("logs", "--run", "last")
    assert (code, err) == (1, f"error: run {NEW} left no logs\n  -> hvdcompose runs show {NEW}\n")


def test_a_report(past):
    past.log(NEW, "launcher.log", "[0]<stdout>:the last line")
    code, out, err = past.run("report")
    assert (code, out, err) == (0, "", f"run {NEW}: report-{NEW}.html\n")
    text = (past.folder / f"report-{NEW}.html").read_text()
    assert "rank 1 on beta: exit 3" in text
    assert "the last line" in text
    assert past.run("report", "last")[0] == 0


def test_a_report_replaces_its_own_file_only(past):
    page = past.folder / "r.html"
    assert past.run("report", OLD, "-o", "r.html")[0] == 0
    before = page.read_text()
    code, _, err = past.run("report", NEW, "-o", "r.html")
    assert (code, page.read_text()) == (2, before)
    assert f"r.html holds something else than a report of run {NEW}: replace it?" in err
    assert past.run("report", NEW, "-o", "r.html", "--yes")[0] == 0
    assert NEW in page.read_text()
    assert (
        past.run("report", "-o", "nowhere/r.html")[2]
        == "error: cannot write nowhere/r.html: No such file or directory\n"
    )
