"""The steps of a commit, in an order that is safe against a power cut at any step."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import BusyError, IdentityError, MissingError, StoreError
from streammc.trace.disk import (
    FileStamp,
    file_stamp,
    read_file,
    read_files,
    replace_files,
    reporting,
    stamp_difference,
    sync_directory,
    write_files,
)
from streammc.trace.lock import FOLDER
from streammc.trace.run_state import GROUPS, SAMPLES, Mark, RunState, root_document
from streammc.trace.zarr_files import (
    DOCUMENT,
    DOCUMENT_LIMIT,
    ArraySpec,
    StoredArray,
    crc32c,
    dtype_name,
    encode,
    fill_value,
    fold,
    group_document,
    interval_checksum,
    read_chunk,
    read_chunks,
    read_growing,
    read_stored,
    store_array,
)
from streammc.unfinished import is_temporary


def check_contents(path: Path, state: RunState) -> None:
    """Read all committed arrays once and compare them with the root document.

    Raises
    ------
    StoreError
        If a file is missing or wrong; the message names the first one.
    """
    for key, array in state.fixed.items():
        read_stored(path / key, array)
    for key, spec in state.growing().items():
        for _ in read_chunks(path / key, spec, state.sums[key][1]):
            pass


def read_group(
    path: Path, state: RunState, group: str, only: Collection[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Return the committed arrays of a group by name: all, or those of ``only`` that it has.

    Raises
    ------
    MissingError
        If the run has no such group.
    StoreError
        If one of these arrays is damaged.
    """
    require_group(path, state, group)
    arrays = {}
    for key, spec in state.specs().items():
        owner, _, name = key.partition("/")
        if owner != group or (only is not None and name not in only):
            continue
        if key in state.fixed:
            arrays[name] = read_stored(path / key, state.fixed[key])
        else:
            arrays[name] = read_growing(path / key, spec, state.sums[key][1])
    return arrays


def require_group(path: Path, state: RunState, group: str) -> None:
    """Raise MissingError if the run has no group of this name."""
    if group not in state.groups():
        raise MissingError(
            f"expected a group {group!r} in {path}, found {', '.join(state.groups())}"
            ": choose one of them"
        )


def read_theta(path: Path, state: RunState, phase: str) -> NDArray[np.float64]:
    """Return the committed theta (chain, draw, d) of a phase."""
    layout = state.layout
    theta = np.empty((layout.chains, state.committed[phase], len(layout.labels)))
    specs = layout.growing(phase, state.committed[phase])
    for variable in layout.variables:
        key, start = f"{layout.sampled(phase)}/{variable.name}", 0
        for values in read_chunks(path / key, specs[key], state.sums[key][1]):
            block = values if variable.dim else values[:, :, None]
            theta[:, start : start + block.shape[1], variable.columns] = block
            start += block.shape[1]
    return theta


def digest(state: RunState, read: Callable[[str], dict[str, NDArray[Any]]]) -> str:
    """Return the SHA-256 over (key, dtype, shape, decoded bytes) of all draws and statistics.

    ``read`` returns the arrays of a group by name. The digest does not depend on attributes,
    constant data or the size of the intervals: two runs have the same digest exactly if their
    draws are the same bit for bit. Draws count on the sampler's scale alone.
    """
    total = hashlib.sha256()
    layout = state.layout
    stored = {GROUPS[phase][0]: layout.sampled(phase) for phase in state.phases()}
    for group in sorted(SAMPLES):
        if stored.get(group, group) not in state.groups():
            continue
        for name, values in sorted(read(stored.get(group, group)).items()):
            # "*" marks texts; without it the digests of all runs would change.
            text = name.encode() if values.dtype.kind != "U" else name.encode() + b"*"
            total.update(repr((group, text, values.dtype.str, values.shape)).encode())
            total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


_META: Final = "meta.json"

State = tuple[dict[str, NDArray[Any]], dict[str, Any]]


