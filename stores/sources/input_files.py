"""The files of a table, named by a path, a pattern, a folder or an address, and their records.

A folder is read with its folders ``name=value`` (hive partitions): each ``name`` is a column of the
table. Files are in the order of the parts of their paths, compared as text.

A file is known again by path, size and time, then by inode and contents. It can be replaced by
another one of its size and modification time. Its inode or the time of its last change of status,
which cannot be set, are then others; but they are also others after ``chmod``, a link or a copy
with ``cp -p``. So the file is read again, and a checksum decides.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from time import time_ns
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

import google_crc32c

from streammc.errors import (
    AccessError,
    ConfigError,
    DataError,
    MissingError,
    StoreError,
    StreammcError,
)
from streammc.stores.cloud.address import CloudFolder, store_root
from streammc.stores.format.objects import local_path
from streammc.trace.addresses import is_address, real_place
from streammc.trace.disk import FileStamp, file_stamp
from streammc.trace.kinds import STORE, found_at, with_article

_PATTERN: Final = re.compile(r"[*?\[]")
_ESCAPED: Final = re.compile(r"\[([*?\[])\]")
"""Character of a name as ``glob.escape`` writes it."""
_DUCKDB: Final = "DuckDB, COPY (FROM {}_scan('{{}}')) TO 'table.parquet', or in Python with {}"
_LOGS: Final = {
    "_delta_log": ("a Delta table", _DUCKDB.format("delta", "deltalake")),
    "metadata": ("an Iceberg table", _DUCKDB.format("iceberg", "pyiceberg")),
    ".hoodie": ("a Hudi table", "Spark, spark.read.format('hudi')"),
    "_spark_metadata": ("the output of a Spark stream", "Spark, spark.read"),
}
"""Folder of a log that says which files of a table count, and what reads such a table."""
_ICEBERG: Final = ".metadata.json"
"""In the names of files that tell the folder ``metadata`` of an Iceberg table from others."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_STREAM_BYTES: Final = 4 << 20


class InputFile(NamedTuple):
    """One file of a table."""

    path: str
    """Path or address."""
    partitions: tuple[tuple[str, str | None], ...] = ()
    """Name and value of each folder ``name=value`` below what was named; ``None``: missing."""


def input_files(path: str | bytes) -> list[InputFile]:
    """Return the files that a path, a pattern, a folder or an address names, in order.

    Errors of the system are raised as they are.
    """
    text = os.fsdecode(path)
    if is_address(text):
        place = store_root(text)
        return _of_service(place) if isinstance(place, CloudFolder) else input_files(str(place))
    local_path(text)
    try:
        mode = os.stat(text).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if text == "-":
            raise DataError(
                "expected a file, found '-', the standard input, which can be read only once: save "
                "it as a file"
            ) from None
        if not _PATTERN.search(text):
            raise
        return _matching(text)
    if stat.S_ISREG(mode):
        return [InputFile(text)]
    if not stat.S_ISDIR(mode):
        raise DataError(
            f"expected a regular file at {text!r}, found a pipe or device: "
            "it is read more than once, save it as a file"
        )
    files = _in_folder(text)
    if not files:
        raise DataError(f"expected files in the directory {text!r}, found none: check the path")
    return files


def refuse_logged(files: Sequence[InputFile], checked: set[str] | None = None) -> None:
    """Refuse files of a table whose log says which of its files count, such as a Delta table.

    Files that the log has removed, and rows that it has deleted, would be read.

    ``checked`` are folders that have no such log in or above them; those of ``files`` are added.
    """
    checked = set() if checked is None else checked
    places = (place for file in files for place in (file.path, real_place(file.path)))
    for parent in dict.fromkeys(map(os.path.dirname, places)):
        place: Any = store_root(parent or ".")
        if isinstance(place, CloudFolder):
            if not place.listable:
                continue
            parts = place.prefix.split("/") if place.prefix else []
            above: Sequence[Any] = [
                CloudFolder(place.scheme, place.bucket, "/".join(parts[:n]))
                for n in range(len(parts), -1, -1)
            ]
        else:
            above = Path(os.path.realpath(place), "file").parents
        for folder in above:
            if str(folder) in checked:
                break
            _refuse_log(folder)
            checked.add(str(folder))


