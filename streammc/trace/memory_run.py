"""A run in memory, whose files are written when its path is opened."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import StreammcError
from streammc.trace import commit
from streammc.trace import commit as checkpoints
from streammc.trace.addresses import given_path
from streammc.trace.disk import reporting
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import (
    GROUPS,
    Dimensioned,
    Layout,
    RunState,
    initial_arrays,
)
from streammc.trace.zarr_files import StoredArray, whole_spec
from streammc.unfinished import discard_folder, temporary_folder, write_later

MOST_BYTES: Final = 16 * 2**20
"""Largest draws, statistics and control variates, in bytes, of a run that is kept in memory."""


class Commit(NamedTuple):
    """One call of :meth:`MemoryRun.append`."""

    theta: NDArray[np.float64]
    stats: Mapping[str, NDArray[Any]]
    checkpoint: tuple[dict[str, NDArray[Any]], dict[str, Any]]


class MemoryRun(RunDirectory):
    """The trace of a run without a path: the same arrays as in a directory, in memory.

    One process makes it in one go: it is not resumed. After :meth:`hold` it is written as a run
    directory when ``RunDirectory.open`` is called for its path.
    """

    def __init__(self, path: Path, state: RunState, attributes: dict[str, Any]) -> None:
        super().__init__(path, state, attributes)
        self._commits: dict[str, list[Commit]] = {"warmup": [], "draws": []}
        self._fixed: dict[str, Dimensioned] = {}
        self._initial: dict[str, Any] = {}

    def _start(
        self, constant_data: Mapping[str, Any], prepare: Callable[[Path], None] | None
    ) -> None:
        self._initial = {"constant_data": dict(constant_data), "prepare": prepare}
        state = self._state
        arrays = initial_arrays(state.layout, state.phases(), constant_data)
        self._commit(self._with_fixed(arrays))

    @classmethod
    @contextmanager
    def hold(
        cls, path: str | os.PathLike[str], *, identity: Mapping[str, Any], **plan: Any
    ) -> Iterator[RunDirectory]:
        """Make a run for the temporary folder ``path``, which gets its files later."""
        run = cls.create(given_path(path), identity=identity, **plan)
        yield run
        if not run._failed:
            write_later(run.path, run.nbytes, run.write)

    @contextmanager
    def lock(self) -> Iterator[RunDirectory]:
        """Yield the run: no other process can know it."""
        yield self

    @property
    def nbytes(self) -> int:
        """Bytes of all draws, statistics and checkpoints, and of the control variates."""
        return _expansion_bytes(self._state.layout) + sum(
            array.nbytes
            for commits in self._commits.values()
            for theta, stats, (saved, _) in commits
            for array in (theta, *stats.values(), *saved.values())
        )

    def append(
        self,
        phase: str,
        theta: NDArray[np.float64],
        stats: Mapping[str, NDArray[Any]],
        checkpoint: tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]],
    ) -> None:
        """Keep one interval, or several whole ones; see :meth:`RunDirectory.append`."""
        start, length, kept = self._checked(phase, theta, stats)
        dtypes = self._state.layout.stats
        copied = {name: np.array(kept[name], dtypes[name]) for name in dtypes}
        # The chains go on with their arrays; a file would have had the values of now.
        arrays, meta = copy.deepcopy((dict(checkpoint[0]), dict(checkpoint[1])))
        made = self._commits[phase]
        made.append(Commit(theta.copy(), copied, (arrays, meta)))
        if len(made) > 2:  # a directory keeps the last two, too
            made[-3] = made[-3]._replace(checkpoint=({}, {}))
        generation = self._state.generation + -(-length // self.interval)
        committed = {**self._state.committed, phase: start + length}
        self._commit(replace(self._state, generation=generation, committed=committed))

    def discard(self) -> None:
        """Forget the run; do not use this object after."""
        self._failed = True

    def checkpoint(self) -> checkpoints.State | None:
        """Return the state from which the next interval continues; None at the start of the run."""
        made = self._commits["draws"] or self._commits["warmup"]
        return copy.deepcopy(made[-1].checkpoint) if made else None

    def read_group(self, name: str, only: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays of a group by name: all, or those of ``only``."""
        commit.require_group(self.path, self._state, name)
        arrays: dict[str, NDArray[Any]] = {}
        for phase in self._state.phases():
            if name in GROUPS[phase]:
                grown = self._state.layout.interval_arrays(
                    phase, 0, self.draws_matrix(phase), self._statistics(phase)
                )
                arrays |= _of_group(name, grown)
        arrays |= {key: values.copy() for key, (_, values) in _of_group(name, self._fixed).items()}
        return {key: array for key, array in arrays.items() if only is None or key in only}

    @property
    def state(self) -> RunState:
        """State of the run, without checksums."""
        return self._state

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        return self._state.groups()

    def dimensioned(self, group: str) -> dict[str, Dimensioned]:
        """Return ``(dims, values)``, copied, of the arrays of a group by name."""
        specs = _of_group(group, self._state.specs())
        return {name: (specs[name].dims, a) for name, a in self.read_group(group).items()}

    def _read_fixed(self, key: str) -> NDArray[Any]:
        """Return a copy of the array ``group/name``."""
        return np.array(self._fixed[key][1])

    def draws_matrix(self, phase: str = "draws") -> NDArray[np.float64]:
        """Return the draws of theta (chain, draw, d), columns as :attr:`labels`."""
        empty = np.empty((self.chains, 0, len(self.labels)))
        return np.concatenate([empty, *[done.theta for done in self._commits[phase]]], axis=1)

    def _statistics(self, phase: str) -> dict[str, NDArray[Any]]:
        """Return the statistics (chain, draw) of a phase by name."""
        chains, made = self.chains, self._commits[phase]
        return {
            name: np.concatenate(
                [np.empty((chains, 0), dtype), *[done.stats[name] for done in made]], axis=1
            )
            for name, dtype in self._state.layout.stats.items()
        }

    def write(self) -> None:
        """Write the run as a directory at its path, complete or not at all.

        Raises
        ------
        StorageIOError, AccessError
            If the file system refuses.
        """
        partial = temporary_folder("streammc-run-")
        plan = {"layout": self._state.layout, "draws": self.draws, "warmup": self.warmup}
        identity, own = self.identity, {"attributes": self.attributes, **self._initial}
        with RunDirectory.hold(partial, identity=identity, **plan, **own) as run:
            for phase in self._state.phases():
                for done in self._commits[phase]:
                    run.append(phase, *done)
            known = set(run._state.fixed)
            added = {key: array for key, array in self._fixed.items() if key not in known}
            for name in sorted({key.partition("/")[0] for key in added}):
                run.add_group(name, _of_group(name, added))
        try:
            with reporting("create", self.path):
                os.rename(partial, self.path)
        except StreammcError:
            if not (self.path / commit.ROOT).exists():  # else a fork of this process has written it
                raise
        finally:
            discard_folder(partial)

    def _with_fixed(self, arrays: Mapping[str, Dimensioned]) -> RunState:
        # Copies: the caller keeps its arrays, and the file is written later.
        kept = {key: (tuple(dims), np.array(values)) for key, (dims, values) in arrays.items()}
        entries = {k: StoredArray(whole_spec(*array), 0, 0) for k, array in kept.items()}
        self._fixed |= kept
        return replace(self._state, fixed={**self._state.fixed, **entries})

    def _commit(self, state: RunState) -> None:
        self._state = state
        self._fixed = {key: self._fixed[key] for key in state.fixed}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        yield


def _of_group(name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a group, whose keys are ``group/name``, by name."""
    return {
        key.partition("/")[2]: values
        for key, values in arrays.items()
        if key.partition("/")[0] == name
    }


def fits_in_memory(layout: Layout, iterations: int) -> bool:
    """Return whether a run of so many iterations, warm-up included, is kept in memory."""
    columns = len(layout.labels) + len(layout.stats)
    drawn = layout.chains * iterations * columns * 8
    return drawn + _expansion_bytes(layout) <= MOST_BYTES


def _expansion_bytes(layout: Layout) -> int:
    """Return about the bytes of the control variates of a run, which are written with it."""
    return 5 * 8 * len(layout.labels) ** 2
