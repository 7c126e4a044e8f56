"""Tables that a job names: paths, patterns, folders and addresses, as ``ingest`` reads them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from streammc.cli.jobs.problems import Problem
from streammc.errors import MissingError, StreammcError

if TYPE_CHECKING:
    from streammc.stores.sources.input_files import InputFile


def in_folder(folder: str, path: str) -> str:
    """Return a path of a job file in the folder of the file; an address as it is."""
    from streammc.trace.local_path import is_address

    return path if is_address(path) else os.path.join(folder, path)


def tables_in_folder(folder: str, path: str) -> str:
    """Return the path or pattern of tables of a job file in the folder of the file.

    Where the name of the folder has wildcards, such as ``run[1]``, they are escaped: they would
    match another folder.
    """
    joined = in_folder(folder, path)
    if joined == path or glob.escape(folder) == folder or os.path.lexists(joined):
        return joined  # a path that exists is no pattern
    return os.path.join(glob.escape(folder), path)


def absolute(path: str) -> str:
    """Return a path as an absolute one; an address as it is."""
    from streammc.trace.local_path import is_address

    return path if is_address(path) else os.path.abspath(path)


def files_of(paths: Sequence[str]) -> list[InputFile]:
    """Return the files of paths, patterns, folders and addresses that find some, each once.

    Raises
    ------
    StreammcError
        If a folder, or the service of an address, cannot be read.
    """
    from streammc.stores.sources.tables import distinct_files, named_files

    found: list[InputFile] = []
    for path in paths:
        try:
            found += named_files(path)
        except MissingError:
            continue
    return distinct_files(found)


def input_faults(paths: Sequence[str], key: str, *, may_lack: bool = False) -> Iterator[Problem]:
    """Yield a fault for every path, pattern, folder or address without a file.

    With ``may_lack`` a pattern may find nothing.
    """
    from streammc.stores.sources.input_files import is_pattern
    from streammc.stores.sources.tables import named_files

    for position, path in enumerate(paths):
        try:
            named_files(path)
        except StreammcError as error:
            if may_lack and isinstance(error, MissingError) and is_pattern(path):
                continue
            yield Problem(f"{key}[{position}]", str(error), error.exit_code, error.code)


def alone(file: InputFile) -> str:
    """Return a source that finds this file alone, with the columns of the folders above it.

    A pattern has the columns of the folders from its first wildcard on: ``day[=]1`` matches the
    folder ``day=1`` alone.
    """
    if not file.partitions:
        return file.path
    head, mark, tail = file.path.rpartition("://")
    parts = list(PurePath(tail).parts)
    left = len(file.partitions)
    for place in reversed(range(len(parts) - 1)):
        name, equals, value = parts[place].partition("=")
        if left and name and equals:
            left -= 1
            parts[place] = f"{glob.escape(name)}[=]{glob.escape(value)}"
        else:
            parts[place] = glob.escape(parts[place])
    parts[-1] = glob.escape(parts[-1])
    return head + mark + str(PurePath(*parts))
