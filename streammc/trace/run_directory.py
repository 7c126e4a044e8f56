"""The run directory: a zarr group that grows by whole intervals, each by an atomic commit.

Order of a commit: new chunk files and the checkpoint are written and fsynced, then their
directories are fsynced, then the root ``zarr.json`` is replaced by a rename. No committed
file is written in place. Only the consolidated metadata of the root define the number of
draws: files of an interrupted interval are beyond the committed shape, and the next attempt
overwrites them.

A reader that ignores the consolidated metadata uses the documents of the arrays. The writer
updates them when it releases the run, so that they may show fewer draws than committed, but
never uncommitted draws.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, OutputError, StorageIOError, StreammcError
from streammc.trace import commit, durable, places
from streammc.trace.codec import check_name
from streammc.trace.finite import require_finite
from streammc.trace.identity import check_identity
from streammc.trace.layout import SAMPLES, Dimensioned, Layout, initial_arrays
from streammc.trace.lock import FOLDER, is_locked_here, run_lock
from streammc.trace.run_view import RunView, read_root
from streammc.trace.sealed import plain
from streammc.trace.state import RunState, new_state

__all__ = ["RunDirectory", "check_identity"]


class RunDirectory(RunView):
    """The trace of a run on disk, for reading and writing.

    Made by :meth:`create`, :meth:`open` or :meth:`hold`. Every method that writes needs
    :meth:`lock`. See the module docstring for the order of a commit.
    """

    def __init__(self, path: Path, state: RunState, attributes: dict[str, Any]) -> None:
        super().__init__(path, state, attributes)
        self._stamp: commit.Stamp | None = None
        self._failed = False

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        identity: Mapping[str, Any],
        layout: Layout,
        draws: int,
        warmup: int,
        attributes: Mapping[str, Any] | None = None,
        constant_data: Mapping[str, Any] | None = None,
        prepare: Callable[[Path], None] | None = None,
    ) -> Self:
        """Start a run at ``path``, with nothing committed.

        Parameters
        ----------
        path
            Directory that is absent, empty, or left by an interrupted start; or an address.
        identity
            JSON of everything that determines the draws, except their number.
        layout
            Arrays of the run; see ``layout.make_layout``. Only the last commit of a phase may have
            fewer draws than ``layout.interval``.
        draws, warmup
            Numbers of draws and warm-up iterations; :meth:`extend` can change ``draws``.
        attributes
            JSON attributes of the root group.
        constant_data
            Arrays of the group ``constant_data``: values, or ``(dims, values)``.
        prepare
            Called with ``path`` to write further files of the run before readers can see it:
            if it fails, there is no run.

        Raises
        ------
        ConfigError
            If a number of iterations is negative, or ``attributes`` has a reserved key.
        OutputError
            If ``path`` has other files, or a run.
        BusyError
            If another process has locked it.
        """
        where = places.run_folder(path)
        if draws < 0 or warmup < 0:
            raise ConfigError(
                f"expected draws and warmup >= 0, found {draws} and {warmup}: give 0 or more"
            )
        state = new_state(layout, identity, warmup, draws)
        run = cls(where, state, _user_attributes(attributes or {}))
        run._start(constant_data or {}, prepare)
        return run

    def _start(
        self, constant_data: Mapping[str, Any], prepare: Callable[[Path], None] | None
    ) -> None:
        """Write all files of a new run, the root document last."""
        path, state = self.path, self._state
        with nullcontext() if is_locked_here(path) else run_lock(path):
            if self.exists(path):
                raise OutputError(f"expected no run at {path} yet, found one: open it instead")
            commit.make_folders(path, state)
            if prepare is not None:
                prepare(path)
            arrays = initial_arrays(state.layout, state.phases(), constant_data)
            self._commit(self._with_fixed(arrays))

    @contextmanager
    def lock(self) -> Iterator[RunDirectory]:
        """Lock the run for writing, and read its state from disk again.

        Raises
        ------
        BusyError
            If another process, or another thread of this one, has the lock.
        """
        with run_lock(self.path), self.copied():
            self._state, self._attributes = read_root(self.path)
            with self._watched():
                yield self

    @classmethod
    @contextmanager
    def hold(
        cls, path: str | os.PathLike[str], *, identity: Mapping[str, Any], **plan: Any
    ) -> Iterator[RunDirectory]:
        """Open the run at ``path``, or :meth:`create` it, and lock it for writing.

        If several processes start the same job at once, one of them gets the run and the
        others a ``BusyError``.

        Raises
        ------
        IdentityError
            If the run at ``path`` is of another job.
        """
        where = places.run_folder(path)
        if cls.exists(where):
            check_identity(cls.open(where, verify=False).identity, identity)
        with run_lock(where), _copied(where):
            if cls.exists(where):
                run = cls.open(where)
                check_identity(run.identity, identity)
            else:
                run = cls.create(where, identity=identity, **plan)
            with run._watched():
                yield run

    def copied(self) -> AbstractContextManager[None]:
        """Copy what is written in the context to the address of the run, if it has one."""
        return _copied(self.path)

    @property
    def durable_generation(self) -> int:
        """Number of committed intervals that its place has: at an address it can lag behind."""
        return places.durable_generation(self.path, self.generation)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Record the root's stamp to detect other writers; update the array documents on exit."""
        self._stamp, self._failed = commit.root_stamp(self.path), False
        commit.write_documents(self.path, self._state)
        try:
            yield
        finally:
            if not self._failed:
                commit.write_documents(self.path, self._state)

    def append(
        self,
        phase: str,
        theta: NDArray[np.float64],
        stats: Mapping[str, NDArray[Any]],
        checkpoint: tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]],
    ) -> None:
        """Commit one interval, or several whole ones; see ``protocols.Trace``.

        The files are the same as after a commit of each.

        Parameters
        ----------
        phase
            The phase of the interval, equal to :attr:`phase`.
        theta
            (chain, n, d) finite draws, n = :attr:`next_length` or up to :attr:`next_whole` times
            :attr:`interval`.
        stats
            (chain, n) per statistic, with at least the names of ``create``; others are not kept.
        checkpoint
            Arrays and JSON from which the next interval continues.

        Raises
        ------
        StreammcError
            If an argument does not fit the next interval: an error of the caller.
        ModelError
            If a draw is not finite.
        IdentityError
            If draws that are computed again differ.
        StorageIOError, AccessError
            If the file system refuses; nothing is committed, and the run must be opened
            again to continue.
        BusyError
            If another process has committed in spite of the lock.
        """
        start, length, stats = self._checked(phase, theta, stats)
        state = self._state
        new, files, again = state, commit.Files(), commit.Files()
        with self._writing():
            for first in range(0, length, self.interval):
                part = slice(first, min(first + self.interval, length))
                arrays = state.layout.interval_arrays(
                    phase, start + first, theta[:, part], {k: v[:, part] for k, v in stats.items()}
                )
                fresh, old, sums = commit.encode_interval(self.path, new, arrays, start + first)
                files, again = files | fresh, again | old
                done = {**state.committed, phase: start + part.stop}
                new = replace(new, generation=new.generation + 1, committed=done, sums=sums)
            saved, mark = commit.encode_checkpoint(new, checkpoint)
            new = new.with_mark(mark)
            files[commit.checkpoint_path(self.path, mark.generation)] = saved
            durable.write_files(files)
            if again:
                durable.replace_files(again, self.path / FOLDER)
        self._commit(new)
        commit.remove_old_checkpoints(self.path, new)

    def _checked(
        self, phase: str, theta: NDArray[np.float64], stats: Mapping[str, NDArray[Any]]
    ) -> tuple[int, int, dict[str, NDArray[Any]]]:
        """Return first draw, length and kept statistics of an interval that is appended."""
        start, length = self.next_start, self.next_length
        whole = [n * self.interval for n in range(1, self.next_whole + 1)]
        if theta.shape[1:2] and theta.shape[1] in whole:
            length = theta.shape[1]
        shape = (self.chains, length, len(self.labels))
        if phase != self.phase or theta.shape != shape or not length:
            raise StreammcError(
                f"expected an interval of {self.phase} of shape {shape}, found {phase} "
                f"{theta.shape}: report it, with what was run"
            )
        wrong = set(self._state.layout.stats) - set(stats)
        stats = {name: stats[name] for name in self._state.layout.stats if name in stats}
        wrong |= {name for name in stats if np.shape(stats[name]) != shape[:2]}
        if wrong:
            raise StreammcError(
                f"expected statistics of shape {shape[:2]}, found {sorted(wrong)}"
                ": report it, with what was run"
            )
        require_finite(theta, self.labels, phase, start)
        return start, length, stats

    def extend(self, draws: int) -> None:
        """Change the number of planned draws; atomic.

        Afterwards the run continues from :attr:`next_start` and :meth:`checkpoint`.

        Raises
        ------
        ConfigError
            If more draws are already committed.
        """
        if draws < self.committed_draws:
            raise ConfigError(
                f"expected at least {self.committed_draws} draws, found {draws}: ask for more"
            )
        if draws != self.draws:
            self._commit(replace(self._state, draws=draws))

    def discard(self) -> None:
        """Delete the run, so that :meth:`hold` starts a new one; do not use this object after.

        The root is deleted first: after a kill in between, the directory looks like that of
        an interrupted start.

        Raises
        ------
        StorageIOError, AccessError
            If the file system refuses.
        """
        with self._writing():
            commit.remove_run(self.path)
            places.discarded(self.path)
        self._failed = True

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Add or replace attributes of the root group; atomic. NaN becomes null."""
        old = self._attributes
        self._attributes = {**old, **_user_attributes(attributes)}
        try:
            self._commit(self._state)
        except BaseException:
            self._attributes = old
            raise

    def add_group(self, name: str, arrays: Mapping[str, Dimensioned]) -> None:
        """Add a group of complete arrays; replace an existing group of this name.

        Parameters
        ----------
        name
            Name of the group.
        arrays
            ``(dims, values)`` by name.
        """
        if name in SAMPLES or name == "checkpoint":
            raise ConfigError(
                f"expected a name other than {name!r}: it is the run's own: rename it"
            )
        for part in (name, *arrays):
            check_name(part)
        others = {k: v for k, v in self._state.fixed.items() if not k.startswith(f"{name}/")}
        if len(others) < len(self._state.fixed):
            # Readers see the old arrays, then none, then the new arrays: never a mixture.
            self._commit(replace(self._state, fixed=others))
        keyed = {f"{name}/{key}": (dims, np.asarray(v)) for key, (dims, v) in arrays.items()}
        self._commit(self._with_fixed(keyed))

    def _with_fixed(self, arrays: Mapping[str, Dimensioned]) -> RunState:
        with self._writing():
            new = commit.write_fixed(self.path, arrays)
        return replace(self._state, fixed={**self._state.fixed, **new})

    def _commit(self, state: RunState) -> None:
        with self._writing():
            self._stamp = commit.commit_root(self.path, state, self._attributes, self._stamp)
            places.committed(self.path, state)
        self._state = state

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse to write without the lock, or after a write has failed."""
        if not is_locked_here(self.path):
            raise StreammcError(
                f"expected the lock of {self.path} to be held, found it free"
                ": report it, with what was run"
            )
        if self._failed:
            raise StorageIOError(
                f"expected every write to {self.path} to succeed, found that an earlier one failed:"
                " run the same command again"
            )
        try:
            yield
        except BaseException:
            self._failed = True
            raise


def _copied(path: Path) -> AbstractContextManager[None]:
    return places.copying(path, lambda: read_root(path)[0])


def _user_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    if "streammc" in attributes:
        raise ConfigError("expected attributes without the reserved key 'streammc': rename it")
    return dict(plain(attributes))
