"""Fixtures of the trainer's tests."""

from __future__ import annotations

import subprocess
import sys

import pytest
from trainer_helpers import IMAGE, ROOT, Container

# `trainer` is no part of the installed package: it runs inside the image.
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def image() -> str:
    """Name the trainer's image; without it a test fails, since a skipped one would pass for a success."""
    try:
        found = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.fail("no docker command here: these tests need a Docker engine and `make images`")
    if found.returncode != 0:
        pytest.fail(f"no image {IMAGE} ({found.stderr.strip()}): run `make images` first")
    return IMAGE


@pytest.fixture
def container(image: str) -> Container:
    return Container(image)
