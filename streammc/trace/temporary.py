"""Folders of results that were given no path."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def temporary_folder(prefix: str) -> Path:
    """Return a new folder; it is removed when this process ends, but not by a fork of it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
