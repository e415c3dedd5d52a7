"""The scripts under templates/hvd are no part of the package: they run inside the user's image."""

from __future__ import annotations

import sys

from hvdcompose.stack.render import templates

sys.path.insert(0, str(templates() / "hvd"))
