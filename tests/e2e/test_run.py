"""One cluster.yaml to a run on four hosts: real engines, Compose, sshd, horovodrun and collectives."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

import pytest
from made import IMAGE, Made, interrupt, times_of

pytestmark = pytest.mark.engine

CLUSTER = """
name: <name>
image: <image>
ssh: {port: <port>}
hosts:
  <h1>}
  <h2>}
  <h3>}
  <h4>}
train:
  command: python code/job.py
  code: ./code
  env: {OMP_NUM_THREADS: 1, GREETING: "it's $HOME and \\"more\\""}
"""
JOB = """
import os, sys, time
import torch
import horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum)
host, greeting = os.uname().nodename, os.environ["GREETING"]
print(f"rank {hvd.rank()} of {hvd.size()} on {host}: {total.tolist()} {greeting}", flush=True)
what = sys.argv[1:]
if what[:1] == ["sleep"]:
    time.sleep(float(what[1]))
if what[:1] == ["exit"] and hvd.rank() == int(what[1]):
    sys.exit(int(what[2]))
"""


@pytest.fixture
def job(cluster: Made) -> Made:
    """The cluster of this file, with its code, not yet applied."""
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text(JOB)
    cluster.write(CLUSTER)
    return cluster


def test_from_nothing_to_a_run_and_then_nothing_to_do(job: Made, recording_docker) -> None:
    hosts = [job.desk.host(n) for n in range(1, 5)]
    planned = job.hvd("plan").stderr
    for host in hosts[1:]:
        assert re.search(rf"^{host} +create +no worker there$", planned, re.M)
    assert re.search(
        rf"^{hosts[0]} +launch +not run yet as it is now: python code/job.py \(4 ranks on 4 hosts\)$", planned, re.M
    )
    assert not (job.folder / "compose").exists()

    ran = job.hvd("apply", "--follow")
    for rank, host in enumerate(hosts):
        line = f'rank {rank} of 4 on {host}: [10.0, 10.0, 10.0] it\'s $HOME and "more"'
        assert re.search(rf"^{host} r{rank}  \| {re.escape(line)}$", ran.stdout, re.M), ran.stdout
    assert "all 4 ranks ended with exit 0" in ran.stdout
    times = times_of(ran.stdout)
    assert set(times) == {"real", "user", "sys"}
    assert times["real"] > 0.5

    job.calm()
    before = job.ids(1, 2, 3, 4)
    env, calls = recording_docker
    again = job.hvd("apply", **env)
    assert "nothing to do: 4 hosts are as cluster.yaml wants them" in again.stderr
    assert "hvdcompose run" in again.stderr
    # hosts are asked through the engine's API; each command that changes something would be seen here
    assert {call.partition(" --")[0] for call in calls()} == {"context ls", "system dial-stdio"}
    assert job.ids(1, 2, 3, 4) == before

    _logs_are_where_a_person_looks(job)
    _the_private_key_is_nowhere_else(job)


def _logs_are_where_a_person_looks(job: Made) -> None:
    """`docker compose logs` on each host, and through its context, shows that host's part."""
    for number, text in ((1, "rank 0 of 4"), (2, f"sshd on port {job.port}")):
        through_context = job.docker(number, "compose", "-p", job.name, "logs")
        typed_there = job.desk.engine(
            "exec", f"hvdcompose-{job.desk.host(number)}", "docker", "compose", "-p", job.name, "logs"
        )
        assert text in through_context
        assert text in typed_there
    merged = job.hvd("logs").stdout
    assert f"{job.desk.host(3)}     | Server listening on 0.0.0.0 port {job.port}." in merged
    assert f"{job.desk.host(4)} r3  | rank 3 of 4" in merged
    only = job.hvd("logs", "--host", job.desk.host(2)).stdout
    assert all(line.startswith(job.desk.host(2)) for line in only.splitlines())


