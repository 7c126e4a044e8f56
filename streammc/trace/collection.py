"""Removal of what killed processes left below a folder: ``streammc gc``.

Receipts that killed commands left: begun, without a result, and without an output.

``NAME.config.json`` is one of streammc if it has what a command wrote before its work: what was
asked, no result, and the process that began it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from streammc.errors import MissingError, StoreError, StreammcError
from streammc.trace.commit import ROOT
from streammc.trace.debris import RECEIPT, Debris, judged, size_of
from streammc.trace.disk import folder_lock, read_file, try_lock
from streammc.trace.kinds import STORE_MANIFEST
from streammc.trace.lock import FILE, FOLDER
from streammc.trace.run_directory import read_root
from streammc.trace.run_state import RunState
from streammc.unfinished import MARK, Owner, remove, state_of

_KEYS: Final = {"asked", "result", "owner"}
_LIMIT: Final = 1 << 24


@contextmanager
def judged_receipt(path: Path) -> Iterator[Debris | None]:
    """Judge a file by its name and content; its folder is locked in the block.

    Yields ``None`` for a file that no command of streammc left, as far as can be proved.
    """
    with folder_lock(path.parent):  # a command that begins again writes the receipt first
        yield _judged(path)


def _judged(path: Path) -> Debris | None:
    output = path.with_name(path.name.removesuffix(RECEIPT))
    try:
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or os.path.lexists(output):
            return None
        found = json.loads(read_file(path, limit=_LIMIT))
        asked, owner = found["asked"], Owner(**found["owner"])
        begun = set(found) - {"replaces"} == _KEYS and found["result"] is None
        if not begun or not isinstance(asked["command"], str) or type(owner.pid) is not int:
            return None
        state = state_of(owner)
    except (OSError, StreammcError, ValueError, KeyError, TypeError, RecursionError):
        return None
    kept = None
    if state != "dead":
        where = f" on {owner.host!r}" if state == "elsewhere" else ""
        kept = f"process {owner.pid}{where} " + ("may live" if where else "lives")
    return Debris(path, "unfinished receipt", info.st_size, kept)


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
        dims = len(spec.shape)
        for name in _names(path / key):
            index = name.split(".")[1:]
            chunk = name.startswith("c.") and all(each.isdecimal() for each in index)
            if chunk and len(index) == dims and int(index[spec.axis]) >= spec.n_chunks:
                found.append(path / key / name)
    return found


def _names(folder: Path) -> list[str]:
    """Return the names of the regular files of a folder; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(each.name for each in entries if each.is_file(follow_symlinks=False))
    return []


_ARRAYS: Final = ("zarr.json", ".zgroup", ".zarray")
"""A folder with one of these is an array or a group, whose chunks are not looked at."""


def collect(path: str | os.PathLike[str], *, dry_run: bool) -> dict[str, Any]:
    """Remove what processes of streammc that have ended left below a folder, and beside a result.

    Parameters
    ----------
    path
        Folder to search with all folders below it, on the same file system and without following
        links; for a store, a run or another result, what lies inside and beside it.
    dry_run
        Find, and remove nothing.

    Returns
    -------
    dict
        ``path``, ``dry_run``, ``removed`` and ``kept``, lists of ``path``, ``kind`` and
        ``bytes``, those kept with a ``reason``; and ``bytes``, the sum over ``removed``.

    Raises
    ------
    MissingError, StoreError
        If there is no folder at ``path``.
    """
    root = Path(os.path.abspath(path))
    _require_folder(root)
    removed: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []

    def settle(found: Debris) -> None:
        reason = found.kept
        if reason is None and not dry_run:
            reason = _removed(found.path)
        entry = {"path": str(found.path), "kind": found.kind, "bytes": found.size}
        if reason is None:
            removed.append(entry)
        else:
            kept.append({**entry, "reason": reason})

    if _is_result(root):
        for beside in _entries(root.parent):
            if root.name in beside.name and beside.name != root.name:
                _settle_one(Path(beside.path), settle)
    _walk(root, root.lstat().st_dev, settle)
    return {
        "path": str(root),
        "dry_run": dry_run,
        "removed": removed,
        "kept": kept,
        "bytes": sum(each["bytes"] for each in removed),
    }


def _require_folder(path: Path) -> None:
    if not os.path.lexists(path):
        raise MissingError(f"expected a folder at {str(path)!r}, found nothing: check the path")
    if not path.is_dir():
        raise StoreError(
            f"expected a folder at {str(path)!r}, found a file: give the folder that it is in"
        )


def _walk(root: Path, device: int, settle: Callable[[Debris], None]) -> None:
    """Look at a folder and at those below it."""
    folders = [root]
    for folder in folders:
        if os.path.lexists(folder / FOLDER / FILE):
            whole = _settle_run(folder, settle)
            if whole:
                continue
        result = _is_result(folder)
        for entry in _entries(folder):
            path = Path(entry.path)
            if _settle_one(path, settle) or result:
                continue
            with suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode) and info.st_dev == device:
                    folders.append(path)


def _settle_run(folder: Path, settle: Callable[[Debris], None]) -> bool:
    """Settle the debris of a run; return whether the run is debris as a whole."""
    with run_debris(folder) as found:
        for each in found:
            settle(each)
        return any(each.path == folder for each in found)


def _settle_one(path: Path, settle: Callable[[Debris], None]) -> bool:
    """Settle a path if a process of streammc left it; return whether one did."""
    with judged_receipt(path) if path.name.endswith(RECEIPT) else judged(path) as found:
        if found is not None:
            settle(found)
        return found is not None


def _removed(path: Path) -> str | None:
    """Remove a path; return why that cannot be done, or ``None``."""
    try:
        remove(path) if path.is_dir() else path.unlink()
    except OSError as error:
        return f"cannot be removed: {error.strerror or error}"
    return None


def _is_result(path: Path) -> bool:
    """Return whether a folder is a store, a run, another result, or an array."""
    return any(os.path.lexists(path / name) for name in (*_ARRAYS, STORE_MANIFEST))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder by name; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from sorted(entries, key=lambda each: each.name)
