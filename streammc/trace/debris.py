"""What killed processes leave behind: found by name, proved by mark or content, and removed.

A mark is an empty file in an unfinished folder; its name says which process made the folder.

| name | of | proof |
|---|---|---|
| ``NAME.partial-PID``, ``.NAME.partial-PID``, ``.NAME.HEX.partial``, ``NAME.pulling`` | an unfinished store, result or copy | mark, or a whole result of streammc |
| the same, ``.old`` | a result that was being replaced | a whole result of streammc |
| ``streammc-*`` | a temporary folder | mark |
| ``.NAME.PID.streammc-tmp`` | a file that was being written | how its text begins |
| ``NAME.config.json`` | a command that was killed before its output | what was asked, no result, no output |
| in a run: ``checkpoint/N.partial``, and what lies beyond the last commit | a commit | the root document |

New outputs of such names are refused. A whole run, and a store or result with its receipt beside it, are
a user's. A folder that a process locks, or whose process lives, is left alone; so is one of another
machine or container, whose processes cannot be seen.
"""  # noqa: E501

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from streammc.errors import BusyError
from streammc.trace import kinds
from streammc.trace.disk import try_lock
from streammc.unfinished import (
    FILE,
    PARTIAL,
    RESULT,
    is_running,
    kind_of_name,
    mark,
    owner_of,
    remove,
    state_of,
)

_BEGINNINGS: Final = (b"", b"{", b"<")
"""First byte of a file that streammc replaces at once: none yet, JSON, HTML."""
RECEIPT: Final = ".config.json"
"""What the name of a receipt adds to that of its output."""
_SECONDS: Final = 60.0
"""Age of a file in writing from which its process, if it cannot be seen here, is taken for dead."""


class Debris(NamedTuple):
    """A path that a process of streammc left behind."""

    path: Path
    kind: str
    """``unfinished result``, ``replaced result``, ``unfinished copy``, ``temporary folder``,
    ``unfinished file``, ``unfinished receipt``, ``unfinished commit`` or ``unfinished run``."""
    size: int
    """Bytes of its files."""
    kept: str | None
    """Why it is left alone; ``None``: it can go."""


@contextmanager
def judged(path: Path) -> Iterator[Debris | None]:
    """Judge a path by its name and content; a folder that can go stays locked in the block.

    Yields ``None`` for a path that no process of streammc left, as far as can be proved.
    """
    kind = kind_of_name(path.name)
    if kind is None or path.is_symlink():
        yield None
    elif kind == "unfinished file":
        yield _judged_file(path)
    else:
        with _locked(path) as free:
            yield None if free is None else _judged_folder(path, kind, free)


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Yield whether a folder is free, and lock it if so; ``None`` if it cannot be opened as one."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def _judged_file(path: Path) -> Debris | None:
    found = FILE.fullmatch(path.name)
    try:
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or found is None:
            return None
        with open(path, "rb") as file:
            begins = file.read(1) in _BEGINNINGS
    except OSError:
        return None
    if not begins:
        return None
    kept = None
    if is_running(int(found["pid"])):
        kept = f"process {found['pid']} lives"
    elif time.time() - info.st_mtime < _SECONDS:
        kept = f"written within {_SECONDS:.0f} s, perhaps by another machine"
    return Debris(path, "unfinished file", info.st_size, kept)


def _judged_folder(path: Path, kind: str, free: bool) -> Debris | None:
    owner = owner_of(path)
    whole = owner is None and kind.endswith("result") and _is_unrenamed(path)
    if owner is None and not whole:
        return None
    kept, replaced = None, path.name.endswith(".old")
    if not free:
        kept = "another process has locked it"
    elif owner is not None and (state := state_of(owner)) != "dead":
        where = f" on {owner.host!r}" if state == "elsewhere" else ""
        kept = f"process {owner.pid}{where} " + ("may live" if where else "lives")
    elif replaced and (target := _target(path)) is not None and not os.path.lexists(target):
        kept = f"nothing is at {target.name!r}: this may be its only copy, rename it"
    return Debris(path, kind, size_of(path), kept)


def _is_unrenamed(path: Path) -> bool:
    """Return whether a folder is a whole store or result that a killed process did not rename.

    A command that was given this name as its output has written a receipt beside it. A run is
    written at its path, never under such a name.
    """
    found = kinds.found_at(path)
    if found is None or found.kind not in kinds.OURS or found.kind == kinds.RUN:
        return False
    return not os.path.lexists(path.with_name(f"{path.name}{RECEIPT}"))


def _target(path: Path) -> Path | None:
    """Return the path at which a replaced result was, or ``None`` if its name does not tell."""
    name = path.name.removesuffix(".old")
    found = RESULT.fullmatch(name) or PARTIAL.fullmatch(name)
    if found is None:
        return None
    named = path.with_name(found["output"])
    # Results of rows add a dot, which is no part of their name.
    plain = path.with_name(found["output"].removeprefix("."))
    return named if os.path.lexists(named) else plain


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; follow no links."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    with suppress(OSError):
        return total if path.is_dir() else path.lstat().st_size
    return total


def collect_debris(path: Path, prefix: str) -> None:
    """Remove the folders of killed writers of ``path``; refuse if a writer is alive.

    A folder of such a name that is not of streammc is left alone.

    A name that begins with ``prefix`` ends in the process id; a live writer locks its folder with
    ``flock``.
    """
    for name in os.listdir(path.parent):
        if not (name.startswith(prefix) and name[len(prefix) :].isdecimal()):
            continue
        folder = path.parent / name
        with _locked(folder) as free:
            if free is None:  # no folder
                continue
            found = _judged_folder(folder, "unfinished result", free)
            if not free or (found and found.kept):
                why = found.kept if found else "another process has locked it"
                raise BusyError(
                    f"expected to be alone in writing {str(path)!r}, found {name!r} in use ({why})"
                    ": wait for the other process"
                )
            if found:
                remove(folder)
            elif not any(files for _, _, files in os.walk(folder)):  # killed before its mark
                for inner, _, _ in os.walk(folder, topdown=False):
                    os.rmdir(inner)


def collect_beside(path: Path) -> None:
    """Remove what killed writers of an output left beside its ``path``; let others live."""
    ours = (path.name, f".{path.name}", f"{path.name}.scratch")
    for name in os.listdir(path.parent):
        stem = name.removesuffix(".old")
        found = RESULT.fullmatch(stem) or PARTIAL.fullmatch(stem)
        if found is not None and found["output"] in ours:
            with suppress(OSError), judged(path.parent / name) as debris:
                if debris is None:  # killed before its mark, or nothing of streammc
                    os.rmdir(path.parent / name)  # which refuses a folder with a file
                elif debris.kept is None:
                    remove(debris.path)


def marked_partial(folder: Path) -> int:
    """Make the folder of a writer, lock and mark it; return the descriptor that has the lock.

    Others remove a folder that has no mark yet as what a killed writer left: it is made again.
    """
    while True:
        lock = -1
        try:
            folder.mkdir()
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try_lock(lock)
            mark(folder)
            return lock
        except FileNotFoundError:
            _close(lock)
            if not folder.parent.is_dir():
                raise
        except FileExistsError:  # the folder, or its mark
            _close(lock)
            raise BusyError(
                f"expected to be alone in writing {str(folder)!r}, found another thread of this "
                "process in it: wait for that"
            ) from None
        except BaseException:
            _close(lock)
            with suppress(OSError):
                os.rmdir(folder)
            raise


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
