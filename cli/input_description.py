"""Inputs of ``ingest`` as a receipt keeps them, and what has become of them since."""

from __future__ import annotations

import glob
import hashlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streammc.errors import StreammcError
from streammc.trace.disk import FileStamp, file_stamp, stamp_difference, utc_text

if TYPE_CHECKING:
    from streammc.stores.sources.input_files import InputFile

_LONGEST: Final = 100
"""Characters of a path in a message."""


def describe_inputs(paths: Sequence[str], *, states: bool = False) -> list[dict[str, Any]]:
    """Return path, size and modification time of every input of ``ingest``.

    For a directory or a pattern: the total size of its files, the latest time of it and its
    files, and under ``files`` a digest of their names and stamps; an address has this digest too.
    With ``states``, under ``state``, a digest of inodes and of times of the last change of status:
    they show a change of a file whose size and time are the same. An input that does not exist has
    only its path.
    """
    from streammc.stores.sources.input_files import STATE, input_files, input_stamp, input_state
    from streammc.trace.addresses import is_address

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
    from streammc.trace.addresses import is_address

    if is_address(path):
        return path
    if os.path.isabs(path) or os.path.lexists(path) or not glob.has_magic(path):
        return os.path.abspath(path)
    return os.path.normpath(os.path.join(glob.escape(os.getcwd()), path))


def _place(file: InputFile) -> str:
    """Return the absolute path of a file without links: one text whatever link leads to it."""
    return os.path.realpath(file.path)


def _named_place(file: InputFile) -> str:
    """Return the absolute path of a file with its links, as in receipts of earlier versions."""
    return os.path.abspath(file.path)


def with_real_paths(settings: Any) -> dict[str, Any]:
    """Return the settings of a command, its paths without links; ``sources`` stay as they are."""
    if not isinstance(settings, dict):
        return {}
    return {name: each if name == "sources" else _real(each) for name, each in settings.items()}


def _real(value: Any) -> Any:
    """Return absolute paths without links, also those in lists; other values as they are."""
    if isinstance(value, list):
        return [_real(each) for each in value]
    return os.path.realpath(value) if isinstance(value, str) and os.path.isabs(value) else value


def input_contents(path: str, place: Callable[[InputFile], str] = _place) -> str | None:
    """Return a digest of names and checksums of the files of an input; ``None`` at an address."""
    from streammc.stores.sources.input_files import content_crc, input_files
    from streammc.trace.addresses import is_address

    if is_address(path):
        return None
    try:
        found = [(place(each), content_crc(each.path)) for each in input_files(path)]
    except (OSError, StreammcError):
        return None
    return hashlib.sha256(repr(found).encode()).hexdigest()


def same_inputs(
    before: Any, now: Sequence[Mapping[str, Any]], contents: Any, paths: Sequence[str]
) -> list[str | None] | None:
    """Return digests of the contents of inputs that are the same as before; else ``None``.

    An input whose size and time of modification are as before, but not its inodes or times of the
    last change of status, as after a copy, is read, and is the same if its contents are.

    Parameters
    ----------
    before, now
        As of :func:`describe_inputs` with ``states``, which receipts of earlier versions lack.
    contents
        Digest of the contents of each input as it was, see :func:`input_contents`, or ``None``.
    paths
        Paths of the inputs.
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
        stamped = _real(old.get("path")) == _real(new.get("path")) and all(
            old.get(name) == new.get(name) for name in ("bytes", "modified_ns")
        )
        same = isinstance(digest, str) and "state" in old and stamped
        if old != new and not (same and _has_contents(path, digest)):
            return None
    return [digest for *_, digest in pairs]


def _has_contents(path: str, digest: str) -> bool:
    """Return whether the files of an input have a digest of names and checksums."""
    if digest == input_contents(path):
        return True
    linked = os.path.realpath(path) != os.path.abspath(path)
    return linked and digest == input_contents(path, _named_place)


def differences(before: Any, now: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text of the differences, and advice if only a file's time has changed."""
    before = before if isinstance(before, dict) else {}
    names = [key for key in {**before, **now} if _real(before.get(key)) != _real(now.get(key))]
    source = _changed_source(before.get("sources"), now.get("sources"))
    if names == ["sources"] and source is None:
        return f"other 'sources'{_other_paths(before['sources'], now['sources'])}", ""
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
        if any(_real(old["path"]) != _real(new["path"]) for old, new in pairs):
            return None
        old, new = next(pair for pair in pairs if pair[0] != pair[1])
        stamps = [FileStamp(each["bytes"], each["modified_ns"], 0) for each in (old, new)]
        return str(new["path"]), stamps[0], stamps[1]
    except (TypeError, KeyError, ValueError, StopIteration):
        return None


def _other_paths(before: Any, now: Any) -> str:
    """Return the first source that is another one, and the one it was, as text."""
    try:
        paths = [[str(each["path"]) for each in every] for every in (now, before)]
    except (TypeError, KeyError):
        return ""
    for new, old in zip_longest(*paths):
        if new is None or old is None or _real(new) != _real(old):
            return f", {_shortened(new)} in place of {_shortened(old)}"
    return ""


def _shortened(path: str | None) -> str:
    """Return a path for a message; of a long one the end."""
    if path is None:
        return "none"
    return repr(path if len(path) <= _LONGEST else f"...{path[3 - _LONGEST :]}")
