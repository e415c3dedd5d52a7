"""/hvd/bin/ssh: strict checking holds in spite of what horovodrun puts on its command line."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from hvdcompose.stack.render import templates

WRAPPER = templates() / "hvd" / "ssh"
# what horovodrun 0.28.1 gives ssh
WORDS = ["-o", "StrictHostKeyChecking=no", "-p", "12345", "10.0.0.2", "cd /w; /hvd/rank 'a b'"]


@pytest.mark.parametrize(
    "path",
    ["{own}:/usr/bin:/bin", "/hvd/bin:/hvd/bin:{own}:/usr/bin:/bin", "{own}:/hvd/bin:/usr/bin:/bin:/hvd/bin"],
)
def test_it_does_not_find_itself_wherever_it_stands(path, program, tmp_path):
    program("ssh", f'echo "$PATH" > {tmp_path}/path\n')
    subprocess.run(["/bin/sh", str(WRAPPER), *WORDS], env={"PATH": path.format(own=tmp_path / "bin")}, check=True)
    assert (tmp_path / "path").read_text() == f"{tmp_path}/bin:/usr/bin:/bin\n"


def test_our_options_stand_in_front_and_the_words_behind_unchanged(program, tmp_path):
    program("ssh", f'printf \'%s\\n\' "$@" > {tmp_path}/words; echo "$PATH" > {tmp_path}/path; exit 7\n')
    path = f"/hvd/bin:{tmp_path}/bin:/usr/bin:/bin"
    done = subprocess.run(["/bin/sh", str(WRAPPER), *WORDS], env={"PATH": path})
    assert done.returncode == 7
    words = (tmp_path / "words").read_text().splitlines()
    assert words[-len(WORDS) :] == WORDS
    ours = words[: -len(WORDS)]
    assert ours[:2] == ["-F", "/run/hvd/ssh_config"]
    options = dict(word.split("=") for word in ours[3::2])
    assert set(ours[2::2]) == {"-o"}
    assert options["StrictHostKeyChecking"] == "yes"
    assert options["UserKnownHostsFile"] == "/hvd/host/known_hosts"
    assert options["BatchMode"] == "yes"
    assert (tmp_path / "path").read_text() == f"{tmp_path}/bin:/usr/bin:/bin\n", "else it would call itself"


@pytest.mark.skipif(not shutil.which("ssh"), reason="needs the ssh client")
def test_the_real_ssh_takes_the_first_value(tmp_path):
    (tmp_path / "config").write_text("")
    wrapper = tmp_path / "ssh-wrapper"
    wrapper.write_text(WRAPPER.read_text().replace("/run/hvd/ssh_config", str(tmp_path / "config")))
    done = subprocess.run(["/bin/sh", str(wrapper), "-G", *WORDS[:5]], capture_output=True, text=True, check=True)
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert told["stricthostkeychecking"] in ("true", "yes")
    assert told["userknownhostsfile"] == "/hvd/host/known_hosts"
    assert (told["port"], told["batchmode"], told["updatehostkeys"]) == ("12345", "yes", "false")
