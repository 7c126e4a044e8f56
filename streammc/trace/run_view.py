"""The reader's view of a run on disk: the state of its last commit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streammc.errors import MissingError, StoreError
from streammc.trace import checkpoint as checkpoints
from streammc.trace import commit, contents
from streammc.trace.address_names import named, named_errors
from streammc.trace.durable import read_file
from streammc.trace.kinds import RUN, refuse_other_kind
from streammc.trace.local_path import is_address
from streammc.trace.places import run_folder
from streammc.trace.sealed import DOCUMENT_LIMIT, unseal
from streammc.trace.state import RunState, state_from_json
from streammc.trace.temporary import write_now


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
            contents.check_contents(where, run._state)
        return run

    @property
    def place(self) -> str:
        """Address of the run, or its absolute path."""
        return named(os.path.abspath(self.path))

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
        return self._state.next_start(self.phase)

    @property
    def next_length(self) -> int:
        """Number of draws of the next interval; 0 if all draws are committed."""
        left = self._state.planned(self.phase) - self.next_start
        return min(self.interval, left)

    @property
    def next_whole(self) -> int:
        """Number of whole intervals from :attr:`next_start` to the end of :attr:`phase`."""
        return (self._state.planned(self.phase) - self.next_start) // self.interval

    def finished(self, draws: int | None = None) -> bool:
        """Return whether the warm-up and ``draws`` draws (default: as planned) are committed."""
        wanted = self.draws if draws is None else draws
        return self.committed_warmup >= self.warmup and self.committed_draws >= wanted

    def checkpoint(self) -> checkpoints.State | None:
        """Return the verified state from which the next interval continues.

        The state of the last commit, or, if an extended run must compute its last short chunk
        again, of the start of that chunk; ``None`` at the start of a run.

        Raises
        ------
        StoreError
            If the file is missing, damaged or not the committed one.
        """
        mark = self._state.mark()
        if mark is not None:
            where = commit.checkpoint_path(self.path, mark.generation)
            return checkpoints.decode(where, mark.size, mark.crc32c)
        if self.committed_warmup or self.next_start:
            raise StoreError(f"expected a checkpoint in {self.path}, found none: start again")
        return None

    def read_group(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the committed arrays of a group by name, with verified checksums."""
        return contents.read_group(self.path, self._state, name)

    def digest(self) -> str:
        """Return the SHA-256 of all committed draws and statistics, warm-up included."""
        return contents.digest(self._state, self.read_group)

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
        return contents.read_fixed(self.path, self._state, key)

    def draws_matrix(self, phase: str = "draws") -> NDArray[np.float64]:
        """Return the committed draws of theta (chain, draw, d), columns as :attr:`labels`."""
        return contents.read_theta(self.path, self._state, phase)


def read_root(path: Path) -> tuple[RunState, dict[str, Any]]:
    """Return the state and the attributes in the root document of a run."""
    where = path / commit.ROOT
    try:
        attributes, own = unseal(read_file(where, limit=DOCUMENT_LIMIT), where)
    except MissingError:
        raise StoreError(
            f"expected a run of streammc at {path}, found no {commit.ROOT}: check the path"
        ) from None
    return state_from_json(own, where), attributes