def _refuse_log(folder: Path | CloudFolder) -> None:
    """Raise DataError for a folder with the log of a table."""
    for name in _logs_in(folder) if isinstance(folder, Path) else _logs_at(folder):
        what, reader = _LOGS[name]
        # The kernel of DuckDB's Delta extension takes addresses alone.
        is_path = name == "_delta_log" and isinstance(folder, Path)
        place = f"file://{folder}" if is_path else folder
        raise DataError(
            f"expected files that all count, found {what} at {str(folder)!r}, whose log "
            f"{name!r} says which of its files do: read it with {reader.format(place)}, and "
            "ingest what that gives"
        )


def _logs_in(folder: Path) -> list[str]:
    """Return the logs of tables in a local folder; none where it cannot be read."""
    names = [name for name in _LOGS if os.path.isdir(folder / name)]
    if "metadata" in names:
        try:
            iceberg = any(_ICEBERG in name for name in os.listdir(folder / "metadata"))
        except OSError:
            iceberg = False
        names = [name for name in names if name != "metadata" or iceberg]
    return names


def _logs_at(folder: CloudFolder) -> list[str]:
    """Return the logs of tables in a folder of an object store; none where it is not allowed."""
    from streammc.stores.cloud.requests import first_objects, read_ranges

    def keys(name: str) -> list[str]:
        try:
            return first_objects(folder / name)
        except (AccessError, StoreError):
            return []

    pages = read_ranges([partial(keys, name) for name in _LOGS])
    by_name = dict(zip(_LOGS, pages, strict=True))
    by_name["metadata"] = [key for key in by_name["metadata"] if _ICEBERG in key]
    return [name for name, each in by_name.items() if each]


def is_pattern(path: str) -> bool:
    """Return whether a path has wildcards, apart from names that ``glob.escape`` has escaped."""
    return _PATTERN.search(_ESCAPED.sub("", path)) is not None


def open_input(path: str, *, stream: bool = False) -> Any:
    """Open a file of a table, as binary.

    With ``stream`` it is read from the start to the end: an object then comes in larger parts.
    """
    if not is_address(path):
        return open(path, "rb")
    from streammc.stores.cloud.requests import InputObject

    place = store_root(path)
    assert isinstance(place, CloudFolder)
    raw = InputObject(place)
    return io.BufferedReader(raw, _STREAM_BYTES) if stream else raw


def input_stamp(path: str) -> FileStamp:
    """Return the stamp of a file of a table."""
    if not is_address(path):
        return file_stamp(path)
    from streammc.stores.cloud.requests import object_stamp

    place = store_root(path)
    assert isinstance(place, CloudFolder)
    stamp = object_stamp(place)
    if stamp is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return stamp


def _matching(pattern: str) -> list[InputFile]:
    """Return the files that match a pattern, and those in folders that match."""
    parts = Path(pattern).parts
    fixed = next((k for k, part in enumerate(parts) if is_pattern(part)), len(parts))
    base = Path(*(_ESCAPED.sub(r"\1", part) for part in parts[:fixed]))
    if fixed == len(parts):  # the escaped path of one file or folder
        return input_files(str(base)) if base.exists() else _no_match(pattern)
    files: list[InputFile] = []
    for match in dict.fromkeys(_expanded(base, parts[fixed:]) if base.is_dir() else ()):
        below = match.relative_to(base)
        if not match.is_dir():
            files.append(InputFile(str(match), _partitions(below.parts[:-1])))
        elif "**" not in parts:
            own, inside = _partitions(below.parts), _in_folder(str(match))
            files += [InputFile(each.path, (*own, *each.partitions)) for each in inside]
    return _in_order(files) if files else _no_match(pattern)


def _no_match(pattern: str) -> NoReturn:
    raise MissingError(f"expected files that match {pattern!r}, found none: check the pattern")


def _expanded(folder: Path, pattern: Sequence[str]) -> Iterator[Path]:
    """Yield what is not hidden and matches; ``**`` follows no links.

    An error of the system is raised, where ``glob`` leaves out what cannot be read.
    """
    first, *rest = pattern
    if first == "**" and rest:
        yield from _expanded(folder, rest)
    with os.scandir(folder) as entries:
        for entry in entries:
            below = folder / entry.name
            if _hidden(entry.name):
                continue
            if first == "**":
                if entry.is_dir(follow_symlinks=False):
                    yield from _expanded(below, pattern)
                elif not rest:
                    yield below
            elif fnmatchcase(entry.name, first):
                if not rest:
                    yield below
                elif entry.is_dir():
                    yield from _expanded(below, rest)


