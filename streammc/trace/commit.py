"""The steps of a commit, in an order that is safe against a power cut at any step."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import BusyError, IdentityError, MissingError
from streammc.trace import checkpoint as checkpoints
from streammc.trace.codec import (
    ArraySpec,
    chunk_checksum,
    chunk_key,
    document_bytes,
    dtype_name,
    encode,
    fill_value,
)
from streammc.trace.contents import chunk_path, draw_axis, fold, interval_checksum, read_chunk
from streammc.trace.durable import read_file, replace_files, reporting, sync_directory, write_files
from streammc.trace.file_stamp import FileStamp, file_stamp, stamp_difference
from streammc.trace.lock import FOLDER
from streammc.trace.sealed import DOCUMENT_LIMIT
from streammc.trace.state import FixedArray, Mark, RunState, root_document
from streammc.trace.temporary import is_temporary

ROOT: Final = "zarr.json"

# The checkpoint folder looks like an empty zarr array, so that a reader without consolidated
# metadata does not warn about unknown files.
_OPAQUE: Final = ArraySpec((0,), (1,), "uint8", ("checkpoint_byte",))
_GROUP: Final = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()
_CHECKPOINT: Final = re.compile(r"(\d{1,18})\.npz")

Stamp = FileStamp


Files = dict[Path, bytes]


def make_folders(path: Path, state: RunState) -> None:
    """Make the folders of all groups and arrays, and write their documents."""
    for name in (*state.groups(), *state.specs()):
        with reporting("create", path / name):
            (path / name).mkdir(exist_ok=True)
    files = {path / group / ROOT: _GROUP for group in state.groups()}
    files[path / FOLDER / ROOT] = document_bytes(_OPAQUE)
    files |= {path / key / ROOT: document_bytes(spec) for key, spec in state.specs().items()}
    write_files(files)
    sync_directory(path)
    if not is_temporary(path):
        sync_directory(path.parent)


def write_documents(path: Path, state: RunState) -> None:
    """Rewrite the documents of arrays that do not yet have the shape of the last commit."""
    stale: Files = {}
    for key, spec in state.specs().items():
        where, wanted = path / key / ROOT, document_bytes(spec)
        try:
            current = read_file(where, limit=DOCUMENT_LIMIT)
        except MissingError:
            current = b""
        if current != wanted:
            stale[where] = wanted
    if stale:
        replace_files(stale, path / FOLDER)


def fixed_spec(dims: Sequence[str], values: NDArray[Any]) -> ArraySpec:
    """Return the spec of an array that is written once, as one chunk."""
    return ArraySpec(values.shape, values.shape, dtype_name(values.dtype), tuple(dims))


def write_fixed(
    path: Path, arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]]
) -> dict[str, FixedArray]:
    """Write arrays ``group/name`` -> (dims, values) of one chunk each; return their entries."""
    files: Files = {}
    entries = {}
    for key, (dims, values) in arrays.items():
        spec = fixed_spec(dims, values)
        data = encode(values, spec.dtype)
        with reporting("create", path / key):
            (path / key).mkdir(parents=True, exist_ok=True)
        files[(path / key).parent / ROOT] = _GROUP
        files[path / key / ROOT] = document_bytes(spec)
        files[path / key / chunk_key((0,) * values.ndim)] = data
        entries[key] = FixedArray(spec, len(data), chunk_checksum(data))
    write_files(files)
    sync_directory(path)
    return entries


def encode_interval(
    path: Path, state: RunState, arrays: Mapping[str, NDArray[Any]], start: int
) -> tuple[Files, Files, dict[str, tuple[int, int]]]:
    """Return the chunk files of one interval from draw ``start`` on, and the new checksums.

    Returns
    -------
    tuple
        New files; files that replace a short last chunk; the new checksums.

    Raises
    ------
    IdentityError
        If committed draws are computed again and differ.
    """
    specs = state.growing()
    number = start // state.layout.interval
    new, again, sums = Files(), Files(), dict(state.sums)
    for key, values in arrays.items():
        spec = specs[key]
        axis = draw_axis(spec)
        whole = np.asarray(values, dtype=spec.dtype)
        part = interval_checksum(whole)
        missing = spec.chunk[axis] - values.shape[axis]
        full = state.sums[key][0]
        every = fold(full, part)
        sums[key] = (full, every) if missing else (every, every)
        files = new
        if spec.shape[axis] > start:
            _check_same(path, key, spec, number, values)
            files = again
        if missing:
            fill = np.array(fill_value(spec.dtype), dtype=spec.dtype)
            padding = [(0, missing if i == axis else 0) for i in range(whole.ndim)]
            whole = np.pad(whole, padding, constant_values=fill)
        files[chunk_path(path / key, spec, number)] = encode(whole, spec.dtype)
    return new, again, sums


def _check_same(path: Path, key: str, spec: ArraySpec, number: int, values: NDArray[Any]) -> None:
    old = read_chunk(path, key, spec, number)
    axis = draw_axis(spec)
    new = np.asarray(values, dtype=spec.dtype).take(range(old.shape[axis]), axis=axis)
    if old.tobytes() != new.tobytes():
        raise IdentityError(
            f"expected the draws from {number * spec.chunk[axis]} on to come out as they are in "
            f"{path / key}, found others: continue on the machine and with the versions that "
            "started this run, or choose another output"
        )


def encode_checkpoint(state: RunState, checkpoint: tuple[Any, Any]) -> tuple[bytes, Mark]:
    """Return the content of a checkpoint and its mark, for the coming commit of ``state``."""
    data = checkpoints.encode(*checkpoint)
    done = state.committed
    return data, Mark(
        state.generation, done["warmup"], done["draws"], len(data), checkpoints.checksum(data)
    )


def checkpoint_path(path: Path, generation: int) -> Path:
    """Return the path of the checkpoint file of a generation."""
    return path / FOLDER / f"{generation}.npz"


def root_stamp(path: Path) -> Stamp:
    """Return the stamp of the root document, which every commit changes."""
    with reporting("read", path / ROOT):
        return file_stamp(path / ROOT)


def commit_root(
    path: Path, state: RunState, attributes: Mapping[str, Any], expected: Stamp | None
) -> Stamp:
    """Commit ``state``: replace the root document, and return its new stamp.

    Raises
    ------
    BusyError
        If another process has committed since ``expected``, because the lock has no effect,
        as on some network file systems.
    """
    if expected is not None and (found := root_stamp(path)) != expected:
        raise BusyError(
            f"expected no other writer in {path}, found another commit or a touched file: {ROOT} "
            f"has {stamp_difference(expected, found)}; stop the other process (locks do not hold "
            "on some network file systems) and continue the run"
        )
    replace_files({path / ROOT: root_document(state, attributes)}, path / FOLDER)
    return root_stamp(path)


def remove_old_checkpoints(path: Path, state: RunState) -> None:
    """Delete the older checkpoints without a mark in the state."""
    kept = {mark.generation for mark in state.marks}
    with suppress(OSError), os.scandir(path / FOLDER) as entries:
        for entry in entries:
            found = _CHECKPOINT.fullmatch(entry.name)
            if found and int(found[1]) <= state.generation and int(found[1]) not in kept:
                os.unlink(entry.path)


def remove_run(path: Path) -> None:
    """Delete a run: first its root document, then arrays and checkpoints; keep the lock file."""
    with reporting("delete", path):
        (path / ROOT).unlink()
        sync_directory(path)
        for folder in path.iterdir():
            if folder.is_dir() and not folder.is_symlink() and folder.name != FOLDER:
                shutil.rmtree(folder)
        for saved in (path / FOLDER).iterdir():
            if _CHECKPOINT.fullmatch(saved.name):
                saved.unlink()
