"""MNIST and Fashion-MNIST on disk: prepared once per host, then read fast; standard library only.

    python -m trainer.data --dataset fashion-mnist --data-dir /data

Prepared data lies where torchvision looks for it: DATA_DIR/MNIST/raw or DATA_DIR/FashionMNIST/raw.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import hashlib
import os
import struct
import sys
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TRAIN = "train"
TEST = "t10k"
IMAGE_SIDE = 28
CLASSES = 10
IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049

DOWNLOAD_SECONDS = 900.0
"""How long all four files together may take, whatever the mirrors do."""
SILENCE_SECONDS = 20.0
"""How long a mirror may say nothing before the next one is asked."""
LOCK_SECONDS = 1200.0
"""How long to wait for another process that prepares the same data; more than a whole download."""

Say = Callable[[str], None]


class DataError(Exception):
    """Data that cannot be used or prepared; the message is for the person who started the training."""


@dataclass(frozen=True)
class Dataset:
    """Where one data set comes from and where it is kept."""

    name: str
    """What the person writes."""
    folder: str
    """The folder under the data folder, as torchvision names it."""
    mean: float
    deviation: float
    """Mean and standard deviation of the training pixels, scaled to 0..1."""
    checksums: dict[str, str]
    """File name without .gz -> MD5 of the published .gz."""
    mirrors: tuple[str, ...]
    packaged: Path
    """Where a Linux distribution's package puts the .gz files."""


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="mnist",
            folder="MNIST",
            mean=0.1307,
            deviation=0.3081,
            checksums={
                "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
            },
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            packaged=Path("/usr/share/datasets/mnist"),
        ),
        Dataset(
            name="fashion-mnist",
            folder="FashionMNIST",
            mean=0.2860,
            deviation=0.3530,
            checksums={
                "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
            },
            mirrors=(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            ),
            packaged=Path("/usr/share/datasets/fashion-mnist"),
        ),
    )
}


@dataclass(frozen=True)
class Split:
    """One half of a data set as raw bytes: `count` images of 28 x 28 unsigned bytes, and their labels."""

    count: int
    pixels: bytearray
    labels: bytearray


@dataclass(frozen=True)
class Prepared:
    """What `prepare` did: where the files are, and where they came from (None: they were there already)."""

    folder: Path
    source: str | None


# ---------------------------------------------------------------- the IDX format


def _header_size(magic: int) -> int:
    return 16 if magic == IMAGES_MAGIC else 8


def _expected_magic(name: str) -> int:
    return IMAGES_MAGIC if "images" in name else LABELS_MAGIC


def check_header(name: str, header: bytes, size: int) -> int:
    """Return how many items an IDX file holds, or raise DataError when header and size disagree."""
    magic = _expected_magic(name)
    start = _header_size(magic)
    if len(header) < start:
        raise DataError(f"{size} bytes are no IDX file")
    found: int
    count: int
    found, count = struct.unpack_from(">II", header)
    if found != magic:
        raise DataError(f"it starts with {found} where an IDX file of this kind starts with {magic}")
    item = 1
    if magic == IMAGES_MAGIC:
        rows, columns = struct.unpack_from(">II", header, 8)
        if (rows, columns) != (IMAGE_SIDE, IMAGE_SIDE):
            raise DataError(f"its images are {rows} x {columns}, not {IMAGE_SIDE} x {IMAGE_SIDE}")
        item = rows * columns
    if count == 0:
        raise DataError("it is empty")
    if size != start + count * item:
        raise DataError(f"it has {size} bytes where its header promises {start + count * item}")
    return count


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def read_idx(path: Path) -> bytearray:
    """Read one IDX file, plain or gzip, whole."""
    try:
        data = bytearray(path.read_bytes())
        if data[:2] == b"\x1f\x8b":
            data = bytearray(gzip.decompress(data))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {_reason(error)}") from error
    return data


