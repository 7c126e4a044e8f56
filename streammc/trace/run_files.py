"""The files of a run directory, as a copy elsewhere needs them: those that a commit has changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streammc.trace.commit import ROOT, checkpoint_path
from streammc.trace.durable import read_file
from streammc.trace.lock import FILE, FOLDER
from streammc.trace.state import RunState

_LARGEST: Final = 2**40
_TEMPORARY: Final = (".partial", ".tmp")

Stamps = dict[str, tuple[int, int, int]]
"""Name of a file in the run -> size in bytes, time of change in ns and inode."""


@dataclass(frozen=True)
class Changes:
    """Contents of the files that a commit has changed, by their names in the run directory."""

    generation: int
    state: dict[str, bytes]
    """Root document and checkpoints: all of them, since every commit replaces them."""
    others: dict[str, bytes]
    """New or changed files of any other kind; they stay for all later commits."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(map(len, (*self.state.values(), *self.others.values())))


def changes(folder: Path, state: RunState, known: Stamps) -> Changes | None:
    """Return the files of a run that differ from their stamps, and renew the stamps.

    Parameters
    ----------
    folder
        The run directory; nobody else writes to it.
    state
        State of its last commit.
    known
        Stamps of the files that the copy has.

    Returns
    -------
    Changes or None
        ``None`` if nothing has changed.
    """
    of_state = [ROOT]
    of_state += [checkpoint_path(Path(), mark.generation).as_posix() for mark in state.marks]
    fresh: Stamps = {}
    for name, stamp in _files(folder):
        left = name.startswith(f"{FOLDER}/") and name.endswith(".npz") and name not in of_state
        if known.get(name) != stamp and not left:  # an old checkpoint, about to be deleted
            fresh[name] = stamp
    if not fresh:
        return None
    contents = {name: read_file(folder / name, limit=_LARGEST) for name in {*fresh, *of_state}}
    known.update(fresh)
    return Changes(
        state.generation,
        {name: contents[name] for name in of_state},
        {name: contents[name] for name in sorted(fresh) if name not in of_state},
    )


def stamps(folder: Path) -> Stamps:
    """Return the stamps of all files of a run."""
    return dict(_files(folder))


def _files(folder: Path, prefix: str = "") -> list[tuple[str, tuple[int, int, int]]]:
    """Return names and stamps of the files below a folder, without lock and temporary files."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                found += _files(Path(entry.path), f"{name}/")
            elif name != f"{FOLDER}/{FILE}" and not name.endswith(_TEMPORARY):
                info = entry.stat(follow_symlinks=False)
                found.append((name, (info.st_size, info.st_mtime_ns, info.st_ino)))
    return found
