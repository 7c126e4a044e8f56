"""Runs at addresses of object stores: the local folder of each, and the copies of its commits.

A run at an address is read and written in a local folder, by the same code as any run directory.
What fetches the run into the folder and copies commits back is made by
:func:`streammc.registry.run_at_address`; this module knows only its interface.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from streammc.errors import BusyError, ConfigError, StreammcError
from streammc.registry import run_at_address
from streammc.trace.addresses import given_path, is_address, name_folder
from streammc.trace.commit import ROOT, checkpoint_path
from streammc.trace.disk import read_file
from streammc.trace.lock import FILE, FOLDER
from streammc.trace.run_state import RunState

_LARGEST: Final = 2**40
_TEMPORARY: Final = (".partial", ".tmp")

Stamps = dict[str, tuple[int, int, int]]
"""Name of a file in the run -> size in bytes, time of change in ns and inode."""


@dataclass(frozen=True)
class Changes:
    """Contents of the files that a commit has changed, by their names in the run directory."""

    generation: int
    """Number of the commit."""
    state: dict[str, bytes]
    """Root document and checkpoints: all of them, since every commit replaces them."""
    others: dict[str, bytes]
    """New or changed files of any other kind; they stay for all later commits."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(map(len, (*self.state.values(), *self.others.values())))


def changes(folder: Path, state: RunState, known: Stamps) -> Changes | None:
    """Return the files of a run that differ from the stamps ``known``, and renew these.

    ``None`` if nothing has changed. Nobody else writes to ``folder``, whose last commit has the
    state ``state``.
    """
    of_state = [ROOT]
    of_state += [checkpoint_path(Path(), mark.generation).as_posix() for mark in state.marks]
    fresh: Stamps = {}
    for name, stamp in _files(folder):
        checkpoint = name.startswith(f"{FOLDER}/") and name.endswith(".npz")
        old_checkpoint = checkpoint and name not in of_state  # about to be deleted
        if known.get(name) != stamp and not old_checkpoint:
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


class Place(Protocol):
    """A run at an address, and the local folder in which this process reads and writes it."""

    address: str
    known: Stamps
    """Stamps of the files of the folder that the address has, or is about to get."""

    @property
    def durable(self) -> int:
        """Generation of the last commit that the address is known to have."""

    def holds(self, folder: Path) -> bool:
        """Return whether a folder has the commit that the next one can follow.

        False after a newer fetch into another folder, or if a commit could not be copied.
        """

    def refresh(self) -> Path:
        """Return the folder with the newest commit at the address; absent without a run."""

    def require_writable(self) -> None:
        """Raise a StreammcError if a run cannot be started or continued at the address."""

    def begin(self) -> None:
        """Begin to copy commits in the background."""

    def send(self, changed: Changes) -> None:
        """Copy a commit to the address: in the background after :meth:`begin`, else at once."""

    def flush(self) -> None:
        """Wait until the address has every commit that was sent."""

    def end(self) -> None:
        """Wait as :meth:`flush` does, and end the copying."""

    def clear(self) -> None:
        """Let the next commit start a run without the objects of the present one."""


_places: dict[str, Place] = {}
"""Address -> run that this process has used."""
_folders: dict[Path, Place] = {}
"""Local folder -> run that it holds; folders of earlier commits are kept for their readers."""


def run_folder(path: str | os.PathLike[str]) -> Path:
    """Return the local folder of a run: ``path``, or one with the newest commit at an address."""
    if not is_address(path):
        return given_path(path)
    text = os.fspath(path)
    if (place := _places.get(text)) is None:
        made = run_at_address(text)
        if isinstance(made, Path):  # the address is file://
            return made
        place = _places.setdefault(made.address, made)
        _places[text] = place
    folder = place.refresh()
    _folders[folder] = place
    name_folder(folder, place.address)
    return folder


def place_of(folder: Path) -> Place | None:
    """Return the run at an address that a local folder holds; ``None`` for any other folder."""
    return _folders.get(folder) if _folders else None


def require_writable(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse an address at which a run cannot be written; a local folder is not checked."""
    if (place := place_of(folder)) is None:
        return
    if overwrite:
        raise ConfigError(
            f"expected no --overwrite for {place.address!r}, found it: choose another address, or "
            "delete the objects there"
        )
    place.require_writable()


@contextmanager
def copying(folder: Path, state: Callable[[], RunState]) -> Iterator[None]:
    """Copy the commits in ``folder`` to its address, if it has one, while the block runs.

    At the end the address has every commit. If the block failed, its error is raised, not that
    of the last copy.

    ``state`` is called at the end, and returns that of the last commit.
    """
    if (place := place_of(folder)) is None:
        yield
        return
    if not place.holds(folder):
        raise BusyError(
            f"expected the newest commit of {place.address!r} to continue, found an earlier one "
            "that was opened before another: open the run again"
        )
    place.begin()
    try:
        yield
    except BaseException:
        with suppress(StreammcError):
            place.end()
        raise
    try:
        last = None
        with suppress(StreammcError):  # a run that was discarded has none
            last = state()
        if last is not None:
            committed(folder, last)
    finally:
        place.end()


def committed(folder: Path, state: RunState) -> None:
    """Copy what has changed in the folder of a run since its last copy, after a commit."""
    if (place := place_of(folder)) is not None:
        changed = changes(folder, state, place.known)
        if changed:
            place.send(changed)


def can_continue(folder: Path) -> bool:
    """Return whether commits in a folder can follow: always in one without an address."""
    place = place_of(folder)
    return place is None or place.holds(folder)


def durable_generation(folder: Path, generation: int) -> int:
    """Return the last generation that cannot be lost: ``generation`` for a local folder."""
    place = place_of(folder)
    return generation if place is None else place.durable


def flush(folder: Path) -> None:
    """Wait until the address of a folder, if it has one, has all its commits."""
    if (place := place_of(folder)) is not None:
        place.flush()


def discarded(folder: Path) -> None:
    """Forget the objects of a discarded run; its address keeps it until the next commit."""
    if (place := place_of(folder)) is not None:
        place.clear()
