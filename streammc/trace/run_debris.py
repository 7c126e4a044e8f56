"""What a killed writer left inside the directory of a run, beyond its last commit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from streammc.errors import StreammcError
from streammc.owner_mark import MARK
from streammc.trace.commit import ROOT
from streammc.trace.contents import draw_axis
from streammc.trace.debris import Debris, size_of
from streammc.trace.lock import FILE, FOLDER, try_lock
from streammc.trace.run_view import read_root
from streammc.trace.state import RunState

_OWN: Final = re.compile(
    rf"zarr\.json|c(\.\d+)*|lock|\d+\.npz|\d+\.partial|config\.json|{re.escape(MARK)}.*"
)
"""Names of the files of a run."""
_STAGED: Final = re.compile(r"\d+\.partial")
_CHECKPOINT: Final = re.compile(r"(\d+)\.npz")


@contextmanager
def run_debris(path: Path) -> Iterator[list[Debris]]:
    """Find the files that no commit of the run at ``path`` has; it stays locked in the block.

    A run that was killed before its first commit is debris as a whole, if every file in it has a
    name of a run. A folder without the lock file of a run has no debris.
    """
    where = path / FOLDER / FILE
    try:
        descriptor = os.open(where, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield []
        return
    try:
        begun = os.path.lexists(path / ROOT)
        if not try_lock(descriptor):
            kept = "another process has locked it"
            yield [] if begun else [Debris(path, "unfinished run", size_of(path), kept)]
        elif begun:
            yield [Debris(each, "unfinished commit", size_of(each), None) for each in _beyond(path)]
        elif all(_OWN.fullmatch(name) for _, _, files in os.walk(path) for name in files):
            yield [Debris(path, "unfinished run", size_of(path), None)]
        else:
            yield []
    finally:
        os.close(descriptor)


def _beyond(path: Path) -> list[Path]:
    """Return the files of a run that its root document does not count."""
    try:
        state, _ = read_root(path)
    except StreammcError:
        return []
    kept = {mark.generation for mark in state.marks}
    found = []
    for name in _names(path / FOLDER):
        saved = _CHECKPOINT.fullmatch(name)
        if _STAGED.fullmatch(name) or (saved and int(saved[1]) not in kept):
            found.append(path / FOLDER / name)
    return found + _chunks_beyond(path, state)


def _chunks_beyond(path: Path, state: RunState) -> list[Path]:
    """Return the chunks of intervals that are not committed."""
    found = []
    for key, spec in state.growing().items():
        axis, dims = draw_axis(spec), len(spec.shape)
        whole = -(-spec.shape[axis] // spec.chunk[axis])
        for name in _names(path / key):
            index = name.split(".")[1:]
            chunk = name.startswith("c.") and all(each.isdecimal() for each in index)
            if chunk and len(index) == dims and int(index[axis]) >= whole:
                found.append(path / key / name)
    return found


def _names(folder: Path) -> list[str]:
    """Return the names of the regular files of a folder; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(each.name for each in entries if each.is_file(follow_symlinks=False))
    return []
