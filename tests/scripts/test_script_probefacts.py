"""What the helper container finds where it stands."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess

import probefacts
import pytest

from hvdcompose.hosts.keys import ClusterKey
from hvdcompose.hosts.probe import parse_facts

KEY = "ssh-ed25519 AAAAkey"
TASK = {"host": {"host": "beta", "address": "127.0.0.1", "interface": None, "port": 12345}}


def test_everything_is_told_in_the_words_that_the_client_reads(tmp_path):
    (tmp_path / "a").write_text("12345")
    task = {**TASK, "paths": [str(tmp_path)], "listed": [str(tmp_path)], "ssh_folder": str(tmp_path)}
    told = probefacts.facts(task)
    found = parse_facts(told)
    assert found.interfaces["lo"].addresses == ("127.0.0.1",)
    assert (found.owner, found.resolved, found.unresolved) == ("lo", "127.0.0.1", "")
    assert [disk.path for disk in found.disks] == ["/", str(tmp_path)]
    assert found.disks[1].writable
    assert found.disks[1].total >= found.disks[1].free > 0
    assert found.listings[str(tmp_path)].files == 1
    assert [entry.name for entry in found.ssh_folder] == [".", "a"]
    assert found.shm.kind == "tmpfs"
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.versions["python"] == ".".join(map(str, __import__("sys").version_info[:3]))
    assert (found.home, found.shell) == ("/root", "/bin/bash")


def test_a_name_that_does_not_resolve(monkeypatch):
    def fail(name):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", fail)
    told = probefacts.network({"address": "nowhere"})
    assert (told["resolved"], told["unresolved"]) == ("", "Name or service not known")


def test_what_cannot_be_listed_is_told(tmp_path):
    told = probefacts.space(str(tmp_path / "gone"), {})
    assert told["error"] == "No such file or directory"
    assert (told["writable"], told["folder"]) == (False, False)


def test_mount_points_with_blanks_are_read(monkeypatch, tmp_path):
    lines = "22 1 0:21 / / rw - overlay overlay rw\n36 22 8:1 / /mnt/my\\040data rw shared:1 - nfs4 srv:/x rw\n"
    (tmp_path / "mountinfo").write_text(lines)
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *a, **k: real(tmp_path / "mountinfo", *a, **k))
    assert probefacts.kinds_of_mounts() == {"/": "overlay", "/mnt/my data": "nfs4"}


def test_a_listing_tells_names_and_sizes_and_nothing_else(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "f").write_text("12345")
    one, two = (probefacts.listing(str(tmp_path / name)) for name in ("one", "two"))
    assert one == two
    assert one["files"] == 1
    os.utime(tmp_path / "two" / "sub" / "f", (0, 0))
    assert probefacts.listing(str(tmp_path / "two")) == one
    (tmp_path / "two" / "sub" / "f").write_text("1234")
    assert probefacts.listing(str(tmp_path / "two"))["digest"] != one["digest"]
    (tmp_path / "two" / "sub" / "f").rename(tmp_path / "two" / "sub" / "g")
    (tmp_path / "two" / "sub" / "g").write_text("12345")
    assert probefacts.listing(str(tmp_path / "two"))["digest"] != one["digest"]


def test_a_folder_that_is_too_large_to_list(tmp_path, monkeypatch):
    monkeypatch.setattr(probefacts, "LISTED_ENTRIES", 2)
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert probefacts.listing(str(tmp_path)) == {"files": 4, "digest": ""}


def package(folder, name, files):
    """Make a package that would fail if it were imported."""
    (folder / name).mkdir()
    for file, text in {"__init__.py": "raise SystemError('imported')\n", **files}.items():
        path = folder / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(probefacts.importlib.metadata, "version", missing)
    return tmp_path


def missing(name):
    raise probefacts.importlib.metadata.PackageNotFoundError(name)


def test_versions_are_read_and_nothing_is_imported(packages):
    torch = "__version__ = '2.6.0+cu126'\ndebug = False\ncuda: Optional[str] = '12.6'\n"
    package(packages, "torch", {"version.py": torch})
    package(packages, "horovod", {"__init__.py": "raise SystemError\n__version__ = '0.28.1'\n"})
    package(packages, "torchvision", {})
    told = probefacts.versions()
    assert {name: told[name] for name in ("torch", "cuda", "horovod", "torchvision")} == {
        "torch": "2.6.0+cu126",
        "cuda": "12.6",
        "horovod": "0.28.1",
        "torchvision": "unknown",
    }


def test_a_torch_for_the_cpu_has_no_cuda(packages):
    package(packages, "torch", {"version.py": "__version__ = '2.6.0'\ncuda = None\n"})
    assert (probefacts.versions()["torch"], probefacts.versions()["cuda"]) == ("2.6.0", "")


def test_packages_that_are_not_there(packages):
    told = probefacts.versions()
    assert [told[name] for name in ("torch", "horovod", "cuda")] == ["", "", ""] or told["torch"]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (b"x ncclCommInitRank y MPI_Init_thread z _ZN4gloo3", ["torch", "NCCL", "MPI", "Gloo"]),
        (b"_ZN4gloo3", ["torch", "Gloo"]),
        (None, []),
    ],
)
def test_what_horovod_was_built_with_is_in_its_library(packages, held, expected):
    package(packages, "horovod", {"torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so": held} if held else {})
    assert probefacts.built_with() == expected


SMI = """
case "$*" in
  *compute_cap*) [ -z "$OLD" ] || { echo 'Field "compute_cap" is not a valid field to query.'; exit 2; } ;;
