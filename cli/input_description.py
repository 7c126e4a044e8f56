"""Inputs of ``ingest`` as a receipt keeps them, and what has become of them since."""

from __future__ import annotations

import glob
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammc.errors import StreammcError
from streammc.trace.file_stamp import FileStamp, file_stamp, stamp_difference, utc_text

if TYPE_CHECKING:
    from streammc.stores.sources.input_files import InputFile


def describe_inputs(paths: Sequence[str], *, states: bool = False) -> list[dict[str, Any]]:
    """Return path, size and modification time of every input of ``ingest``.

    For a directory or a pattern: the total size of its files, the latest time of it and its
    files, and a digest of their names and stamps. With ``states`` also a digest of inodes and of
    times of the last change of status. An input that does not exist has only its path.
    """
    from streammc.stores.sources.input_files import input_files, input_stamp
    from streammc.stores.sources.input_record import STATE, input_state
    from streammc.trace.local_path import is_address

    found = []
    for path in paths:
        address = is_address(path)
        entry: dict[str, Any] = {"path": absolute_input(path)}
        with suppress(OSError, StreammcError):  # the reader of the input reports the error
            if os.path.isdir(path):
                stamps = [file_stamp(path)]
                files = [file_stamp(each) for each in sorted(Path(path).rglob("*"))]
            else:
                stamps, files = [], [input_stamp(each.path) for each in input_files(path)]
            entry["bytes"] = sum(each.size for each in files)
            entry["modified_ns"] = max(each.modified_ns for each in (*stamps, *files))
        if address or not os.path.isfile(path):
            with suppress(OSError, StreammcError):
                stamped = [(each.path, *input_stamp(each.path)) for each in input_files(path)]
                entry["files"] = hashlib.sha256(repr(stamped).encode()).hexdigest()
        if states and not address:
            with suppress(OSError, StreammcError):
                known = [(_place(each), input_state(each.path)) for each in input_files(path)]
                entry[STATE] = hashlib.sha256(repr(known).encode()).hexdigest()
        found.append(entry)
    return found


def absolute_input(path: str) -> str:
    """Return a path or pattern of tables from the root; an address as it is.

    Wildcards in the name of the current folder are escaped before a pattern: the same input has
    the same text in every folder.
    """
    from streammc.trace.local_path import is_address

    if is_address(path):
        return path
    if os.path.isabs(path) or os.path.lexists(path) or not glob.has_magic(path):
        return os.path.abspath(path)
    return os.path.normpath(os.path.join(glob.escape(os.getcwd()), path))


def _place(file: InputFile) -> str:
    """Return the absolute path of a file: a job may be started in any folder."""
    return os.path.abspath(file.path)


def input_contents(path: str) -> str | None:
    """Return a digest of names and checksums of the files of an input; ``None`` at an address."""
    from streammc.stores.sources.input_files import input_files
    from streammc.stores.sources.input_record import content_crc
    from streammc.trace.local_path import is_address

    if is_address(path):
        return None
    try:
        found = [(_place(each), content_crc(each.path)) for each in input_files(path)]
    except (OSError, StreammcError):
        return None
    return hashlib.sha256(repr(found).encode()).hexdigest()


def same_inputs(
    before: Any, now: Sequence[Mapping[str, Any]], contents: Any, paths: Sequence[str]
) -> list[str | None] | None:
    """Return the contents of inputs that are the same but for inodes and times; else ``None``.

    Parameters
    ----------
    before, now
        As of :func:`describe_inputs` with ``states``; ``before`` may lack them.
    contents
        Digest of the contents of each input as it was, see :func:`input_contents`, or ``None``.
    paths
        The inputs, of which those in doubt are read.
    """
    try:
        pairs = list(zip(paths, before, now, contents or [None] * len(now), strict=True))
    except (TypeError, ValueError):
        return None
    for path, old, each, digest in pairs:
        new = dict(each)
        if not isinstance(old, dict):
            return None
        if "state" not in old:  # of an earlier version
            new.pop("state", None)
        stamped = all(old.get(name) == new.get(name) for name in ("path", "bytes", "modified_ns"))
        same = isinstance(digest, str) and "state" in old and stamped
        if old != new and not (same and digest == input_contents(path)):
            return None
    return [digest for *_, digest in pairs]


def differences(before: Any, now: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text of the differences, and advice if only a file's time has changed."""
    before = before if isinstance(before, dict) else {}
    names = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    source = _changed_source(before.get("sources"), now.get("sources"))
    if names != ["sources"] or source is None:
        return "other " + (", ".join(repr(name) for name in names[:4]) or "settings"), ""
    path, old, new = source
    found = f"its source {path!r} with {stamp_difference(old, new)}"
    if old.size != new.size or old == new or not os.path.isfile(path):
        return found, ""
    command = f"touch -d {utc_text(old.modified_ns)} {shlex.quote(path)}"
    return found, f"if its content is the same, give it its time again ({command}); otherwise "


def _changed_source(before: Any, now: Any) -> tuple[str, FileStamp, FileStamp] | None:
    """Return the first changed source and its stamps; ``None`` if the paths differ."""
    try:
        pairs = list(zip(before, now, strict=True))
        if any(old["path"] != new["path"] for old, new in pairs):
            return None
        old, new = next(pair for pair in pairs if pair[0] != pair[1])
        stamps = [FileStamp(each["bytes"], each["modified_ns"], 0) for each in (old, new)]
        return str(new["path"]), stamps[0], stamps[1]
    except (TypeError, KeyError, ValueError, StopIteration):
        return None