def _the_private_key_is_nowhere_else(job: Made) -> None:
    """The key stands on the client (0600) and on the primary; in no file, label, environment, inspect or log."""
    (key,) = (job.desk.folder / "state" / "hvdcompose" / "clusters").glob(f"{job.name}@*/id_ed25519")
    assert key.stat().st_mode & 0o777 == 0o600
    secret = "".join(key.read_text().splitlines()[1:-1])
    pieces = [secret[at : at + 40] for at in range(80, len(secret) - 40, 40)]
    shown = [path.read_text() for path in (job.folder / "compose").rglob("*") if path.is_file()]
    for number in range(1, 5):
        shown.append(job.docker(number, "inspect", job.container(number)))
        shown.append(job.docker(number, "logs", job.container(number)))
        shown.append(job.docker(number, "volume", "inspect", f"{job.name}-ssh", f"{job.name}-host"))
        if number > 1:
            shown.append(
                job.docker(number, "exec", job.container(number), "sh", "-c", "cat /root/.ssh/* /proc/1/environ")
            )
            listed = job.docker(
                number, "exec", job.container(number), "sh", "-c", "cd /root/.ssh && stat -c '%n %u %a' . *"
            )
            assert listed.split("\n")[:2] == [". 0 700", "authorized_keys 0 600"]
    for text in shown:
        joined = "".join(text.split())
        assert not any(piece in joined for piece in pieces)


def test_each_change_recreates_exactly_what_it_must(job: Made) -> None:
    job.hvd("apply", "--follow")
    workers = job.ids(2, 3, 4)

    job.edit("command: python code/job.py", "command: python code/job.py again")
    said = job.hvd("apply", "--follow").stderr
    assert "create" not in said
    assert job.ids(2, 3, 4) == workers

    job.edit("command: python code/job.py again", "command: python code/job.py")
    back = job.hvd("apply")
    assert "nothing to do" in back.stderr  # that launch ran before

    (job.folder / "code" / "job.py").write_text(JOB.replace("rank {hvd.rank()} of", "edited {hvd.rank()} of"))
    said = job.hvd("apply", "--follow")
    assert said.stderr.count("the code changed") == 3
    assert "edited 3 of 4" in said.stdout
    edited = job.ids(2, 3, 4)
    assert not set(edited.values()) & set(workers.values())
    for number in (1, 2):  # the version before is not kept
        assert job.docker(number, "volume", "ls", "-q", "--filter", f"name={job.name}-code-").count("-code-") == 1

    launcher = job.ids(1)
    said = job.hvd("keys", "rotate")
    assert said.stderr.count("the cluster's keys changed") == 3
    assert "launch" not in said.stderr
    assert not set(job.ids(2, 3, 4).values()) & set(edited.values())
    assert job.ids(1) == launcher
    again = job.hvd("run")
    assert "all 4 ranks ended with exit 0" in again.stdout

    keyed = job.ids(2, 3, 4)
    job.edit(
        f"  {job.desk.host(3)}: {{address: {job.desk.address(3)}}}",
        f"  {job.desk.host(3)}: {{address: {job.desk.address(3)}, env: {{GREETING: mine}}}}",
    )
    said = job.hvd("apply", "--follow")
    assert re.search(rf"^{job.desk.host(3)} +recreate +cluster.yaml changed for it$", said.stderr, re.M)
    assert said.stderr.count("recreate") == 1
    assert (
        f"{job.desk.host(3)} r2  | rank 2 of 4 on {job.desk.host(3)}: [10.0, 10.0, 10.0] mine".replace("rank", "edited")
        in said.stdout
    )
    after = job.ids(2, 3, 4)
    assert (after[2], after[4]) == (keyed[2], keyed[4])
    assert after[3] != keyed[3]