esac
echo '0, NVIDIA TITAN V, 12288, 535.104.05, GPU-1, 7.0'
"""


def test_gpus_are_told_by_nvidia_smi(program):
    program("nvidia-smi", SMI)
    told = probefacts.gpus()
    assert told["rows"] == [
        {
            "index": "0",
            "name": "NVIDIA TITAN V",
            "memory.total": "12288",
            "driver_version": "535.104.05",
            "uuid": "GPU-1",
            "compute_cap": "7.0",
        }
    ]
    assert (told["error"], told["asked"]) == ("", True)


def test_an_old_driver_knows_no_compute_capability(program, monkeypatch):
    monkeypatch.setenv("OLD", "1")
    program("nvidia-smi", SMI.replace(", 7.0'", "'"))
    told = probefacts.gpus()
    assert [row["name"] for row in told["rows"]] == ["NVIDIA TITAN V"]
    assert "compute_cap" not in told["rows"][0]


def test_a_driver_that_does_not_fit_is_told_in_nvidia_smi_s_own_words(program):
    program("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    told = probefacts.gpus()
    assert (told["rows"], told["error"]) == ([], "Failed to initialize NVML: Driver/library version mismatch")


def look_into(folder):
    return {row["name"]: row for row in probefacts.ssh_folder(str(folder))}


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs the ssh client's ssh-keygen")
def test_the_look_into_a_real_folder(tmp_path):
    key = ClusterKey.generate()
    tmp_path.chmod(0o750)
    (tmp_path / "id_mine").write_bytes(key.text())
    (tmp_path / "id_mine").chmod(0o644)  # ssh-keygen would not read it where it lies
    (tmp_path / "authorized_keys").write_text(
        f'# comment\n\n{key.public()} me@here\nfrom="10.0.0.0/8",no-pty ssh-rsa AAAAother you\n'
    )
    (tmp_path / "authorized_keys").chmod(0o640)
    (tmp_path / "known_hosts").write_text("[10.0.0.2]:12345 ssh-ed25519 AAAA\n")
    found = look_into(tmp_path)
    assert set(found) == {".", "id_mine", "authorized_keys", "known_hosts"}
    assert (found["."]["uid"], found["."]["mode"]) == (os.geteuid(), 0o750)
    assert (found["id_mine"]["private"], found["id_mine"]["public"]) == (True, [key.public()])
    assert found["authorized_keys"]["mode"] == 0o640
    assert found["authorized_keys"]["public"] == [key.public(), "ssh-rsa AAAAother"]
    assert (found["known_hosts"]["private"], found["known_hosts"]["public"]) == (False, [])


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs the ssh client's ssh-keygen")
def test_a_key_with_a_passphrase_gives_no_public_half(tmp_path):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "id_ed25519")], check=True
    )
    found = look_into(tmp_path)
    assert (found["id_ed25519"]["private"], found["id_ed25519"]["public"]) == (True, [])
    assert found["id_ed25519.pub"]["private"] is False


def test_a_link_to_nowhere_in_the_folder_does_not_end_the_look(tmp_path):
    (tmp_path / "authorized_keys").write_text(f"{KEY}\n")
    (tmp_path / "agent").symlink_to(tmp_path / "gone")
    found = look_into(tmp_path)
    assert found["authorized_keys"]["public"] == [KEY]


def test_key_types_are_told_apart_from_options(tmp_path):
    blob = base64.b64encode(b"x" * 40).decode()
    lines = [f"{kind} {blob} c" for kind in ("ecdsa-sha2-nistp256", "sk-ssh-ed25519@openssh.com", "ssh-dss")]
    (tmp_path / "authorized_keys").write_text("\n".join(lines))
    found = look_into(tmp_path)
    assert found["authorized_keys"]["public"] == [" ".join(line.split()[:2]) for line in lines]
