"""The run directory: a zarr group that grows by whole intervals, each by an atomic commit.

Order of a commit: new chunk files and the checkpoint are written and fsynced, then their
directories are fsynced, then the root ``zarr.json`` is replaced by a rename. No committed
file is written in place. Only the consolidated metadata of the root define the number of
draws: files of an interrupted interval are beyond the committed shape, and the next attempt
overwrites them.

A reader that ignores the consolidated metadata uses the documents of the arrays. The writer
updates them when it releases the run, so that they may show fewer draws than committed, but
never uncommitted draws.

A run without a path stays in memory if it is small (:class:`MemoryRun`), and is written when its
path is opened.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    ConfigError,
    IdentityError,
    MissingError,
    ModelError,
    OutputError,
    StorageIOError,
    StoreError,
    StreammcError,
)
from streammc.trace import commit, disk, places
from streammc.trace import commit as checkpoints
from streammc.trace.addresses import given_path, is_address, named, named_errors
from streammc.trace.disk import FileStamp, read_file, reporting
from streammc.trace.kinds import RUN, refuse_other_kind
from streammc.trace.lock import FOLDER, is_locked_here, run_lock
from streammc.trace.places import run_folder
from streammc.trace.run_state import (
    GROUPS,
    OWN,
    Dimensioned,
    Layout,
    RunState,
    initial_arrays,
    new_state,
    state_from_json,
)
from streammc.trace.zarr_files import (
    DOCUMENT_LIMIT,
    StoredArray,
    check_name,
    plain,
    read_stored,
    unseal,
    whole_spec,
)
from streammc.unfinished import discard_folder, temporary_folder, write_later, write_now


class RunView:
    """The committed part of a run, for reading; made by :meth:`open`."""

    def __init__(self, path: Path, state: RunState, attributes: dict[str, Any]) -> None:
        self.path = path
        self._state = state
        self._attributes = attributes

    @staticmethod
    def exists(path: str | os.PathLike[str]) -> bool:
        """Return whether a run was started at ``path``."""
        where = run_folder(path) if is_address(path) else Path(path)
        write_now(where)
        return (where / commit.ROOT).exists()

    @classmethod
    @named_errors
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Self:
        """Open a run, finished or not.

        Parameters
        ----------
        path
            Directory of the run, or its address (``s3://bucket/run``): its newest commit is
            fetched into a local folder, with all checksums.
        verify
            Read and check every committed byte; otherwise only the root document.

        Raises
        ------
        MissingError
            If there is nothing at ``path``.
        StoreError
            If it is not a run, or damaged; the message names the file.
        """
        where = run_folder(path)
        write_now(where)
        if not where.exists():
            raise MissingError(f"expected a run at {where}, found nothing: check the path")
        refuse_other_kind(where, RUN)
        run = cls(where, *read_root(where))
        if verify:
            commit.check_contents(where, run._state)
        return run

    @property
    def place(self) -> str:
        """Address of the run, or its absolute path."""
        return named(os.path.abspath(self.path))

    @property
    def state(self) -> RunState:
        """Layout, plan and last commit of the run."""
        return self._state

    @property
    def identity(self) -> dict[str, Any]:
        """JSON of everything that determines the draws, except their number."""
        return dict(self._state.identity)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group, without the reserved key ``streammc``."""
        return dict(self._attributes)

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per component of theta."""
        return self._state.layout.labels

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self._state.layout.features

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self._state.layout.chains

    @property
    def interval(self) -> int:
        """Number of draws in one commit."""
        return self._state.layout.interval

    @property
    def draws(self) -> int:
        """Planned number of draws."""
        return self._state.draws

    @property
    def warmup(self) -> int:
        """Planned number of warm-up iterations."""
        return self._state.warmup

    @property
    def generation(self) -> int:
        """Number of committed intervals so far, of both phases."""
        return self._state.generation

    @property
    def phase(self) -> str:
        """``warmup`` or ``draws``: the phase of the next interval."""
        return self._state.phase()

    @property
    def committed_warmup(self) -> int:
        """Number of committed warm-up iterations."""
        return self._state.committed["warmup"]

    @property
    def committed_draws(self) -> int:
        """Number of committed draws."""
        return self._state.committed["draws"]

    @property
    def next_start(self) -> int:
        """Index in :attr:`phase` at which the next interval starts.

        If the last chunk is short and the run was extended, the interval starts at that chunk:
        its committed draws are computed again and must be the same.
        """
        return self._state.next_interval().start

    @property
    def next_length(self) -> int:
        """Number of draws of the next interval; 0 if all draws are committed."""
        return self._state.next_interval().length

    @property
    def next_whole(self) -> int:
        """Number of whole intervals from :attr:`next_start` to the end of :attr:`phase`."""
        return self._state.next_interval().whole

    def finished(self, draws: int | None = None) -> bool:
        """Return whether the warm-up and ``draws`` draws (default: as planned) are committed."""
        wanted = self.draws if draws is None else draws
        return self.committed_warmup >= self.warmup and self.committed_draws >= wanted

    def checkpoint(self, ending: str = "") -> checkpoints.State | None:
        """Return the verified state from which the next interval continues.

        The state of the last commit, or, if an extended run must compute its last short chunk
        again, of the start of that chunk; ``None`` at the start of a run. Of its arrays those whose
        names have the ending ``ending``.

        Raises
        ------
        StoreError
            If the file is missing, damaged or not the committed one.
        """
        mark = self._state.mark()
        if mark is not None:
            where = commit.checkpoint_path(self.path, mark.generation)
            return checkpoints.read_checkpoint(where, mark.size, mark.crc32c, ending)
        if self.committed_warmup or self.next_start:
            raise StoreError(f"expected a checkpoint in {self.path}, found none: start again")
        return None

    def read_group(self, name: str, only: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
        """Return the committed arrays of a group by name, with verified checksums.

        With ``only`` those of these names that the group has.
        """
        return commit.read_group(self.path, self._state, name, only)

    def statistics(self, *names: str, phase: str = "draws") -> dict[str, NDArray[Any]]:
        """Return the statistics (chain, draw) of these names that the run has, by name."""
        return self.read_group(GROUPS[phase][1], names)

    def digest(self) -> str:
        """Return the SHA-256 of all committed draws and statistics, warm-up included."""
        return commit.digest(self._state, self.read_group)

    def constant_data(self, name: str) -> NDArray[Any]:
        """Return one array of the group ``constant_data``.

        Raises
        ------
        MissingError
            If there is no array of this name.
        """
        key = f"constant_data/{name}"
        if key not in self._state.fixed:
            raise MissingError(
                f"expected constant data {name!r} in {self.path}, found none: choose another name"
            )
        return self._read_fixed(key)

    def _read_fixed(self, key: str) -> NDArray[Any]:
        """Return the array ``group/name``, which was written once."""
        return read_stored(self.path / key, self._state.fixed[key])

    def draws_matrix(self, phase: str = "draws") -> NDArray[np.float64]:
        """Return the committed draws (chain, draw, d) of the sampler, columns as :attr:`labels`.

        They are on the scale of the store, as are priors, control variates and checkpoints.
        """
        return commit.read_theta(self.path, self._state, phase)


def read_root(path: Path) -> tuple[RunState, dict[str, Any]]:
    """Return the state and the attributes in the root document of a run."""
    where = path / commit.ROOT
    try:
        attributes, own = unseal(read_file(where, limit=DOCUMENT_LIMIT), where)
    except MissingError:
        raise StoreError(
            f"expected a run of streammc at {path}, found no {commit.ROOT}: check the path"
        ) from None
    return state_from_json(own, attributes, where), attributes


_SHOWN: Final = 4
_PRIOR: Final = "model.prior."
_DEFAULTS: Final = {"temperature": 1.0}
"""Entries of an identity that lacks them."""


def check_identity(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    prior_texts: Callable[[Any], Mapping[str, str]] | None = None,
) -> None:
    """Refuse a run whose identity differs from that of the requested job in any entry.

    Parameters
    ----------
    stored, wanted
        Identities of the run and of the requested job.
    prior_texts
        Returns the prior of every parameter as text, from the ``prior`` of a model in an
        identity; empty if that does not fit the parameters.

    Raises
    ------
    IdentityError
        If they differ; names the entries, as ``sampler.step_size is 0.1, asked for 0.2``.
    """
    ours, requested = (_DEFAULTS | _flat(plain(identity)) for identity in (stored, wanted))
    keys = [
        key
        for key in {**ours, **requested}
        if ours.get(key, _ABSENT) != requested.get(key, _ABSENT)
    ]
    if not keys:
        return
    priors = [] if prior_texts is None else _prior_differences(stored, wanted, prior_texts)
    if priors:
        keys = [key for key in keys if not key.startswith(_PRIOR)]
    differences = [
        f"{key} is {_short(ours.get(key, _ABSENT))}, "
        f"asked for {_short(requested.get(key, _ABSENT))}"
        for key in keys
    ] + priors
    shown = "; ".join(differences[:_SHOWN])
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    raise IdentityError(
        f"expected a run of the same job, found another one: {shown}{more}: "
        "choose another output, or ask for the same",
        "; or replace the run with --overwrite (in Python overwrite=True)",
    )


def _prior_differences(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    prior_texts: Callable[[Any], Mapping[str, str]],
) -> list[str]:
    """Return a text for each parameter whose prior differs; empty if the texts are the same."""
    ours, requested = (
        prior_texts(identity.get("model", {}).get("prior")) for identity in (stored, wanted)
    )
    return [
        f"prior of {label} is {ours[label]} in the run, {text} asked for"
        for label, text in requested.items()
        if label in ours and ours[label] != text
    ]


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT: Final = _Absent()


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            flat.update(_flat(item, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


__all__ = ["RunDirectory", "check_identity"]


class RunDirectory(RunView):
    """The trace of a run on disk, for reading and writing.

    Made by :meth:`create`, :meth:`open` or :meth:`hold`. Every method that writes needs
    :meth:`lock`. See the module docstring for the order of a commit.
    """

    def __init__(self, path: Path, state: RunState, attributes: dict[str, Any]) -> None:
        super().__init__(path, state, attributes)
        self._stamp: FileStamp | None = None
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
            disk.write_files(files)
            if again:
                disk.replace_files(again, self.path / FOLDER)
        self._commit(new)
        commit.remove_old_checkpoints(self.path, new)

    def _checked(
        self, phase: str, theta: NDArray[np.float64], stats: Mapping[str, NDArray[Any]]
    ) -> tuple[int, int, dict[str, NDArray[Any]]]:
        """Return first draw, length and kept statistics of an interval that is appended."""
        now, start, length, n_whole = self._state.next_interval()
        whole = [n * self.interval for n in range(1, n_whole + 1)]
        if theta.shape[1:2] and theta.shape[1] in whole:
            length = theta.shape[1]
        shape = (self.chains, length, len(self.labels))
        if phase != now or theta.shape != shape or not length:
            raise StreammcError(
                f"expected an interval of {now} of shape {shape}, found {phase} "
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
        if name in OWN or name == "checkpoint":
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


def require_finite(
    theta: NDArray[np.float64], labels: Sequence[str], phase: str, start: int
) -> None:
    """Refuse draws (chain, iteration, d) with a NaN or infinity.

    ``start`` is the iteration of the first draw in its phase.
    """
    finite = np.isfinite(theta)
    if finite.all():
        return
    earliest = int(np.argmin(finite.all(axis=(0, 2))))
    chain, column = (int(i) for i in np.argwhere(~finite[:, earliest])[0])
    label = labels[column]
    value = theta[chain, earliest, column]
    found = "NaN" if np.isnan(value) else "infinity" if value > 0 else "minus infinity"
    where = "the warm-up" if phase == "warmup" else f"the {phase}"
    raise ModelError(
        f"expected finite draws, found {found} in {label!r} (chain {chain}, iteration "
        f"{start + earliest + 1} of {where}): nothing holds {label!r} back, as where columns fit "
        f"the response exactly or its size is far from the priors; give {label!r} a tighter prior "
        "(--prior), rescale the response, or leave out columns"
    )


def finite_or_none(value: float | None) -> float | None:
    """Return ``value`` as a float for JSON; ``None`` if it is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


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

    def checkpoint(self, ending: str = "") -> checkpoints.State | None:
        """Return the state from which the next interval continues; None at the start of the run."""
        made = self._commits["draws"] or self._commits["warmup"]
        if not made:
            return None
        arrays, meta = made[-1].checkpoint
        return copy.deepcopy(({k: each for k, each in arrays.items() if k.endswith(ending)}, meta))

    def read_group(self, name: str, only: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays of a group by name: all, or those of ``only``."""
        commit.require_group(self.path, self._state, name)
        arrays: dict[str, NDArray[Any]] = {}
        for phase in self._state.phases():
            if name in self._state.layout.groups(phase):
                grown = self._state.layout.interval_arrays(
                    phase, 0, self.draws_matrix(phase), self._statistics(phase), {name}
                )
                arrays |= _of_group(name, grown)
        arrays |= {key: values.copy() for key, (_, values) in _of_group(name, self._fixed).items()}
        return {key: array for key, array in arrays.items() if only is None or key in only}

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
