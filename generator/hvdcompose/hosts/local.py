"""Files on the client that hvdcompose writes for the user."""

from __future__ import annotations

from pathlib import Path

from hvdcompose.errors import HvdError


def write_page(path: Path, text: str, mark: str, *, replace: bool) -> bool:
    """Write a page whole or not at all; return False where the file is there and holds no `mark` of an older one.

    replace: write in any case. Raises HvdError where it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        if path.exists() and not replace and mark not in path.read_text(encoding="utf-8", errors="replace"):
            return False
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        raise HvdError(f"cannot write {path}: {error.strerror}") from None
    return True