def find_part(folder: Path, name: str) -> Path | None:
    """Find one of the four files in a folder, plain before .gz."""
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def count_items(path: Path, name: str) -> int:
    """Return how many items a file on disk holds, from its first bytes and its length: quick."""
    try:
        if _is_gzip(path):
            with path.open("rb") as raw:
                raw.seek(-4, os.SEEK_END)
                # A gzip file ends with the length of what it holds.
                size = struct.unpack("<I", raw.read(4))[0]
            with gzip.open(path, "rb") as file:
                header = file.read(16)
        else:
            size = path.stat().st_size
            with path.open("rb") as plain:
                header = plain.read(16)
        return check_header(name, header, size)
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {_reason(error)}") from error


def missing_parts(dataset: Dataset, folder: Path) -> list[str]:
    """Name the files a folder lacks; raise DataError when those it has are damaged or no pair."""
    counts: dict[str, int] = {}
    missing: list[str] = []
    for name in dataset.checksums:
        path = find_part(folder, name)
        if path is None:
            missing.append(name)
        else:
            counts[name] = count_items(path, name)
    for split in (TRAIN, TEST):
        images = counts.get(f"{split}-images-idx3-ubyte")
        labels = counts.get(f"{split}-labels-idx1-ubyte")
        if images is not None and labels is not None and images != labels:
            raise DataError(f"{folder} holds {images} {split} images but {labels} labels for them")
    return missing