def _in_folder(folder: str) -> list[InputFile]:
    """Return the files of a folder and of its folders ``name=value``."""
    _refuse_log(Path(os.path.realpath(folder)))
    if os.path.lexists(os.path.join(folder, "zarr.json")):
        kind = found_at(folder)
        raise _not_a_table(folder, None if kind is None or kind.kind == STORE else kind.kind)
    files: list[InputFile] = []
    for entry in sorted(Path(folder).iterdir()):
        if _hidden(entry.name):
            continue
        if not entry.is_dir():
            files.append(InputFile(str(entry)))
            continue
        own = _partitions([entry.name])
        if not own:
            raise _other_folder(folder, str(entry))
        files += [InputFile(each.path, (*own, *each.partitions)) for each in _in_folder(str(entry))]
    return _in_order(files)


def _of_service(place: CloudFolder) -> list[InputFile]:
    """Return the objects that the address of an object, a pattern or a folder names."""
    parts = PurePosixPath(place.prefix).parts
    fixed = next((k for k, part in enumerate(parts) if is_pattern(part)), len(parts))
    if not place.listable:
        if fixed < len(parts):
            raise ConfigError(
                f"expected the address of one file of a web server, which lists none, found the "
                f"pattern {str(place)!r}: name every file"
            )
        return [InputFile(str(place))]
    from streammc.stores.cloud.requests import list_objects, object_stamp

    if parts and object_stamp(place) is not None:
        return [InputFile(str(place))]
    literal = "/".join(_ESCAPED.sub(r"\1", part) for part in parts[:fixed])
    base = CloudFolder(place.scheme, place.bucket, literal)
    if fixed == len(parts) and base != place:  # the escaped address of one object or folder
        return _of_service(base)
    pattern, files = parts[fixed:], []
    keys = list_objects(base)
    if not pattern and "zarr.json" in keys:
        raise _not_a_table(str(place), None)
    if not pattern:
        _refuse_log(base)
    folders = {key.rsplit("/", n)[0] for key in keys for n in range(1, key.count("/") + 1)}
    for key in sorted(keys, key=lambda key: key.split("/")):
        below = key.split("/")
        # Some programs put an empty object where a folder would be.
        if not key or key in folders or any(map(_hidden, below)):
            continue
        if not pattern:
            _check_folders(str(place), below[:-1])
        elif not _matches_whole(below, pattern):
            continue
        files.append(InputFile(str(base / key), _partitions(below[:-1])))
    if not files:
        what = "files that match" if pattern else "a file or files at"
        raise MissingError(f"expected {what} {str(place)!r}, found none: check the address")
    return _in_order(files)


