"""Removal of what killed processes left below a folder: ``streammc gc``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from streammc.errors import MissingError, StoreError
from streammc.owner_mark import remove
from streammc.trace.debris import Debris, judged
from streammc.trace.kinds import STORE_MANIFEST
from streammc.trace.left_receipts import SUFFIX, judged_receipt
from streammc.trace.lock import FILE, FOLDER
from streammc.trace.run_debris import run_debris

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
    with judged_receipt(path) if path.name.endswith(SUFFIX) else judged(path) as found:
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
