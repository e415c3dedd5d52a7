"""The code folder: what is sent of it, and when it counts as changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdcompose.errors import USAGE, UsageError
from hvdcompose.hosts import code as module
from hvdcompose.hosts.code import Code, missing_script, read_code
from hvdcompose.hosts.images import build_digest
from hvdcompose.hosts.tars import Entry, files_of
from hvdcompose.stack.plan import CODE_TARGET


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    (root / "layers").mkdir(parents=True)
    (root / "train.py").write_text("print(1)\n")
    (root / "layers" / "conv.py").write_text("x = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    return root


def paths(folder: Path) -> list[str]:
    return [entry.path for entry in read_code(folder).entries]


ALL = [
    "/hvd/code/model",
    "/hvd/code/model/layers",
    "/hvd/code/model/layers/conv.py",
    "/hvd/code/model/run.sh",
    "/hvd/code/model/train.py",
]


def test_what_is_sent(folder):
    code = read_code(folder)
    assert (code.name, [entry.path for entry in code.entries]) == ("model", ALL)
    assert {entry.path.rpartition("/")[2]: entry.mode for entry in code.entries} == {
        "model": 0o755,
        "layers": 0o755,
        "conv.py": 0o644,
        "run.sh": 0o755,
        "train.py": 0o644,
    }
    assert files_of(code.tar())["hvd/code/model/train.py"] == b"print(1)\n"


def test_the_folder_s_own_name_is_found_behind_a_dot(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert read_code(Path()).name == "model"
    monkeypatch.chdir(folder / "layers")
    assert read_code(Path("..")).name == "model"


def write(name: str, text: str):
    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


CHANGES = [
    pytest.param(write("train.py", "print(2)\n"), id="content"),
    pytest.param(write("new.py", ""), id="a new empty file"),
    pytest.param(lambda folder: (folder / "train.py").rename(folder / "main.py"), id="name"),
    pytest.param(lambda folder: (folder / "train.py").chmod(0o755), id="executable"),
    pytest.param(lambda folder: (folder / "train.py").unlink(), id="a file less"),
    pytest.param(lambda folder: (folder / "empty").mkdir(), id="an empty folder"),
    pytest.param(lambda folder: (folder / "layers").rename(folder / "blocks"), id="name of a folder"),
    pytest.param(lambda folder: (folder / "train.py").rename(folder / "layers" / "train.py"), id="moved"),
    pytest.param(write(".env", "A=1\n"), id="a hidden file"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_makes_another_version(folder, change):
    before = read_code(folder).digest
    change(folder)
    assert read_code(folder).digest != before


SAME = [
    pytest.param(lambda folder: os.utime(folder / "train.py", (1, 1)), id="time"),
    pytest.param(lambda folder: (folder / "train.py").chmod(0o600), id="other rights"),
    pytest.param(write("train.py", "print(1)\n"), id="written again"),
    pytest.param(write("__pycache__/train.cpython-311.pyc", "x"), id="byte code folder"),
    pytest.param(write("layers/conv.pyc", "x"), id="byte code"),
    pytest.param(write(".git/HEAD", "x"), id="version control"),
    pytest.param(write("layers/.venv/bin/python", "x"), id="environment below"),
    pytest.param(write("train.py~", "x"), id="an editor's copy"),
    pytest.param(write(".train.py.swp", "x"), id="an editor's swap file"),
    pytest.param(lambda folder: (folder / "nowhere").symlink_to("gone"), id="a broken link"),
    pytest.param(lambda folder: (folder / "loop").symlink_to("loop"), id="a link to itself"),
    pytest.param(lambda folder: os.mkfifo(folder / "pipe"), id="a pipe"),
]


@pytest.mark.parametrize("change", SAME)
def test_what_is_the_same_version(folder, change):
    before = read_code(folder)
    change(folder)
    after = read_code(folder)
    assert after.digest == before.digest
    assert after.tar() == before.tar()


def test_the_digest_is_short_hex(folder):
    assert len(read_code(folder).digest) == 12 and set(read_code(folder).digest) <= set("0123456789abcdef")


def test_the_digest_does_not_depend_on_where_the_folder_is(folder, tmp_path):
    before = read_code(folder).digest
    (tmp_path / "elsewhere").mkdir()
    folder.rename(tmp_path / "elsewhere" / "model")
    assert read_code(tmp_path / "elsewhere" / "model").digest == before


def test_links_are_followed(folder, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "common.py").write_text("y = 2\n")
    (folder / "common.py").symlink_to(tmp_path / "shared" / "common.py")
    (folder / "shared").symlink_to(tmp_path / "shared")
    found = files_of(read_code(folder).tar())
    assert found["hvd/code/model/common.py"] == found["hvd/code/model/shared/common.py"] == b"y = 2\n"


def test_a_link_up_the_tree_ends(folder):
    (folder / "layers" / "up").symlink_to(folder)
    (folder / "layers" / "here").symlink_to(".")
    (folder / "above").symlink_to(folder.parent)
    assert paths(folder) == ALL


def test_links_between_two_folders_end(folder):
    (folder / "blocks").mkdir()
    (folder / "blocks" / "b.py").write_text("b\n")
    (folder / "blocks" / "to-layers").symlink_to(folder / "layers")
    (folder / "layers" / "to-blocks").symlink_to(folder / "blocks")
    assert paths(folder) == [
        "/hvd/code/model",
        "/hvd/code/model/blocks",
        "/hvd/code/model/blocks/b.py",
        "/hvd/code/model/blocks/to-layers",
        "/hvd/code/model/blocks/to-layers/conv.py",
        "/hvd/code/model/layers",
        "/hvd/code/model/layers/conv.py",
        "/hvd/code/model/layers/to-blocks",
        "/hvd/code/model/layers/to-blocks/b.py",
        "/hvd/code/model/run.sh",
        "/hvd/code/model/train.py",
    ]


def test_names_that_are_not_utf_8(folder):
    before = read_code(folder).digest
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    code = read_code(folder)
    assert code.digest != before
    assert f"hvd/code/model/{os.fsdecode(bytes([99, 97, 102, 0xE9]))}.txt" in files_of(code.tar())


def test_data_in_the_folder_is_refused(folder, monkeypatch):
    monkeypatch.setattr(module, "LIMIT_BYTES", 3 * 2**20)
    (folder / "a.bin").write_bytes(bytes(2 * 2**20))
    assert len(read_code(folder).entries) == 6
    (folder / "b.bin").write_bytes(bytes(2 * 2**20))
    with pytest.raises(UsageError) as caught:
        read_code(folder)
    assert caught.value.message == (
        f"train.code: {folder} holds more than 3 MB, the limit was passed at {folder / 'b.bin'}"
    )
    assert caught.value.hint == (
        "data goes on the hosts and into `train.volumes`, not into a folder that is sent or built from"
    )
    assert caught.value.exit_code == USAGE


def test_a_file_that_cannot_be_read_is_told(folder):
    """/proc/self/mem opens and cannot be read, also by root."""
    (folder / "mem").symlink_to("/proc/self/mem")
    with pytest.raises(UsageError) as caught:
        read_code(folder)
    assert caught.value.message == f"train.code: cannot read {folder / 'mem'}: Input/output error"


def test_a_folder_that_is_gone_is_told(tmp_path):
    with pytest.raises(UsageError) as caught:
        read_code(tmp_path / "gone")
    assert caught.value.message == f"train.code: cannot read {tmp_path / 'gone'}: No such file or directory"


def test_a_build_folder_is_told_by_its_own_key(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"^image\.build: cannot read .*: No such file or directory$"):
        build_digest(tmp_path / "gone", {})
    (tmp_path / "data.bin").write_bytes(bytes(2 * 2**20))
    monkeypatch.setattr(module, "LIMIT_BYTES", 2**20)
    with pytest.raises(UsageError, match=r"^image\.build: .* holds more than 1 MB") as caught:
        build_digest(tmp_path, {})
    assert "train.volumes" in (caught.value.hint or "") and ".dockerignore" in (caught.value.hint or "")


IN_THE_BUILD = [
    # a file, .dockerignore, whether the image may hold the file
    ("node_modules/m.js", "", True),
    (".venv/lib/m.py", "", True),
    (".cache/model.bin", "", True),
    (".git/index", "", False),
    ("layers/__pycache__/m.py", "", False),
    ("m.pyc", "", False),
    (".venv/lib/m.py", ".venv", False),
    (".venv/lib/m.py", "/.venv/\n", False),
    ("layers/.venv/m.py", ".venv", True),
    ("layers/.venv/m.py", "**/.venv", False),
    ("notes.md", "# comment\n\n*.md\n", False),
    ("layers/notes.md", "*.md", True),
    ("layers/notes.md", "**/*.md", False),
    ("data/a/b.bin", "data/**", False),
    ("data/x.py", "*\n!data/*.py", True),
    ("data/x.bin", "*\n!data/*.py", False),
    ("a1.txt", "a?.txt", False),
    ("Dockerfile", "*", True),
]


@pytest.mark.parametrize(("name", "ignore", "counts"), IN_THE_BUILD)
def test_a_build_is_made_of_what_docker_sends(name, ignore, counts, folder):
    (folder / ".dockerignore").write_text(ignore)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("1")
    before = build_digest(folder, {})
    path.write_text("2")
    assert (build_digest(folder, {}) != before) is counts


def test_the_build_digest_changes_with_the_folder_and_the_arguments(folder):
    one = build_digest(folder, {"A": "1"})
    assert one == build_digest(folder, {"A": "1"})
    assert len({one, build_digest(folder, {"A": "2"}), build_digest(folder, {"B": "1"}), build_digest(folder, {})}) == 4
    assert build_digest(folder, {"A": "1", "B": "2"}) == build_digest(folder, {"B": "2", "A": "1"})
    (folder / "Dockerfile").write_text("FROM scratch\n")
    assert build_digest(folder, {"A": "1"}) != one


CODE = Code("job", (Entry("/hvd/code/job", None, 0o755), Entry("/hvd/code/job/train.py", b"", 0o644)))
SCRIPTS = [
    (("python", "job/train.py", "--lr", "1"), None),
    (("python3.12", "-u", "-X", "dev", "./job/train.py"), None),
    (("python", "/data/x.py"), None),
    (("python", "-m", "job.train"), None),
    (("python", "-c", "x.py"), None),
    (("python", "job"), None),
    (("python",), None),
    (("sh", "-c", "python train.py"), None),
    (("./train.py",), None),
    (("python", "job/extra/a.py"), None),
    (("python", "train.py"), "write job/train.py"),
    (("/opt/bin/python", "-u", "train.py"), "write job/train.py"),
    (("python", "job/trian.py"), "name a file of that folder: job/..."),
    (("python", "../job/train.py"), None),  # the image's own /hvd/job, if anything
    (("python", "job/mounted.py"), None),
]


@pytest.mark.parametrize(("command", "remedy"), SCRIPTS, ids=lambda value: str(value))
def test_a_script_that_would_not_be_there(command, remedy):
    wrong = missing_script(CODE, command, ["/data", "/hvd/code/job/extra", "/hvd/code/job/mounted.py"])
    assert (wrong and wrong[1]) == remedy
    if wrong:
        assert f"in {CODE_TARGET}, the code is /hvd/code/job" in wrong[0]
