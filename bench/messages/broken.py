"""Copies of stores, runs and results with one thing wrong each."""

from __future__ import annotations

import shutil
from pathlib import Path


def break_copies() -> None:
    """Make the damaged copies in the current folder."""


def change_byte(path: Path) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def copy(source: str, target: str) -> Path:
    """Copy a directory, and return the copy."""
    shutil.copytree(source, target)
    return Path(target)