def checkpoint_content(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> bytes:
    """Return the content of a checkpoint file.

    Raises
    ------
    ConfigError
        If an array has objects, which would need pickle.
    """
    entries: dict[str, Any] = {
        _META: np.frombuffer(json.dumps(dict(meta)).encode(), dtype=np.uint8)
    }
    for name, values in arrays.items():
        entries[f"array.{name}"] = array = np.asarray(values)
        dtype_name(array.dtype)
    buffer = io.BytesIO()
    np.savez(buffer, **entries)
    return buffer.getvalue()


def read_checkpoint(path: Path, size: int, checksum: int, ending: str = "") -> State:
    """Return ``(arrays, meta)`` of the checkpoint file at ``path``, after checking it.

    Arrays are those whose names have the ending ``ending``.
    The committed root has its size and crc32c, so that a substituted file is refused before
    it is parsed. Arrays of objects are not loaded.

    Raises
    ------
    StoreError
        If the file is missing, damaged or not the committed one.
    """
    try:
        data = read_file(path, limit=size)
    except MissingError:
        raise StoreError(
            f"expected the checkpoint {path}, found none: the run is incomplete"
            ": restore the file from a copy, or begin another run"
        ) from None
    if len(data) != size or crc32c(data) != checksum:
        raise StoreError(
            f"expected {path} as it was written, found another size or checksum: the checkpoint "
            "is damaged; begin another run to go on, the draws so far can be read"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                raise ValueError("compressed ones, of any size; uncompressed arrays are written")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            meta: dict[str, Any] = json.loads(stored[_META].tobytes())
            names = [each for each in stored.files if each != _META and each.endswith(ending)]
            arrays = {name.removeprefix("array."): stored[name] for name in names}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"expected arrays and JSON in {path}, found {error}"
            ": restore the file from a copy, or begin another run"
        ) from error
    return arrays, meta


ROOT: Final = DOCUMENT

# The checkpoint folder looks like an empty zarr array, so that a reader without consolidated
# metadata does not warn about unknown files.
_OPAQUE: Final = ArraySpec((0,), (1,), "uint8", ("checkpoint_byte",))
_GROUP: Final = json.dumps(group_document({})).encode()
_CHECKPOINT: Final = re.compile(r"(\d{1,18})\.npz")

Files = dict[Path, bytes]
"""Path -> content of a file to be written."""


def array_documents(path: Path, state: RunState) -> Files:
    """Return the documents of the arrays of a run."""
    return {path / key / ROOT: spec.document_bytes() for key, spec in state.specs().items()}


def make_folders(path: Path, state: RunState) -> None:
    """Make the folders of all groups and arrays, and write their documents."""
    for name in (*state.groups(), *state.specs()):
        with reporting("create", path / name):
            (path / name).mkdir(exist_ok=True)
    files = {path / group / ROOT: _GROUP for group in state.groups()}
    files[path / FOLDER / ROOT] = _OPAQUE.document_bytes()
    write_files(files | array_documents(path, state))
    sync_directory(path)
    if not is_temporary(path):
        sync_directory(path.parent)


def write_documents(path: Path, state: RunState) -> None:
    """Rewrite the documents of arrays that do not yet have the shape of the last commit."""
    wanted = array_documents(path, state)
    current = read_files(wanted, limit=DOCUMENT_LIMIT)
    stale = {where: data for where, data in wanted.items() if current.get(where) != data}
    if stale:
        replace_files(stale, path / FOLDER)


def write_fixed(
    path: Path, arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]]
) -> dict[str, StoredArray]:
    """Write arrays ``group/name`` -> (dims, values) of one chunk each; return their entries."""
    files: Files = {}
    entries = {}
    for key, (dims, values) in arrays.items():
        with reporting("create", path / key):
            (path / key).mkdir(parents=True, exist_ok=True)
        files[(path / key).parent / ROOT] = _GROUP
        entries[key], own = store_array(path / key, dims, values)
        files |= own
    write_files(files)
    sync_directory(path)
    return entries


def encode_interval(
    path: Path, state: RunState, arrays: Mapping[str, NDArray[Any]], start: int
) -> tuple[Files, Files, dict[str, tuple[int, int]]]:
    """Return the chunk files of one interval from draw ``start`` on, and the new checksums.

    A checksum is a pair: over the full chunks, and over all draws. When a short last chunk is
    written again, longer, both are computed anew from the first.

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
        axis = spec.axis
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
        files[path / key / spec.key(number)] = encode(whole, spec.dtype)
    return new, again, sums


def _check_same(path: Path, key: str, spec: ArraySpec, number: int, values: NDArray[Any]) -> None:
    old = read_chunk(path / key, spec, number)
    new = np.asarray(values, dtype=spec.dtype).take(range(old.shape[spec.axis]), axis=spec.axis)
    if old.tobytes() != new.tobytes():
        raise IdentityError(
            f"expected the draws from {number * spec.chunk[spec.axis]} on to come out as they are "
            f"in {path / key}, found others: continue on the machine and with the versions that "
            "started this run, or choose another output"
        )


def encode_checkpoint(state: RunState, checkpoint: tuple[Any, Any]) -> tuple[bytes, Mark]:
    """Return the content of a checkpoint and its mark, for the coming commit of ``state``."""
    data = checkpoint_content(*checkpoint)
    done = state.committed
    return data, Mark(state.generation, done["warmup"], done["draws"], len(data), crc32c(data))


def checkpoint_path(path: Path, generation: int) -> Path:
    """Return the path of the checkpoint file of a generation."""
    return path / FOLDER / f"{generation}.npz"


def root_stamp(path: Path) -> FileStamp:
    """Return the stamp of the root document, which every commit changes."""
    with reporting("read", path / ROOT):
        return file_stamp(path / ROOT)


def commit_root(
    path: Path, state: RunState, attributes: Mapping[str, Any], expected: FileStamp | None
) -> FileStamp:
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
