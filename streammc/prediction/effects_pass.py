"""The pass over the groups that writes the moments of their effects, in constant memory.

Groups begin anywhere in a block of rows, so that no task of the pass has a whole chunk of the
result. Every call writes a part, named by its first group, and the parts become chunks at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError, StorageIOError
from streammc.models.mixed.group_effects import (
    BETWEEN,
    MEAN,
    MOMENTS,
    THIRD,
    VARIANCE,
    table_effects,
)
from streammc.models.mixed.table_model import TableModel
from streammc.protocols import Index, Matrix, RowBlock, Vector
from streammc.trace.durable import reporting
from streammc.trace.row_arrays import RowArrays

_PARTS: Final = "parts"
"""Folder of the parts, in that of the unfinished result."""


class Totals(NamedTuple):
    """Result of the pass over some groups."""

    groups: int
    mean_error: Vector
    """(effects,) largest variance of a mean over draws of theta, in variances of its effect."""


@dataclass(frozen=True, eq=False)
class EffectsTask:
    """``PassTask`` on the groups of a table that writes the moments of their effects."""

    model: TableModel
    theta: Matrix
    """(S, d) draws."""
    shift: float
    scale: float
    """Standardisation of the slope's column: mean over scale, and scale."""
    folder: str

    def map(self, block: RowBlock) -> Totals:
        """Write the moments of the groups of a block."""
        places = np.ascontiguousarray(block.X.T, dtype=np.float64)
        moments = np.empty((len(block.X), len(self.model.effects), MOMENTS))
        table_effects(self.theta, places, self.model.constants, self.shift, self.scale, moments)
        wrong = np.flatnonzero(~np.isfinite(moments).all(axis=(1, 2)))
        if len(wrong):
            raise DataError(
                f"expected a finite likelihood of every group at the draws of the run, found none "
                f"of group {block.start + int(wrong[0]) + 1} of {self.model.column!r}, in the "
                "order of the store: check its columns"
            )
        where = Path(self.folder) / str(block.start)
        with reporting("write", where):
            where.write_bytes(moments.tobytes())
        share = moments[..., BETWEEN] / np.maximum(moments[..., VARIANCE], 1e-300)
        return Totals(len(block.X), share.max(axis=0) / len(self.theta))

    def combine(self, left: Totals, right: Totals) -> Totals:
        """Return the totals of two neighbouring blocks."""
        error = np.maximum(left.mean_error, right.mean_error)
        return Totals(left.groups + right.groups, error)


def parts_folder(writer: RowArrays) -> Path:
    """Return a new folder for the parts, which ends with the writer."""
    folder = writer.folder / _PARTS
    with reporting("create", folder):
        folder.mkdir()
    return folder


def write_chunks(
    writer: RowArrays,
    offset: Index,
    effects: int,
    names: Sequence[str],
    probabilities: Sequence[float],
) -> None:
    """Write the arrays of the result from the parts, chunk by chunk, and delete the parts.

    Parameters
    ----------
    writer
        Writer of the result.
    offset
        (K + 1,) first row of each group.
    effects
        Number of effects of a group.
    names, probabilities
        Ends of the interval.

    Raises
    ------
    StorageIOError
        If parts are missing: written by a process that does not share this file system.
    """
    folder = writer.folder / _PARTS
    start = 0
    for moments in _chunks(folder, len(offset) - 1, effects, writer.chunk_rows):
        stop = start + len(moments)
        columns: dict[str, NDArray[Any]] = {
            "mean": moments[..., MEAN],
            "sd": np.sqrt(moments[..., VARIANCE]),
            "rows": np.diff(offset[start : stop + 1]),
        }
        for name, probability in zip(names, probabilities, strict=True):
            columns[name] = quantile(moments, probability)
        writer.target.write(start, columns)
        start = stop
    with reporting("delete", folder):
        shutil.rmtree(folder)


def quantile(moments: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
    """Return a quantile from moments (..., 4): the normal one, corrected for skewness.

    The first terms of the expansion of Cornish and Fisher (1938).
    """
    z = NormalDist().inv_cdf(probability)
    sd = np.sqrt(moments[..., VARIANCE])
    skewness = moments[..., THIRD] / np.maximum(sd**3, 1e-300)
    found: NDArray[np.float64] = moments[..., MEAN] + sd * (z + (z * z - 1.0) * skewness / 6.0)
    return found


def _chunks(folder: Path, groups: int, effects: int, chunk: int) -> Iterator[NDArray[np.float64]]:
    """Yield the moments (m, effects, 4) of all groups; m is ``chunk``, but for the last."""
    buffer = np.empty((chunk, effects, MOMENTS))
    filled = done = 0
    for start in sorted(int(path.name) for path in folder.iterdir()):
        if start != done:
            break
        with reporting("read", folder / str(start)):
            part = np.frombuffer((folder / str(start)).read_bytes()).reshape(-1, effects, MOMENTS)
        done += len(part)
        while len(part):
            step = min(chunk - filled, len(part))
            buffer[filled : filled + step] = part[:step]
            part, filled = part[step:], filled + step
            if filled == chunk:
                yield buffer
                filled = 0
    if done != groups:
        raise StorageIOError(
            f"expected the effects of {groups} groups in {folder}, found those of {done}: choose "
            "a folder that every worker shares"
        )
    if filled:
        yield buffer[:filled]
