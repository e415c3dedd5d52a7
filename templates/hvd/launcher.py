#!/usr/bin/env python3
"""/hvd/launcher HOROVODRUN...: wait until every worker proves itself by a login, run, tell how it ended.

Exit code: horovodrun's; 69 when it was never started because a worker could not be reached in time.
"""

from __future__ import annotations

import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import hvdcause
import hvdgather
import hvdhosts
import hvdlib
import hvdlog
import hvdrecord

NEVER_STARTED = 69  # sysexits.h: EX_UNAVAILABLE
STOPPED = 143  # 128 + SIGTERM, as a shell tells it
RETRY_SECONDS = (0.2, 0.3, 0.5, 1.0, 2.0)
LOGIN_SECONDS = 15
REMIND_SECONDS = 10
GRACE_SECONDS = 12
STOPPED_COLLECT_SECONDS = 3
REFUSED = ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED")
WHY = (  # what ssh writes -> what it means here
    ("Connection refused", "nothing listens on that port: the worker is not up, or a firewall rejects it"),
    ("Connection timed out", "no answer on that port: the host is off, or a firewall drops it"),
    ("No route to host", "no route to it: it is off, on another network, or a firewall rejects it"),
    ("Permission denied", "it refuses the key: the log of the worker says why"),
)


def write_ssh_config(folder: str = "/root/.ssh", path: str = "/run/hvd/ssh_config") -> None:
    """Write the ssh client's settings: every private key in the ssh folder is offered, whatever its name."""
    keys = []
    for name in sorted(glob.glob(f"{folder}/*")):
        try:
            with open(name, "rb") as file:
                if b"PRIVATE KEY-----" in file.readline(200):
                    keys.append(name)
        except OSError:
            continue
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        # quoted for blanks; % would begin a token of ssh_config(5)
        file.write("".join('IdentityFile "{}"\n'.format(key.replace("%", "%%")) for key in keys))
    if not keys:
        raise hvdlib.Fault(f"no private key in {folder}: `hvdcompose apply` fills the volume")


