"""The pass over the groups that writes the moments of their effects, in constant memory.

Groups begin anywhere in a block of rows, so that no task of the pass has a whole chunk of the
result. Every call writes a part, named by its first group, and the parts become chunks at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError, StorageIOError
from streammc.models.mixed.group_constants import PANEL_CELLS
from streammc.models.mixed.group_effects import (
    BETWEEN,
    MEAN,
    QUANTILES,
    VARIANCE,
    table_effects,
)
from streammc.models.mixed.mixed_model import TableModel
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
    ends: tuple[float, ...]
    """Probabilities of the quantiles."""

    def moments(self, places: Matrix) -> NDArray[np.float64]:
        """Return moments and quantiles (m, effects, 3 + P) of groups by their rows (2, m)."""
        model = self.model
        nodes = PANEL_CELLS if model.slope is None else model.nodes
        levels = np.array([self.ends, [NormalDist().inv_cdf(p) for p in self.ends]])
        out = np.empty((places.shape[1], len(model.effects), QUANTILES + len(self.ends)))
        table_effects(
            self.theta,
            places,
            model.constants,
            replace(model, nodes=nodes).constants,
            self.shift,
            self.scale,
            levels,
            out,
        )
        return out

    def map(self, block: RowBlock) -> Totals:
        """Write the moments of the groups of a block."""
        places = np.ascontiguousarray(block.X.T, dtype=np.float64)
        moments = self.moments(places)
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
    names
        Names of the quantiles.

    Raises
    ------
    StorageIOError
        If parts are missing: written by a process that does not share this file system.
    """
    folder = writer.folder / _PARTS
    start = 0
    shape = (effects, QUANTILES + len(names))
    for moments in _chunks(folder, len(offset) - 1, shape, writer.chunk_rows):
        stop = start + len(moments)
        columns: dict[str, NDArray[Any]] = {
            "mean": moments[..., MEAN],
            "sd": np.sqrt(moments[..., VARIANCE]),
            "rows": np.diff(offset[start : stop + 1]),
        }
        for k, name in enumerate(names):
            columns[name] = moments[..., QUANTILES + k]
        writer.target.write(start, columns)
        start = stop
    with reporting("delete", folder):
        shutil.rmtree(folder)


def _chunks(
    folder: Path, groups: int, shape: tuple[int, int], chunk: int
) -> Iterator[NDArray[np.float64]]:
    """Yield the moments (m, *shape) of all groups; m is ``chunk``, but for the last."""
    buffer = np.empty((chunk, *shape))
    filled = done = 0
    for start in sorted(int(path.name) for path in folder.iterdir()):
        if start != done:
            break
        with reporting("read", folder / str(start)):
            part = np.frombuffer((folder / str(start)).read_bytes()).reshape(-1, *shape)
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
