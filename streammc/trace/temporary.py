"""Temporary folders for results without a path."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def temporary_folder(prefix: str) -> Path:
    """Return a new folder that is removed at the exit of this process, but not of its forks."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
