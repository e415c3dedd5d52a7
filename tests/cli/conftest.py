"""What the command line's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from workdesk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