def load_split(dataset: Dataset, data_dir: Path, split: str) -> Split:
    """Read one split of prepared data."""
    folder = data_dir / dataset.folder / "raw"
    parts: dict[str, bytearray] = {}
    for name in (f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"):
        path = find_part(folder, name)
        if path is None:
            raise DataError(f"{folder / name} is missing")
        data = read_idx(path)
        try:
            check_header(name, bytes(data[:16]), len(data))
        except DataError as error:
            raise DataError(f"{path} is damaged: {error}") from error
        parts[name] = data[_header_size(_expected_magic(name)) :]
    pixels, labels = parts.values()
    if len(pixels) != len(labels) * IMAGE_SIDE**2:
        raise DataError(f"{folder} holds another number of {split} images than of labels")
    if max(labels) >= CLASSES:
        raise DataError(f"{folder}: a {split} label is {max(labels)}, and the classes are 0 to {CLASSES - 1}")
    return Split(count=len(labels), pixels=pixels, labels=labels)


# ---------------------------------------------------------------- where the files come from


def _reason(error: BaseException) -> str:
    """Say an error's cause without Python's decoration."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    return str(error) or type(error).__name__


def _from_folder(folder: Path, names: list[str]) -> dict[str, bytearray]:
    parts: dict[str, bytearray] = {}
    for name in names:
        path = find_part(folder, name)
        if path is None:
            raise DataError(f"{folder} holds neither {name} nor {name}.gz")
        parts[name] = read_idx(path)
    return parts


def _download(url: str, deadline: float, say: Say) -> bytes:
    """Fetch one file, telling how it goes every few seconds."""
    chunks: list[bytes] = []
    got, told = 0, time.monotonic()
    with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as reply:
        total = int(reply.headers.get("Content-Length") or 0)
        while chunk := reply.read(1 << 18):
            chunks.append(chunk)
            got += len(chunk)
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"not done after {DOWNLOAD_SECONDS:.0f} s")
            if now - told > 3:
                told = now
                share = f" ({100 * got // total}%)" if total else ""
                say(f"  {url.rsplit('/', 1)[1]}: {got / 1e6:.1f} MB{share}")
    if total and got != total:
        raise OSError(f"the connection ended after {got} of {total} bytes")
    return b"".join(chunks)


def _from_mirrors(dataset: Dataset, names: list[str], deadline: float, say: Say) -> dict[str, bytearray]:
    """Download each file from the first mirror that has it whole."""
    parts: dict[str, bytearray] = {}
    # A mirror that failed once is not asked for the other files: with no way out, the wait would add up.
    mirrors = list(dataset.mirrors)
    failures: list[str] = []
    for name in names:
        while name not in parts:
            if not mirrors:
                raise DataError(
                    f"cannot download {name}.gz ({'; '.join(failures)}); without internet use "
                    f"`python -m trainer.data --dataset {dataset.name} --source FOLDER`"
                )
            url = f"{mirrors[0]}{name}.gz"
            try:
                say(f"  downloading {url}")
                packed = _download(url, deadline, say)
                if hashlib.md5(packed, usedforsecurity=False).hexdigest() != dataset.checksums[name]:
                    raise OSError("its checksum is wrong")
                parts[name] = bytearray(gzip.decompress(packed))
            # ValueError: urllib's for an address that cannot be one.
            except (OSError, EOFError, ValueError, zlib.error) as error:
                failures.append(f"{url}: {_reason(error)}")
                mirrors.pop(0)
    return parts


def _fetch(dataset: Dataset, names: list[str], source: Path | None, say: Say) -> tuple[str, dict[str, bytearray]]:
    """Get the missing files from the folder given, else the distribution's package, else the mirrors."""
    if source is not None:
        if not source.is_dir():
            raise DataError(f"{source}: no such folder")
        return str(source), _from_folder(source, names)
    if dataset.packaged.is_dir():
        return str(dataset.packaged), _from_folder(dataset.packaged, names)
    say(f"downloading {dataset.name}, which is not on this host")
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    return "download", _from_mirrors(dataset, names, deadline, say)


# ---------------------------------------------------------------- preparing


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """Hold a lock file, which the kernel releases also when its holder is killed."""
    with path.open("a") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DataError(f"another process has held {path} for {LOCK_SECONDS:.0f} s; is it stuck?") from None
                if not told:
                    told = True
                    say(f"waiting for another process that prepares data in {path.parent}")
                time.sleep(0.05)
        yield


def _write(path: Path, data: bytearray) -> None:
    """Put a file in place in one step: a reader sees all of it or nothing."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        # Without it a power cut may leave the new name on an empty file.
        os.fsync(file.fileno())
    temporary.replace(path)


def prepare(
    dataset: Dataset,
    data_dir: Path,
    source: Path | None = None,
    *,
    create: bool = False,
    say: Say = lambda line: None,
) -> Prepared:
    """Make sure that a data set lies ready in a folder; of several processes exactly one does the work.

    Files that are there are never overwritten: damaged ones are reported. `create` makes the data folder too.
    """
    folder = data_dir / dataset.folder / "raw"
    if not data_dir.is_dir() and not create:
        raise DataError(f"{data_dir}: no such folder; create it, or mount the data there")
    # Without the lock first: prepared data may be mounted read-only.
    if folder.is_dir() and not missing_parts(dataset, folder):
        return Prepared(folder, None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".lock", say):
            names = missing_parts(dataset, folder)
            if not names:
                return Prepared(folder, None)
            origin, parts = _fetch(dataset, names, source, say)
            for name, data in parts.items():
                try:
                    check_header(name, bytes(data[:16]), len(data))
                except DataError as error:
                    raise DataError(f"{name} from {origin} is damaged: {error}") from error
            for name, data in parts.items():
                _write(folder / name, data)
            # Files from two sources may not fit each other.
            missing_parts(dataset, folder)
            return Prepared(folder, origin)
    except OSError as error:
        raise DataError(f"cannot prepare {dataset.name} in {folder}: {_reason(error)}") from error


def main(arguments: list[str] | None = None) -> int:
    """Prepare one data set and say where it is."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.data", description="Prepare the training data once on this host."
    )
    parser.add_argument("--dataset", choices=sorted(DATASETS), default="mnist", help="which data (default: mnist)")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        help="where to keep it; made when missing (default: data)",
    )
    parser.add_argument(
        "--source",
        type=Path,
        help="a folder that holds the four IDX files, plain or .gz (default: find or download)",
    )
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    dataset = DATASETS[options.dataset]
    try:
        done = prepare(dataset, options.data_dir, options.source, create=True, say=say)
        train = count_items(find_part(done.folder, f"{TRAIN}-labels-idx1-ubyte") or done.folder, "labels")
        test = count_items(find_part(done.folder, f"{TEST}-labels-idx1-ubyte") or done.folder, "labels")
    except DataError as error:
        say(f"error: {error}")
        return 1
    origin = f"prepared from {done.source}" if done.source else "already there"
    print(f"{dataset.name}: {train} training and {test} test images in {done.folder}, {origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
