"""The image's recipe, the lab's own ssh, and the environment of `lab shell`."""

import shutil
import stat
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from hvdcompose.errors import UsageError
from hvdcompose.hosts import process
from hvdcompose.lab import engine, images, operations, spec, ssh
from hvdcompose.lab.plan import Host


@pytest.fixture
def lab(tmp_path):
    return spec.Lab("lab", tmp_path / "lab")


class TestImage:
    def test_the_name_changes_with_any_byte_of_the_recipe(self):
        recipe = [("Dockerfile", b"FROM x"), ("entrypoint.sh", b"exec")]
        name = images.digest(recipe)
        assert len(name) == 12
        assert images.digest(reversed(recipe)) == name
        assert images.digest([("Dockerfile", b"FROM y"), ("entrypoint.sh", b"exec")]) != name
        assert images.digest([("Dockerfile", b"FROM xe"), ("entrypoint.sh", b"xec")]) != name

    def test_the_recipe_is_in_the_package(self):
        assert {path.name for path in images.RECIPE.iterdir()} == {
            "Dockerfile",
            "Dockerfile.old",
            "Dockerfile.rootless",
            "entrypoint.sh",
            "nvidia-container-runtime-hook",
            "nvidia-smi",
            "sshd.conf",
        }

    def test_each_kind_has_a_name_of_its_own(self):
        assert [images.image_name(kind).partition(":")[0] for kind in images.KINDS] == [
            "hvdcompose-lab-host", "hvdcompose-lab-host-rootless", "hvdcompose-lab-host-old",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("changed", "renamed"),
        [
            ("Dockerfile", {"plain", "rootless"}),  # the rootless one is made from the plain one
            ("Dockerfile.rootless", {"rootless"}),
            ("Dockerfile.old", {"old"}),
            ("entrypoint.sh", {"plain", "rootless", "old"}),
        ],
    )
    def test_a_change_renames_only_what_is_made_of_it(self, changed, renamed, tmp_path, monkeypatch):
        before = {kind: images.image_name(kind) for kind in images.KINDS}
        shutil.copytree(images.RECIPE, tmp_path / "image")
        monkeypatch.setattr(images, "RECIPE", tmp_path / "image")
        assert {kind: images.image_name(kind) for kind in images.KINDS} == before
        (tmp_path / "image" / changed).write_text("other")
        assert {kind for kind in images.KINDS if images.image_name(kind) != before[kind]} == renamed

    def test_build_words_hand_on_the_proxies_that_are_set(self, monkeypatch):
        for name in images.PROXIES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", "http://proxy:3128")
        words = images.build_words("lab-host:1", "debian:trixie-slim", "Dockerfile")
        assert " ".join(words) == (
            "build --network host --label hvdcompose.lab.image=1 --build-arg BASE=debian:trixie-slim"
            f" --build-arg http_proxy --tag lab-host:1 --file {images.RECIPE}/Dockerfile {images.RECIPE}"
        )

    @pytest.mark.parametrize("script", ["entrypoint.sh", "nvidia-smi", "nvidia-container-runtime-hook"])
    def test_its_scripts_parse(self, script):
        subprocess.run(["sh", "-n", images.RECIPE / script], check=True)


class TestSsh:
    HOSTS = (Host("lab1", IPv4Address("10.0.0.11")), Host("lab2", IPv4Address("10.0.0.12"), rootless=True))

    def test_endpoints(self):
        assert [ssh.endpoint(host) for host in self.HOSTS] == ["ssh://root@10.0.0.11", "ssh://lab@10.0.0.12"]

    def test_the_key_is_made_once_and_is_the_user_s_alone(self, lab):
        public = ssh.ensure_key(lab)
        assert public.startswith("ssh-ed25519 ")
        assert ssh.ensure_key(lab) == public
        assert stat.S_IMODE((lab.ssh_folder / "id_ed25519").stat().st_mode) == 0o600
        assert stat.S_IMODE(lab.ssh_folder.stat().st_mode) == 0o700

    def test_known_hosts_leave_the_key_s_comment_out(self):
        keys = {"10.0.0.11": "ssh-ed25519 AAAA root@lab1\n", "10.0.0.12": "ssh-ed25519 BBBB\n"}
        assert ssh.known_hosts_text(keys) == "10.0.0.11 ssh-ed25519 AAAA\n10.0.0.12 ssh-ed25519 BBBB\n"

    def test_the_configuration_pins_host_keys_and_reads_nothing_of_the_user_s(self):
        text = ssh.config_text(Path("/s p"))
        for line in (
            'IdentityFile "/s p/id_ed25519"',
            "IdentitiesOnly yes",
            "IdentityAgent none",
            'UserKnownHostsFile "/s p/known_hosts"',
            "GlobalKnownHostsFile /dev/null",
            "StrictHostKeyChecking yes",
        ):
            assert f"  {line}\n" in text

    def test_the_wrapper_calls_the_real_ssh_with_it(self):
        text = ssh.wrapper_text("/usr/bin/ssh", Path("/s/config"))
        assert text == '#!/bin/sh\nexec /usr/bin/ssh -F "/s/config" "$@"\n'


OUTSIDE = {"PATH": "/usr/bin", "DOCKER_HOST": "tcp://x", "DOCKER_CONTEXT": "y", "HOME": "/home/me"}


class TestShell:
    def test_contexts_rule_inside(self, lab):
        inside = operations.shell_environment(lab, OUTSIDE, over_ssh=False)
        assert inside == {"PATH": "/usr/bin", "HOME": "/home/me", "HVDCOMPOSE_LAB": "lab"}

    def test_over_ssh_docker_and_ssh_are_the_lab_s_own(self, lab):
        inside = operations.shell_environment(lab, {**OUTSIDE, "DOCKER_CONFIG": "/c"}, over_ssh=True)
        assert inside["DOCKER_CONFIG"] == str(lab.docker_config)
        assert inside["PATH"] == f"{lab.bin_folder}:/usr/bin"
        assert inside["HVDCOMPOSE_OUTER_DOCKER_CONFIG"] == "/c"

    def test_a_shell_in_the_shell_remembers_the_outermost_configuration(self, lab):
        once = operations.shell_environment(lab, {**OUTSIDE, "DOCKER_CONFIG": "/c"}, over_ssh=True)
        assert operations.shell_environment(lab, once, over_ssh=True) == once

    def test_without_a_lab_it_says_so(self, lab):
        with pytest.raises(UsageError, match="there is no lab lab"):
            operations.enter(lab, ["true"])


@pytest.mark.parametrize(
    ("out", "err", "why"),
    [
        ("", "docker: Error: no space.\n\nRun 'docker run --help' for more information\n", "docker: Error: no space."),
        ("Step 3/8\nfailed\n", "", "failed"),
        ("", "", "exit code 4, and not a word"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(out, err, why):
    assert engine.reason(process.Completed(4, out, err)) == why


def test_an_engine_that_is_not_on_this_machine_is_refused(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@box")
    with pytest.raises(UsageError, match=r"Docker's current engine is at ssh://me@box"):
        engine.find_engine()


def test_a_socket_without_an_engine_is_no_answer(tmp_path):
    assert engine.ask_info(tmp_path / "none.sock") is None