def _matches_whole(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a pattern names an object, or without ``**`` a folder that holds it."""
    if "**" in pattern:
        return _matches(parts, pattern)
    own = parts[: len(pattern)]
    if not _matches(own, pattern):
        return False
    _check_folders("/".join(own), parts[len(pattern) : -1])
    return True


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a key match those of a pattern; ``**`` is any number."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[k:], pattern[1:]) for k in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _partitions(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Return name and value of the folders ``name=value``, without escapes such as ``%20``."""
    pairs = []
    for folder in folders:
        name, mark, value = folder.partition("=")
        if mark and name:
            pairs.append((unquote(name), None if value == _NULL else unquote(value)))
    return tuple(pairs)


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _in_order(files: list[InputFile]) -> list[InputFile]:
    return sorted(files, key=lambda each: PurePosixPath(each.path).parts)


def _not_a_table(place: str, kind: str | None) -> DataError:
    if kind is None:
        what = "a zarr store: it needs no ingesting, use it as it is"
    else:
        what = f"{with_article(kind)}: give CSV, Parquet or Arrow files"
    return DataError(f"expected a table in {place!r}, found {what}")


def _check_folders(place: str, folders: Sequence[str]) -> None:
    """Raise DataError for a folder that is not ``name=value``."""
    other = next((name for name in folders if not _partitions([name])), None)
    if other is not None:
        raise _other_folder(place, other)


def _other_folder(place: str, folder: str) -> DataError:
    return DataError(
        f"expected files and folders name=value in {place!r}, found the folder {folder!r}: name "
        "the files, or give a pattern such as '*/*.parquet'"
    )


STATE: Final = "state"
"""Key of a record: inode and time of the last change of status; null at an address."""
CRC: Final = "crc32c"
"""Key of a record: checksum of the contents; null where they were not read."""
PARTITIONS: Final = "partitions"
"""Key of a record: names and values of the folders ``name=value`` above the file, if any."""
ROWS: Final = "rows"
"""Key of a record: number of rows; absent where they were not counted."""
_BLOCK: Final = 4 << 20
_CLOCK_NS: Final = 10**9
"""Nanoseconds after which a further write to a file surely gives it another time."""
_checksums: Final[dict[tuple[Any, ...], int]] = {}
"""Checksums of files read by this process, by place, size, times and inode."""


def input_record(path: str) -> dict[str, Any]:
    """Return path without links, size, modification time and state of a file, as JSON."""
    stamp = input_stamp(path)
    return {
        "path": real_place(path),
        "bytes": stamp.size,
        "modified_ns": stamp.modified_ns,
        STATE: input_state(path),
    }


def input_state(path: str) -> str | None:
    """Return inode and time of the last change of status of a file; ``None`` at an address."""
    if is_address(path):
        return None
    status = os.stat(path)
    return f"{status.st_ino}-{status.st_ctime_ns}"


def content_crc(path: str) -> int | None:
    """Return the crc32c of the contents of a file; ``None`` at an address.

    A file that this process has read is not read again while its size, times and inode stay.
    """
    if is_address(path):
        return None
    crc = 0
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        times = status.st_mtime_ns, status.st_ctime_ns
        key = (os.path.realpath(path), status.st_dev, status.st_ino, status.st_size, *times)
        if key in _checksums:
            return _checksums[key]
        begun = time_ns()
        while block := file.read(_BLOCK):
            crc = google_crc32c.extend(crc, block)
        now = os.fstat(file.fileno())
    unchanged = (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (status.st_size, *times)
    if unchanged and status.st_ctime_ns + _CLOCK_NS < begun:
        _checksums[key] = int(crc)
    return int(crc)


def with_crc(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the checksum of the file; null if it is another one by now."""
    path = str(record["path"])
    try:
        crc = content_crc(path)
        same = all(record[name] == value for name, value in input_record(path).items())
    except (OSError, StreammcError):
        crc, same = None, False
    return {**record, CRC: crc if same else None}


def complete_records(
    records: Sequence[Mapping[str, Any]] | None, rows: Sequence[int]
) -> list[dict[str, Any]] | None:
    """Return the records of the files of a generation with checksums and numbers of rows."""
    if not records:
        return None
    counts = rows if len(rows) == len(records) else [None] * len(records)
    return [
        with_crc(record) | ({} if count is None else {ROWS: count})
        for record, count in zip(records, counts, strict=True)
    ]


def same_input(before: Mapping[str, Any], path: str) -> bool:
    """Return whether the file at ``path`` is the one of a record; it is read only if in doubt.

    Records of earlier versions have no state.
    """
    now = input_record(path)
    if any(before[name] != now[name] for name in ("bytes", "modified_ns")):
        return False
    if before.get(STATE) in (None, now[STATE]):
        return True
    known = before.get(CRC)
    return known is not None and known == content_crc(path)


def input_records(parts: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return the record of every file, see :func:`input_record`, or ``None`` for tables in memory.

    Also ``None`` where a file cannot be found or read: the reader of the table says so.
    """
    records = []
    for part in parts:
        if not isinstance(part, InputFile):
            return None
        try:
            record = input_record(part.path)
        except (OSError, StreammcError):
            return None
        folders = {PARTITIONS: [list(each) for each in part.partitions]}
        records.append(record | (folders if part.partitions else {}))
    return records


def equal_input(record: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Any:
    """Return the one of the records ``others`` whose file has the same rows, or ``None``.

    Their sizes and checksums are equal, and the values of the folders above them. Files without
    rows are not compared, nor are those at an address, which have no checksum. Files are read only
    where their sizes are equal.
    """
    alike = [
        each
        for each in others
        if each["bytes"] == record["bytes"]
        and each.get(PARTITIONS) == record.get(PARTITIONS)
        and each.get(ROWS) != 0
    ]
    crc = content_crc(str(record["path"])) if alike else None
    if crc is None:
        return None
    return next((each for each in alike if _crc_of(each) == crc), None)


def _crc_of(record: Mapping[str, Any]) -> int | None:
    """Return the checksum of a record; of its file, if it has none and the file is unchanged."""
    known = record.get(CRC)
    if known is None:
        path = str(record["path"])
        try:
            known = content_crc(path) if same_input(record, path) else None
        except (OSError, StreammcError):
            known = None
    return known
