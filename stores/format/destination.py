"""The place that a new store is written to: a directory, or a folder of an object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streammc.owner_mark import marked_folder
from streammc.stores.cloud.address import Root
from streammc.stores.format.partial import PartialDirectory, refuse_existing, scratch


class PartialStore(Protocol):
    """A store that is being written; readers see nothing of it before :meth:`commit`."""

    def write(self, key: str, content: bytes | NDArray[np.uint8], *, cached: bool = True) -> None:
        """Write one new object."""

    def commit(self, keys: Iterable[str], last_key: str, last: bytes) -> None:
        """Write ``last``, which makes the objects ``keys`` a store."""

    def discard(self) -> None:
        """Remove everything; do nothing after :meth:`commit`."""


def refuse_output(root: Root, *, overwrite: bool = False) -> None:
    """Refuse a place where something is; see ``partial.refuse_existing``."""
    if isinstance(root, Path):
        refuse_existing(root, overwrite=overwrite)
    else:
        from streammc.stores.cloud.upload import refuse_occupied

        refuse_occupied(root, overwrite=overwrite)


@contextmanager
def scratch_for(root: Root) -> Iterator[Path]:
    """Make a directory for temporary files: beside ``root``, or that of the system's."""
    if isinstance(root, Path):
        with scratch(root) as folder:
            yield folder
        return
    with marked_folder("streammc-") as folder:
        yield folder


def new_output(root: Root, folders: Sequence[str], *, overwrite: bool = False) -> PartialStore:
    """Return the writer of the objects of a new store."""
    if isinstance(root, Path):
        return PartialDirectory(root, folders, overwrite=overwrite)
    from streammc.stores.cloud.upload import Upload

    return Upload(root)
