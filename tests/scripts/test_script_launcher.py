"""/hvd/launcher: waits for workers that prove themselves, ends what it started, and tells how the run went."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import hvdlib
import launcher
import pytest
from script_settings import SETTINGS


def answer(host: str, cluster: str = "demo") -> str:
    return f"echo {shlex.quote(json.dumps({'cluster': cluster, 'host': host}))}\n"


def test_ssh_is_ours_with_the_cluster_s_port():
    assert hvdlib.ssh(12345, "10.0.0.2", "cat", "/x") == ["/hvd/bin/ssh", "-p", "12345", "root@10.0.0.2", "cat", "/x"]


def test_all_workers_prove_themselves(worker, tmp_path, capsys):
    worker("10.0.0.2", 'echo "$@" > asked\n' + answer("beta"))
    worker("10.0.0.3", answer("gamma"))
    launcher.await_workers(SETTINGS)
    assert capsys.readouterr().err == "hvdcompose: all 2 workers proved themselves by a login\n"
    assert (tmp_path / "asked").read_text() == "12345 cat /hvd/host.json\n"


def test_a_worker_that_comes_late_is_waited_for_and_told(worker, tmp_path, capsys):
    worker("10.0.0.2", answer("beta"))
    worker(
        "10.0.0.3",
        """
        echo x >> tries
        if [ $(wc -l < tries) -lt 3 ]; then
            echo 'ssh: connect to host 10.0.0.3 port 12345: odd trouble' >&2
            exit 255
        fi
        """
        + answer("gamma"),
    )
    launcher.await_workers(SETTINGS)
    assert capsys.readouterr().err.splitlines() == [
        "hvdcompose: waiting for gamma (10.0.0.3:12345): ssh: connect to host 10.0.0.3 port 12345: odd trouble",
        "hvdcompose: gamma (10.0.0.3:12345) is ready",
        "hvdcompose: all 2 workers proved themselves by a login",
    ]
    assert len((tmp_path / "tries").read_text().split()) == 3


WRONG = [
    pytest.param(answer("delta"), "it says it is delta of cluster demo", id="another host"),
    pytest.param(answer("gamma", "other"), "it says it is gamma of cluster other", id="another cluster"),
    pytest.param(
        "echo 'Welcome to Debian'", "it is not a worker of hvdcompose: there is no /hvd/host.json", id="a login shell"
    ),
    pytest.param(
        "echo 'Host key verification failed.' >&2; exit 255",
        "it shows another host key than the cluster's: changed outside hvdcompose, or not the worker; "
        "new keys for all: hvdcompose keys rotate",
        id="host key",
    ),
    pytest.param(
        "echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2; exit 255",
        "it shows another host key than the cluster's: changed outside hvdcompose, or not the worker; "
        "new keys for all: hvdcompose keys rotate",
        id="changed host key",
    ),
]


@pytest.mark.parametrize(("script", "reason"), WRONG)
def test_a_worker_that_is_the_wrong_one_is_not_waited_for(script, reason, worker, tmp_path):
    worker("10.0.0.2", answer("beta"))
    worker("10.0.0.3", f"echo x >> tries\n{script}\n")
    with pytest.raises(hvdlib.Fault) as caught:
        launcher.await_workers({**SETTINGS, "start_timeout": 3600})
    assert str(caught.value) == (f"not launched, 1 of 2 workers not ready:\n  gamma (10.0.0.3:12345): {reason}")
    assert (tmp_path / "tries").read_text() == "x\n"


def test_every_worker_that_does_not_come_in_time_is_named_with_its_last_reason(worker):
    worker("10.0.0.2", "echo 'first line' >&2; echo 'no route to host' >&2; echo >&2; exit 255\n")
    worker("10.0.0.3", "exit 255\n")
    with pytest.raises(hvdlib.Fault) as caught:
        launcher.await_workers({**SETTINGS, "start_timeout": 0.3})
    assert str(caught.value).splitlines() == [
        "not launched, 2 of 2 workers not ready:",
        "  beta (10.0.0.2:12345): no route to host",
        "  gamma (10.0.0.3:12345): ssh failed without a word",
    ]


WHY = [
    ("ssh: connect to host 10.0.0.2 port 12345: Connection refused", "nothing listens on that port: "),
    ("ssh: connect to host 10.0.0.2 port 12345: Connection timed out", "no answer on that port: "),
    ("ssh: connect to host 10.0.0.2 port 12345: No route to host", "no route to it: "),
    ("root@10.0.0.2: Permission denied (publickey).", "it refuses the key: "),
]


@pytest.mark.parametrize(("text", "begin"), WHY)
def test_what_ssh_says_in_words_of_ours(text, begin, worker):
    worker("10.0.0.2", f"echo '{text}' >&2; exit 255\n")
    ok, final, reason = launcher.prove("demo", 12345, SETTINGS["hosts"][1])
    assert (ok, final) == (False, False) and reason.startswith(begin)


def test_a_login_that_hangs_is_given_up(worker, monkeypatch):
    monkeypatch.setattr(launcher, "LOGIN_SECONDS", 0.3)
    worker("10.0.0.2", "exec sleep 60\n")
    found = launcher.prove("demo", 12345, SETTINGS["hosts"][1])
    assert found == (False, False, "no answer to a login within 0.3 s")


def test_json_that_is_no_worker_s(worker):
    worker("10.0.0.2", "echo 5\n")
    ok, final, reason = launcher.prove("demo", 12345, SETTINGS["hosts"][1])
    assert (ok, final, reason) == (False, True, "it is not a worker of hvdcompose: there is no /hvd/host.json")


def test_a_run_on_one_host_waits_for_nobody(capsys):
    launcher.await_workers({**SETTINGS, "hosts": SETTINGS["hosts"][:1]})
    assert capsys.readouterr().err == ""


@pytest.fixture
def keys(tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    for name, text in {
        "id_rsa": "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n",
        "work": "-----BEGIN RSA PRIVATE KEY-----\nx\n",
        "id_rsa.pub": "ssh-rsa AAAA me\n",
        "config": "Host *\n",
    }.items():
        (folder / name).write_text(text)
    (folder / "old").mkdir()
    return folder


def test_every_private_key_is_offered_whatever_its_name(keys, tmp_path):
    path = tmp_path / "run" / "ssh_config"
    launcher.write_ssh_config(str(keys), str(path))
    assert path.read_text() == f'IdentityFile "{keys}/id_rsa"\nIdentityFile "{keys}/work"\n'


@pytest.mark.skipif(not shutil.which("ssh"), reason="needs the ssh client")
def test_the_real_ssh_reads_the_name_of_any_key(keys, tmp_path):
    names = ["my key", "100%h"]
    for name in names:
        (keys / name).write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    path = tmp_path / "ssh_config"
    launcher.write_ssh_config(str(keys), str(path))
    done = subprocess.run(["ssh", "-G", "-F", str(path), "beta"], capture_output=True, text=True, check=True)
    told = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("identityfile ")]
    assert sorted(told) == sorted([f"{keys}/100%%h", f"{keys}/id_rsa", f"{keys}/my key", f"{keys}/work"])


def test_a_folder_without_a_key_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(hvdlib.Fault) as caught:
        launcher.write_ssh_config(str(tmp_path / "empty"), str(tmp_path / "ssh_config"))
    assert str(caught.value) == f"no private key in {tmp_path}/empty: `hvdcompose apply` fills the volume"


WORDS = ["horovodrun", "-np", "4", "/hvd/rank", "python", "t.py"]


def test_the_interface_is_named_after_the_program_where_there_are_several_hosts():
    assert launcher.words_here(WORDS, SETTINGS, "eth0") == [
        *("horovodrun", "--network-interfaces", "eth0", "-np", "4", "/hvd/rank", "python", "t.py"),
    ]
    alone = {**SETTINGS, "hosts": SETTINGS["hosts"][:1]}
    assert launcher.words_here(WORDS, alone, "eth0") == WORDS


def test_our_ssh_comes_first(monkeypatch):
    monkeypatch.setenv("PATH", "/opt/bin:/usr/bin")
    env = launcher.environment(SETTINGS)
    assert env["PATH"] == "/hvd/bin:/opt/bin:/usr/bin"
    assert not [name for name in env if name.startswith("OMPI_") and name not in os.environ]


def test_open_mpi_is_made_to_behave_and_the_user_s_own_settings_win(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_mpi_yield_when_idle", "0")
    env = launcher.environment({**SETTINGS, "controller": "mpi"})
    assert env["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert env["OMPI_MCA_plm_rsh_no_tree_spawn"] == "1", "only the launcher holds the key"
    assert env["OMPI_MCA_btl_vader_single_copy_mechanism"] == "none"
    assert env["OMPI_MCA_mpi_yield_when_idle"] == "0"


# The last resort of `launch` kills everything in its container, so never call it here: os.kill is taken away.
LAUNCH = """
import os, sys, launcher
kill = os.kill
def last_resort(pid, number):
    if pid != -1:
        return kill(pid, number)
    print("last resort", int(number), flush=True)
    os.killpg(int(open(sys.argv[1]).read()), number)
os.kill = last_resort
launcher.GRACE_SECONDS = 1.0
sys.exit(launcher.launch(sys.argv[2:], dict(os.environ)))
"""


def launching(pid: Path, *words: str) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(Path(launcher.__file__).parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", LAUNCH, str(pid), *words], env=env, text=True, **pipes)


def wait_for(condition, seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_exit_code_is_horovodrun_s(code, tmp_path):
    process = launching(tmp_path / "pid", "/bin/sh", "-c", f"exit {code}")
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_reaches_horovodrun(number, tmp_path):
    pid = tmp_path / "pid"
    process = launching(pid, "/bin/sh", "-c", f"echo $$ > {pid}; exec sleep 60")
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "hvdcompose: asked to stop: ending all ranks\n")
    assert process.returncode == 143
    assert not Path(f"/proc/{int(pid.read_text())}").exists()


def test_a_horovodrun_that_does_not_stop_is_killed_with_all_in_the_container(tmp_path):
    pid = tmp_path / "pid"
    process = launching(pid, "/bin/sh", "-c", f"trap '' TERM; echo $$ > {pid}; while :; do sleep 0.1; done")
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "last resort 9\n")