def prove(cluster: str, port: int, worker: dict[str, Any]) -> tuple[bool, bool, str]:
    """Log in to a worker and ask who it is.

    Returns (ok, final, reason): `final` tells that waiting longer is of no use.
    """
    try:
        answer = subprocess.run(
            hvdlib.ssh(port, worker["address"], "cat", "/hvd/host.json"),
            capture_output=True,
            text=True,
            timeout=LOGIN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False, False, f"no answer to a login within {LOGIN_SECONDS} s"
    if answer.returncode:
        if any(text in answer.stderr for text in REFUSED):
            return (
                False,
                True,
                "it shows another host key than the cluster's: changed outside hvdcompose, or not the worker; "
                "new keys for all: hvdcompose keys rotate",
            )
        lines = [line for line in answer.stderr.strip().splitlines() if line] or ["ssh failed without a word"]
        return False, False, next((why for text, why in WHY if text in lines[-1]), lines[-1].strip())
    try:
        told = json.loads(answer.stdout)
    except ValueError:
        return False, True, "it is not a worker of hvdcompose: there is no /hvd/host.json"
    if not isinstance(told, dict):
        return False, True, "it is not a worker of hvdcompose: there is no /hvd/host.json"
    if (told.get("cluster"), told.get("host")) != (cluster, worker["host"]):
        return False, True, f"it says it is {told.get('host')} of cluster {told.get('cluster')}"
    return True, True, ""


def await_worker(cluster: str, port: int, worker: dict[str, Any], limit: float, faults: dict[str, str]) -> None:
    """Retry one worker until `limit` (monotonic seconds); tell for whom and why whenever the reason changes."""
    who = f"{worker['host']} ({worker['address']}:{port})"
    attempt, told, told_at = 0, None, 0.0
    while True:
        ok, final, reason = prove(cluster, port, worker)
        if ok:
            if told:
                hvdlib.say(f"{who} is ready")
            return
        late = time.monotonic() >= limit
        if final or late:
            faults[worker["host"]] = f"{who}: {reason}"
            return
        if reason != told or time.monotonic() - told_at > REMIND_SECONDS:
            hvdlib.say(f"waiting for {who}: {reason}")
            told, told_at = reason, time.monotonic()
        time.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
        attempt += 1


def await_workers(settings: dict[str, Any]) -> None:
    """Wait, all at once, until each worker proved itself; raise Fault naming every one that did not."""
    workers = hvdgather.workers_of(settings)
    limit = time.monotonic() + settings["start_timeout"]
    faults: dict[str, str] = {}
    threads = [
        threading.Thread(
            target=await_worker,
            args=(settings["cluster"], settings["port"], worker, limit, faults),
            daemon=True,
        )
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        told = "\n".join(f"  {faults[worker['host']]}" for worker in workers if worker["host"] in faults)
        raise hvdlib.Fault(f"not launched, {len(faults)} of {len(workers)} workers not ready:\n{told}")
    if workers:
        hvdlib.say(f"all {len(workers)} workers proved themselves by a login")


def words_here(words: list[str], settings: dict[str, Any], interface: str) -> list[str]:
    """Return horovodrun's words with the interface named, so that it does not search for one common to all hosts.

    With ranks on this host only there is nothing to search, and the option would keep it from using loopback.
    """
    if len(settings["hosts"]) == 1:
        return words
    return [words[0], "--network-interfaces", interface, *words[1:]]


def environment(settings: dict[str, Any]) -> dict[str, str]:
    """Return horovodrun's environment: our ssh first, and Open MPI made to behave in containers."""
    env = dict(os.environ)
    env["PATH"] = "/hvd/bin:" + env.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if settings["controller"] == "mpi":
        defaults = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # no ptrace in a container: else a flood of errno 1
            "OMPI_MCA_mpi_yield_when_idle": "1",  # busy waiting starves the ranks beside it
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only the launcher holds the key
            "OMPI_MCA_oob_tcp_keepalive_time": "5",
            "OMPI_MCA_oob_tcp_keepalive_intvl": "3",
            "OMPI_MCA_oob_tcp_keepalive_probes": "3",
        }
        env.update({name: value for name, value in defaults.items() if name not in env})
    return env


def kill_all(child: subprocess.Popen[bytes]) -> None:
    """Kill everything in this container but its init and this process; outside of one, the child's session only."""
    if os.path.exists("/.dockerenv"):
        os.kill(-1, signal.SIGKILL)
    else:
        os.killpg(child.pid, signal.SIGKILL)


def launch(words: list[str], env: dict[str, str]) -> int:
    """Run horovodrun to its end; SIGTERM and SIGINT end it and everything it started here. Returns its code."""
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    child = subprocess.Popen(words, env=env, start_new_session=True)
    while child.poll() is None:
        if asked.wait(0.2):
            hvdlib.say("asked to stop: ending all ranks")
            child.terminate()
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                kill_all(child)
                child.wait()
            return STOPPED
    return child.returncode


class Stopped(Exception):
    """The launcher was asked to end before horovodrun was started."""


def raise_stopped(*_: object) -> None:
    """End what the main thread waits for."""
    raise Stopped


def ready_words(settings: dict[str, Any], words: list[str]) -> list[str]:
    """Return horovodrun's words as they fit here, once everything they need is there. Raises Fault, Stopped."""
    interface = hvdlib.interface_of(settings)
    if shutil.which(words[0], path=environment(settings)["PATH"]) is None:
        raise hvdlib.Fault(f"this image has no {words[0]}: install Horovod in it, or put it on the image's PATH")
    hvdlib.await_keys()
    hvdlib.link_secrets(settings["secrets"])
    if len(settings["hosts"]) > 1:
        write_ssh_config()
        await_workers(settings)
    return words_here(words, settings, interface)


def run_recorded(settings: dict[str, Any], record: hvdrecord.Record, words: list[str]) -> int:
    """Launch once everything is ready, and fill the record in; return the exit code."""
    try:
        words = record.told["command"] = ready_words(settings, words)
        if settings["prepare"]:
            hvdhosts.prepare(settings, record.told, record.folder)
    except Stopped:
        hvdlib.say("asked to stop: nothing was launched")
        return STOPPED
    except hvdlib.Fault as fault:
        hvdlib.say(str(fault))
        record.told["cause"] = getattr(fault, "cause", None) or hvdcause.as_cause(str(fault), NEVER_STARTED)
        return NEVER_STARTED
    record.launched()
    hvdlib.say(f"run {record.run}: {settings['np']} ranks on {', '.join(dict.fromkeys(record.told['hosts']))}")
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    code = launch(words, environment(settings))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    record.told["real"] = time.monotonic() - started
    record.told["user"], record.told["sys"] = used.ru_utime - before.ru_utime, used.ru_stime - before.ru_stime
    return code


def conclude(settings: dict[str, Any], record: hvdrecord.Record, code: int, book: hvdlog.Book) -> None:
    """Bring together what the hosts know of the run, find the first cause of a failure, and tell how it ended."""
    seconds = STOPPED_COLLECT_SECONDS if code == STOPPED else hvdgather.COLLECT_SECONDS
    found = hvdgather.gather(settings, record.folder, seconds)
    told, tails = record.told, book.tails()
    told["ranks"] = found.ranks
    if code != STOPPED:
        told["cause"] = hvdcause.cause_of(code, told["hosts"], found.ranks, tails, silent=found.silent, skew=found.skew)
    since = time.time() - told["begin"] + 1
    hvdgather.fetch_worker_logs(settings, record.folder, since, found.silent, seconds)
    record.finish(code, book.metrics)
    hvdrecord.report(told, tails)


def run(words: list[str]) -> int:
    """Wait for the workers, launch, record, report; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, raise_stopped)
    settings = hvdlib.settings()
    record, book = hvdrecord.new_record(settings, words), hvdlog.Book()
    os.environ["HVD_RUN"] = record.run
    if settings["output"]:
        os.environ["HVD_OUTPUT"] = f"{settings['output']}/{record.run}"
    with hvdlog.Capture(hvdlog.LogFile(f"{record.folder}/launcher.log"), book.note) as capture:
        code = run_recorded(settings, record, words)
        capture.settle()
        if record.told["real"] is None:  # it was never started
            record.finish(code, None)
        else:
            conclude(settings, record, code, book)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
