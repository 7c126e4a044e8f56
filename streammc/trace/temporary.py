"""Temporary folders for results without a path; what is written there need not survive a crash.

Such a folder is removed at the exit of its process, so that a power cut can lose nothing: its
files are written without fsync. A commit of 40 files takes 2 ms instead of 20 to 100.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_folders: set[Path] = set()
"""Temporary folders of this process."""


def is_temporary(path: Path) -> bool:
    """Return whether ``path`` is in a temporary folder of this process."""
    return bool(_folders) and any(parent in _folders for parent in (path, *path.parents))


def temporary_folder(prefix: str) -> Path:
    """Return a new folder that is removed at the exit of this process, but not of its forks."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _folders.add(folder)
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
