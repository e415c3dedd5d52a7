"""The claim to a cluster on its primary: made once, told to whoever comes later, given up in every case."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from clusters import cluster_of

from hvdcompose.errors import Refused
from hvdcompose.hosts import process
from hvdcompose.hosts.api import close_all
from hvdcompose.hosts.claim import Claim, claimed, drop_stale, new_claim, parse_claim, standing_claim
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.keys import forget_key, state_folder

ALPHA = Engine("alpha", "c1", "")
CLUSTER = cluster_of()
THEIRS = Claim("70ce", "ann@laptop", "42", "apply", 1700000000)


@pytest.fixture
def volume(program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker with one volume: its labels in a file, made once as dockerd does, removed by `volume rm`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    state_folder(CLUSTER).mkdir(parents=True)
    file = tmp_path / "volume"
    program(
        "docker",
        f"""
        shift 2; echo "$*" >> {tmp_path}/calls
        case $2 in
        create) [ -e {file} ] || printf '%s\\n' "$@" | grep = > {file} ;;
        rm) rm {file} ;;
        inspect)
            [ -e {file} ] || {{ echo "Error: No such volume: $3" >&2; exit 1; }}
            printf '[{{"Labels": {{'; sed 's/\\([^=]*\\)=\\(.*\\)/"\\1": "\\2"/' {file} | paste -sd,; printf '}}}}]' ;;
        esac
        """,
    )
    return file


def place(file: Path, claim: Claim) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in claim.labels("demo").items()))


def told(file: Path) -> Claim:
    return parse_claim(dict(line.split("=", 1) for line in file.read_text().splitlines()))


def test_what_the_labels_tell_comes_back():
    assert parse_claim(THEIRS.labels("demo")) == THEIRS
    assert parse_claim({}) == Claim("", "", "", "", 0.0)


def test_a_claim_says_who_from_where_since_when():
    assert re.fullmatch(
        r"hvdcompose apply by ann@laptop \(pid 42\), since 2023-11-1[45] \d\d:\d\d:20", str(THEIRS)
    )  # 22:13:20 UTC, told in the reader's own time


def test_no_two_claims_are_alike():
    assert new_claim("apply").token != new_claim("apply").token


def test_it_is_held_and_given_up(volume):
    with claimed(CLUSTER, ALPHA, "apply"):
        standing = standing_claim(ALPHA, "demo")
        assert standing is not None and standing.command == "apply"
    assert not volume.exists() and standing_claim(ALPHA, "demo") is None
    assert not (state_folder(CLUSTER) / "claims").exists()


def test_another_client_is_refused_and_told_all(volume):
    place(volume, THEIRS)
    with pytest.raises(Refused) as caught, claimed(CLUSTER, ALPHA, "keys rotate"):
        pytest.fail("two at once")
    assert caught.value.message == f"cluster demo is being changed from elsewhere: {THEIRS}"
    assert caught.value.hint is not None and "hvdcompose keys rotate --take-over" in caught.value.hint
    assert told(volume) == THEIRS
    assert not (state_folder(CLUSTER) / "claims").exists(), "nothing is left to ask about"


def test_it_is_taken_over_when_told(volume):
    place(volume, THEIRS)
    with claimed(CLUSTER, ALPHA, "apply", take_over=True):
        assert told(volume).token not in ("", THEIRS.token)
    assert not volume.exists()


def test_what_a_killed_client_of_this_machine_held_is_taken_silently(volume):
    """However it ended: the lock on this machine is held by whoever asks, so the other cannot be alive."""
    place(volume, THEIRS)
    (state_folder(CLUSTER) / "claims").write_text(f"aaaa\n{THEIRS.token}\n")
    with claimed(CLUSTER, ALPHA, "apply"):
        assert told(volume).token != THEIRS.token
    assert not volume.exists()


def test_a_client_killed_before_its_claim_stood_still_knows_the_one_before(volume):
    place(volume, THEIRS)
    notes = state_folder(CLUSTER) / "claims"
    notes.write_text(f"{THEIRS.token}\nbbbb\n")
    with claimed(CLUSTER, ALPHA, "apply"):
        assert told(volume).token != THEIRS.token


def test_with_nothing_to_do_a_killed_client_s_claim_goes_and_no_other(volume, tmp_path):
    notes = state_folder(CLUSTER) / "claims"
    drop_stale(CLUSTER, ALPHA)
    assert not (tmp_path / "calls").exists(), "nobody was killed: nobody is asked"
    place(volume, THEIRS)
    notes.write_text("aaaa\n")
    drop_stale(CLUSTER, ALPHA)
    assert told(volume) == THEIRS and not notes.exists()
    notes.write_text(f"{THEIRS.token}\n")
    drop_stale(CLUSTER, ALPHA)
    assert not volume.exists() and not notes.exists()


def test_one_that_was_taken_over_stays_when_the_first_client_ends(volume):
    with claimed(CLUSTER, ALPHA, "apply"):
        place(volume, THEIRS)
    assert told(volume) == THEIRS


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_it_is_given_up_whatever_happens(volume, fresh_process, error):
    """After Ctrl-C too, when no other command is started any more."""
    with pytest.raises(error), claimed(CLUSTER, ALPHA, "apply"):
        if error is KeyboardInterrupt:
            process.end_children()
        raise error
    assert not volume.exists()


def test_ctrl_c_while_it_is_made(program, volume, fresh_process, tmp_path):
    """The volume is there before the client knows."""
    real = (tmp_path / "bin" / "docker").read_text().replace("#!/bin/sh\n", "")
    once, interrupt = f"{tmp_path}/once", f"kill -INT {os.getpid()}; sleep 9"
    strike = f"if [ $4 = inspect ] && [ ! -e {once} ]; then touch {once}; {interrupt}; fi\n"
    program("docker", real.replace("shift 2;", f"{strike}shift 2;"))
    with pytest.raises(KeyboardInterrupt), claimed(CLUSTER, ALPHA, "apply"):
        pytest.fail("it went on")
    assert not volume.exists() and not (state_folder(CLUSTER) / "claims").exists()


def test_a_claim_that_cannot_be_given_up_is_known_to_the_next_command(program, volume, tmp_path):
    real = (tmp_path / "bin" / "docker").read_text().replace("#!/bin/sh\n", "")
    with claimed(CLUSTER, ALPHA, "down"):
        close_all()
        program("docker", "echo 'no route to host' >&2; exit 1", answers=False)
    forget_key(CLUSTER)  # as `down --volumes` does
    program("docker", real)
    assert volume.exists()
    with claimed(CLUSTER, ALPHA, "apply"):
        assert told(volume).command == "apply"
    assert not volume.exists()


def test_a_claim_that_is_let_go_between_two_calls_is_made_anew(program, volume, tmp_path):
    real = (tmp_path / "bin" / "docker").read_text()
    first = f"if [ $4 = inspect ] && [ ! -e {tmp_path}/once ]; then touch {tmp_path}/once; rm {volume}; fi\n"
    program("docker", real.replace("#!/bin/sh\n", "").replace("shift 2;", f"{first}shift 2;"))
    with claimed(CLUSTER, ALPHA, "apply"):
        assert told(volume).command == "apply"
    made = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("volume create")]
    assert len(made) == 2 and made[0] == made[1]
    assert re.search(r"hvdcompose-claim-demo$", made[0])