def test_the_real_code_of_the_rank_that_failed(job: Made) -> None:
    done = job.hvd("apply")
    assert "hvdcompose logs -f" in done.stderr
    job.wait_for_log("ended with exit 0")
    failed = job.hvd("run", "--", "python", "code/job.py", "exit", "2", "3", code=1)
    assert f"rank 2 on {job.desk.host(3)}: exit 3" in failed.stdout
    assert "ended with exit 1" in failed.stdout
    assert "nothing to do" in job.hvd("plan").stderr  # an ad-hoc run is no drift

    missing = job.hvd("run", "--", "no-such-program", code=1)
    assert "cannot run 'no-such-program': No such file or directory" in missing.stdout
    assert "exit 127" in missing.stdout


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_live_run_is_left_alone_and_ends_everywhere_when_told(job: Made, controller: str) -> None:
    job.file.write_text(
        job.file.read_text().replace("job.py\n", "job.py sleep 300\n") + f"horovod: {{controller: {controller}}}\n"
    )
    job.hvd("apply")
    job.wait_for_log("rank 3 of 4")
    before = job.ids(1, 2, 3, 4)

    assert "is live" in job.hvd("apply").stderr
    refused = job.hvd("run", "--detach", code=4)
    assert "is live, and this would disturb it" in refused.stderr
    assert "--replace" in refused.stderr
    job.edit("OMP_NUM_THREADS: 1", "OMP_NUM_THREADS: 2")
    assert "cluster.yaml changed for it" in job.hvd("apply", code=4).stderr
    assert job.ids(1, 2, 3, 4) == before

    job.edit("OMP_NUM_THREADS: 2", "OMP_NUM_THREADS: 1")
    stopped = job.hvd("stop")
    assert "is ended" in stopped.stderr
    _no_rank_anywhere(job, 5)
    assert job.ids(2, 3, 4) == {n: before[n] for n in (2, 3, 4)}
    assert "no run is live" in job.hvd("stop").stderr

    job.hvd("run", "--detach")
    job.wait_for_log("rank 3 of 4")
    job.docker(1, "kill", "--signal", "KILL", job.container(1))
    _no_rank_anywhere(job, 15)

    job.hvd("run", "--detach")
    job.wait_for_log("rank 3 of 4")
    third = f"{job.desk.host(3)}: {{address: {job.desk.address(3)}"
    job.edit(f"{third}}}", f"{third}, shm_size: 128m}}")
    replaced = job.hvd("apply", "--replace")
    assert re.search(r" launch +again, in the place of the run that is stopped: python code/job.py", replaced.stderr)
    job.wait_for_log("rank 3 of 4")
    assert job.inspect(1)["State"]["Running"]
    replaced = job.hvd("run", "--replace", "--", "python", "code/job.py")
    assert "stop run" in replaced.stderr
    assert "all 4 ranks ended with exit 0" in replaced.stdout


def _no_rank_anywhere(job: Made, seconds: float) -> None:
    def gone() -> bool:
        return not any(job.processes(n, "code/job.py sleep") for n in range(1, 5))

    job.wait_for(gone, seconds, "a rank is still running")


def test_ctrl_c_ends_the_view_and_not_the_run(job: Made) -> None:
    job.edit("job.py\n", "job.py sleep 300\n")
    view = job.start("apply", "--follow")
    job.wait_for_log("rank 0 of 4", 150)
    interrupt(view)
    out, _ = view.communicate(timeout=30)
    assert view.returncode == 130
    assert "goes on; come back: hvdcompose logs -f; end it: hvdcompose stop" in out
    assert job.inspect(1)["State"]["Running"]
    job.hvd("stop")


def test_one_rank_on_one_host(cluster: Made) -> None:
    (cluster.folder / "code").mkdir()
    (cluster.folder / "code" / "job.py").write_text(JOB)
    cluster.write(CLUSTER.replace("  <h2>}\n  <h3>}\n  <h4>}\n", ""))
    ran = cluster.hvd("apply", "--follow")
    assert "rank 0 of 1" in ran.stdout
    assert "all 1 ranks ended with exit 0" in ran.stdout


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_other_nic_names_and_two_ranks_on_a_host(job: Made, controller: str) -> None:
    host = f"hvdcompose-{job.desk.host(2)}"
    script = (
        "set -e; address=$(ip -o -4 addr show {old} | awk '{{print $4}}'); "
        "gateway=$(ip route | awk '/default/ {{print $3}}'); "
        "ip link set {old} down; ip link set {old} name {new}; ip link set {new} up; "
        "ip addr show {new} | grep -q inet || ip addr add $address dev {new}; "
        '[ -z "$gateway" ] || ip route replace default via $gateway'
    )
    job.desk.engine("exec", host, "sh", "-c", script.format(old="eth0", new="enp5s0"))
    try:
        job.edit(
            f"{job.desk.host(3)}: {{address: {job.desk.address(3)}}}",
            f"{job.desk.host(3)}: {{address: {job.desk.address(3)}, slots: 2}}",
        )
        job.file.write_text(job.file.read_text() + f"horovod: {{controller: {controller}}}\n")
        ran = job.hvd("apply", "--follow")
    finally:
        job.desk.engine("exec", host, "sh", "-c", script.format(old="enp5s0", new="eth0"))
    assert "all 5 ranks ended with exit 0" in ran.stdout
    assert "[15.0, 15.0, 15.0]" in ran.stdout


