"""The wheel and the source archive hold what an installed hvdcompose needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAIN = "from hvdcompose.cli.main import main; main()"


def build(source: Path, folder: Path, kind: str) -> Path:
    """Build a wheel or an sdist of a source tree with the project's own build backend; return the file."""
    code = f"import hatchling.build, sys; print(hatchling.build.build_{kind}(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=source, check=True, capture_output=True, timeout=120)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def test_an_installed_wheel_renders_the_shipped_cluster(wheel: Path, tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "work"
    folder.mkdir()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    (folder / "cluster.yaml").write_text((ROOT / "cluster.yaml").read_text())
    (folder / "trainer").mkdir()
    env = {**os.environ, "PYTHONPATH": str(site)}
    where = subprocess.run(
        [sys.executable, "-c", "import hvdcompose; print(hvdcompose.__file__)"], env=env, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(site))
    subprocess.run([sys.executable, "-c", MAIN, "render"], cwd=folder, env=env, check=True, capture_output=True)
    for host in ("lab1", "lab4"):
        rendered = (folder / "compose" / host / "compose.yaml").read_text()
        assert rendered == (ROOT / "compose" / host / "compose.yaml").read_text()


def test_the_wheel_holds_templates_and_the_lab_and_declares_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "hvdcompose = hvdcompose.cli.main:main" in archive.read(points).decode()
    for path in [*(ROOT / "templates").rglob("*"), *(ROOT / "generator" / "hvdcompose" / "lab" / "image").rglob("*")]:
        if path.is_file() and "__pycache__" not in path.parts:
            inside = path.relative_to(ROOT / "generator" if "generator" in path.parts else ROOT).as_posix()
            assert (inside if inside.startswith("hvdcompose") else f"hvdcompose/{inside}") in names


def test_a_wheel_built_from_the_source_archive_is_the_same(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "sdist").mkdir()
    (tmp_path / "again").mkdir()
    with tarfile.open(build(ROOT, tmp_path / "sdist", "sdist")) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
        assert {"Makefile", "CONTRIBUTING.md", ".ci/run", "tools/engine.py", "benchmarks/apply.py"} <= inside
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(build(source, tmp_path / "again", "wheel")) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())
