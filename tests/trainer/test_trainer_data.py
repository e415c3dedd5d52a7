"""Data preparation: one process does it, whole files only, damage is told; no engine, no PyTorch."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from trainer import data
from trainer.data import DATASETS, DataError, load_split, main, prepare
from trainer_helpers import write_idx

MNIST = DATASETS["mnist"]
FASHION = DATASETS["fashion-mnist"]
PARTS = sorted(MNIST.checksums)


@pytest.fixture
def source(tmp_path):
    return write_idx(tmp_path / "source", packed=True)


def raw_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "MNIST" / "raw").iterdir() if not path.name.startswith("."))


def test_prepares_from_packed_files_and_loads_them(tmp_path, source):
    done = prepare(MNIST, tmp_path / "data", source, create=True)

    assert done.source == str(source)
    assert raw_files(tmp_path / "data") == PARTS
    split = load_split(MNIST, tmp_path / "data", "train")
    assert split.count == 12
    assert bytes(split.labels) == bytes(range(10)) + b"\0\1"
    assert bytes(split.pixels[3 * 784 : 4 * 784]) == b"\3" * 784
    assert load_split(MNIST, tmp_path / "data", "t10k").count == 6


def test_prepares_from_plain_files(tmp_path):
    source = write_idx(tmp_path / "plain")
    prepare(FASHION, tmp_path, source)
    assert load_split(FASHION, tmp_path, "train").count == 12


def test_second_time_touches_nothing(tmp_path, source):
    prepare(MNIST, tmp_path, source)
    before = {path: path.stat() for path in (tmp_path / "MNIST" / "raw").iterdir()}

    assert prepare(MNIST, tmp_path, Path("/nowhere")).source is None
    assert {path: path.stat() for path in (tmp_path / "MNIST" / "raw").iterdir()} == before


def test_prepared_data_may_be_packed_and_read_only(tmp_path):
    folder = write_idx(tmp_path / "MNIST" / "raw", packed=True)
    folder.chmod(0o555)
    assert prepare(MNIST, tmp_path).source is None
    assert not (folder / ".lock").exists()
    assert load_split(MNIST, tmp_path, "t10k").count == 6


def test_only_missing_files_are_written(tmp_path, source):
    prepare(MNIST, tmp_path, source)
    kept = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    inode = kept.stat().st_ino
    (tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()

    assert prepare(MNIST, tmp_path, source).source == str(source)
    assert kept.stat().st_ino == inode
    assert raw_files(tmp_path) == PARTS


def test_half_written_file_of_a_killed_process_is_no_data(tmp_path, source):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / ".train-images-idx3-ubyte.tmp").write_bytes(b"half")

    prepare(MNIST, tmp_path, source)
    assert load_split(MNIST, tmp_path, "train").count == 12
    assert not list(folder.glob(".*.tmp"))


def test_a_failure_while_writing_leaves_no_data_behind(tmp_path, source, monkeypatch):
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(DataError, match=r"cannot prepare mnist in .*: No space left on device"):
        prepare(MNIST, tmp_path, source)
    assert raw_files(tmp_path) == []


# ---------------------------------------------------------------- damage and wrong places


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "0 bytes are no IDX file", id="empty"),
        pytest.param(b"<html>not found</html>", "it starts with", id="an error page"),
        pytest.param(
            b"\0\0\x08\x03" + b"\0\0\0\x0c" + b"\0\0\0\x1c" * 2 + b"x" * 784,
            "it has 800 bytes where its header promises 9424",
            id="cut short",
        ),
        pytest.param(
            b"\0\0\x08\x03" + b"\0\0\0\x01" + b"\0\0\0\x20" * 2 + b"x" * 1024,
            "its images are 32 x 32, not 28 x 28",
            id="other images",
        ),
        pytest.param(gzip.compress(b"x" * 100)[:20], "damaged", id="cut gzip"),
    ],
)
def test_damaged_file_is_named_and_kept(tmp_path, source, content, message):
    prepare(MNIST, tmp_path, source)
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(content)

    with pytest.raises(DataError, match=message) as caught:
        prepare(MNIST, tmp_path, source)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_damaged_source_writes_nothing(tmp_path, source):
    (source / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"nonsense"))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte from .*source is damaged"):
        prepare(MNIST, tmp_path / "data", source, create=True)
    assert raw_files(tmp_path / "data") == []


def test_images_and_labels_that_are_no_pair(tmp_path, source):
    prepare(MNIST, tmp_path, source)
    other = write_idx(tmp_path / "other", train=5)
    (other / "train-labels-idx1-ubyte").replace(tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte")
    with pytest.raises(DataError, match="12 train images but 5 labels"):
        prepare(MNIST, tmp_path)


def test_label_out_of_range(tmp_path, source):
    prepare(MNIST, tmp_path, source)
    path = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x63")
    with pytest.raises(DataError, match="label is 99"):
        load_split(MNIST, tmp_path, "train")


def test_missing_data_folder(tmp_path):
    with pytest.raises(DataError, match="gone: no such folder; create it, or mount the data there"):
        prepare(MNIST, tmp_path / "gone")


def test_data_folder_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"Not a directory|File exists"):
        prepare(MNIST, tmp_path / "file" / "data", create=True)


def test_source_without_the_files(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds neither train-images-idx3-ubyte nor"):
        prepare(MNIST, tmp_path, tmp_path / "empty")


# ---------------------------------------------------------------- the package, the mirrors


def test_packaged_data_comes_before_the_mirrors(tmp_path, source):
    packaged = replace(MNIST, packaged=source, mirrors=("http://127.0.0.1:9/",))
    assert prepare(packaged, tmp_path).source == str(source)


@pytest.fixture
def mirror(source):
    """Serve the source folder on this machine, counting requests."""
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            requests.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(source)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", requests
    server.shutdown()
    server.server_close()


def mirrored(source: Path, *mirrors: str) -> data.Dataset:
    sums = {name: hashlib.md5((source / f"{name}.gz").read_bytes()).hexdigest() for name in PARTS}
    return replace(MNIST, packaged=Path("/nowhere"), mirrors=mirrors, checksums=sums)


def test_downloads_and_asks_a_dead_mirror_once(tmp_path, source, mirror):
    url, requests = mirror
    told: list[str] = []
    done = prepare(mirrored(source, "http://127.0.0.1:9/", url), tmp_path, say=told.append)

    assert done.source == "download"
    assert sorted(requests) == [f"/{name}.gz" for name in PARTS]
    assert sum("127.0.0.1:9/" in line for line in told) == 1
    assert load_split(MNIST, tmp_path, "train").count == 12


def test_wrong_checksum_is_not_used(tmp_path, source, mirror):
    url, _ = mirror
    dataset = mirrored(source, url)
    (source / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match="its checksum is wrong"):
        prepare(dataset, tmp_path)
    assert raw_files(tmp_path) == []


def test_without_a_way_out_the_message_names_the_remedy(tmp_path, source):
    dataset = mirrored(source, "http://127.0.0.1:9/", "http://127.0.0.1:10/")
    with pytest.raises(DataError, match=r"Connection refused; .*Connection refused\); .*--source FOLDER"):
        prepare(dataset, tmp_path)


def test_a_silent_mirror_is_left(tmp_path, source, monkeypatch):
    monkeypatch.setattr(data, "SILENCE_SECONDS", 0.3)
    with http.server.socketserver.TCPServer(("127.0.0.1", 0), None) as silent:
        started = time.monotonic()
        with pytest.raises(DataError, match="timed out"):
            prepare(mirrored(source, f"http://127.0.0.1:{silent.server_address[1]}/"), tmp_path)
    assert time.monotonic() - started < 5


# ---------------------------------------------------------------- several processes


def _prepare_in_process(root: Path, source: Path, results) -> None:
    results.put(prepare(MNIST, root, source).source)


def test_of_eight_processes_exactly_one_prepares(tmp_path):
    source = write_idx(tmp_path / "source", train=20_000, packed=True)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_prepare_in_process, args=(tmp_path, source, results)) for _ in range(8)]
    for process in processes:
        process.start()
    origins = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(10)

    assert origins.count(None) == 7
    assert origins.count(str(source)) == 1
    assert load_split(MNIST, tmp_path, "train").count == 20_000


def _hold_lock(root: Path, held) -> None:
    (root / "MNIST" / "raw").mkdir(parents=True)
    with data._locked(root / "MNIST" / "raw" / ".lock", print):
        held.set()
        time.sleep(60)


def test_the_lock_of_a_killed_process_is_free(tmp_path, source):
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=_hold_lock, args=(tmp_path, held))
    holder.start()
    assert held.wait(30)
    told: list[str] = []
    threading.Timer(0.3, os.kill, (holder.pid, signal.SIGKILL)).start()

    assert prepare(MNIST, tmp_path, source, say=told.append).source == str(source)
    assert told == [f"waiting for another process that prepares data in {tmp_path / 'MNIST' / 'raw'}"]
    holder.join(10)


def test_a_stuck_holder_is_told(tmp_path, source, monkeypatch):
    monkeypatch.setattr(data, "LOCK_SECONDS", 0.2)
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=_hold_lock, args=(tmp_path, held))
    holder.start()
    assert held.wait(30)
    try:
        with pytest.raises(DataError, match="is it stuck"):
            prepare(MNIST, tmp_path, source)
    finally:
        holder.kill()
        holder.join(10)


# ---------------------------------------------------------------- the command


def test_command_says_what_it_did(tmp_path, source, capsys):
    words = ["--data-dir", str(tmp_path / "made"), "--source", str(source)]
    folder = tmp_path / "made" / "MNIST" / "raw"
    assert main(words) == 0
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"mnist: 12 training and 6 test images in {folder}, prepared from {source}",
        f"mnist: 12 training and 6 test images in {folder}, already there",
    ]


def test_command_fails_with_one_line(tmp_path, capsys):
    assert main(["--data-dir", str(tmp_path), "--source", "/nowhere"]) == 1
    assert capsys.readouterr() == ("", "error: /nowhere: no such folder\n")