def test_the_files_work_by_hand_in_any_order(job: Made) -> None:
    job.hvd("apply", "--follow")
    for number in range(1, 5):
        file = str(job.folder / "compose" / job.desk.host(number) / "compose.yaml")
        job.docker(number, "compose", "-f", file, "down")
    for number in (1, 4, 3, 2):
        file = str(job.folder / "compose" / job.desk.host(number) / "compose.yaml")
        job.docker(number, "compose", "-f", file, "up", "-d")
        time.sleep(1)
    job.wait_for_log("all 4 ranks ended with exit 0", 120)
    log = job.docker(1, "logs", job.container(1))
    assert f"waiting for {job.desk.host(2)} ({job.desk.address(2)}:{job.port})" in log


def test_a_second_client_adopts_the_key_and_a_host_may_leave(job: Made, tmp_path_factory) -> None:
    job.hvd("apply", "--follow")
    job.env["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    job.calm()  # of this client, which has not seen the workers become ready itself
    assert "nothing to do" in job.hvd("apply").stderr

    gone = job.desk.host(4)
    job.edit(f"  {gone}: {{address: {job.desk.address(4)}}}\n", "")
    said = job.hvd("apply", "--follow")
    assert re.search(rf"^{gone} +remove +it left cluster.yaml$", said.stderr, re.M)
    assert "all 3 ranks ended with exit 0" in said.stdout
    assert not (job.folder / "compose" / gone).exists()
    assert job.docker(4, "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={job.name}") == ""
    del job.env["XDG_STATE_HOME"]


def test_status_as_json(job: Made) -> None:
    told = json.loads(job.hvd("status", "--json").stdout)
    assert (told["version"], told["ok"]) == (1, True)
    assert [row["host"] for row in told["data"]["hosts"]] == [job.desk.host(n) for n in range(1, 5)]
    assert told["data"]["hosts"][0]["state"] == "not there"


def test_two_at_once_leave_a_state_that_the_next_command_understands(job: Made) -> None:
    both = [job.start("apply"), job.start("apply")]
    told = {view: view.communicate(timeout=300)[0] for view in both}
    assert sorted(view.returncode for view in both) == [0, 4], told
    (refused,) = (text for view, text in told.items() if view.returncode == 4)
    assert re.search(rf"another hvdcompose \(pid \d+\) is at work on cluster {job.name}", refused)
    job.wait_for_log("all 4 ranks ended with exit 0")
    job.calm()
    assert "nothing to do" in job.hvd("apply").stderr


def running() -> list[str]:
    """Return the command lines of this machine's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(path.read_text(errors="replace").replace("\0", " "))
    return found


def test_image_is_sent_where_it_is_missing(job: Made) -> None:
    job.docker(4, "image", "rm", "--force", IMAGE)
    said = job.hvd("plan").stderr
    assert re.findall(r"^(\S+) +send image +it has no such image$", said, re.M) == [job.desk.host(4)]
    sending = job.start("apply")
    time.sleep(3)
    interrupt(sending)
    out, _ = sending.communicate(timeout=30)
    assert sending.returncode == 130, out
    assert "interrupted" in out
    assert not [line for line in running() if re.search(f"docker.*{job.desk.host(4)}.*load", line)]
    assert "all 4 ranks ended with exit 0" in job.hvd("apply", "--follow").stdout
