"""Numbers of groups by their labels: an index of 16 bytes a group."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.group_table import GroupTable
from streammc.protocols import Index

UNKNOWN: Final = -1
"""Number of a label that no group has."""
_PIECE: Final = 1 << 18
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_NUMBER_BYTES: Final = 20
"""Length of the longest int64 as text."""


class LabelIndex:
    """Search for the groups of a table by label; a label is compared as a whole.

    Integers and texts are compared as texts where only one of the two tables has integers.

    Parameters
    ----------
    groups
        The groups. Their labels are read once, and again where a label is found.
    """

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups
        hashes = np.empty(groups.n_groups, np.uint64)
        for start in range(0, groups.n_groups, _PIECE):
            piece = groups.labels(start, min(start + _PIECE, groups.n_groups))
            hashes[start : start + len(piece)] = _hashes(as_text(piece))
        self._order: Index = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, labels: NDArray[Any]) -> Index:
        """Return the number of the group of each label (m,), or ``UNKNOWN``."""
        wanted, inverse = np.unique(as_text(labels), return_inverse=True)
        hashes = _hashes(wanted)
        at = np.searchsorted(self._hashes, hashes)
        found = np.full(len(wanted), UNKNOWN)
        open_ = np.arange(len(wanted))
        while True:  # again for labels whose hash is also that of another group
            open_ = open_[at[open_] < len(self._hashes)]
            open_ = open_[self._hashes[at[open_]] == hashes[open_]]
            if not len(open_):
                return found[inverse]
            group = self._order[at[open_]]
            same = self._labels_of(group) == wanted[open_]
            found[open_[same]] = group[same]
            open_ = open_[~same]
            at[open_] += 1

    def _labels_of(self, groups: Index) -> NDArray[Any]:
        """Return the labels of groups as texts, one read for each piece of the table."""
        out = np.empty(len(groups), object)
        pieces = groups // _PIECE
        for piece in np.unique(pieces):
            here = np.flatnonzero(pieces == piece)
            start = int(groups[here].min())
            stop = int(groups[here].max()) + 1
            out[here] = as_text(self._groups.labels(start, stop))[groups[here] - start]
        return out


def as_text(labels: NDArray[Any]) -> NDArray[np.bytes_]:
    """Return labels, int64 or texts as bytes, as texts."""
    return labels if labels.dtype.kind == "S" else labels.astype(f"S{_NUMBER_BYTES}")


def _hashes(texts: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Return (m,) a hash of each text; the width of the array does not matter."""
    width = -(-texts.itemsize // 8) * 8
    words = texts.astype(f"S{width}").view(np.uint8).reshape(-1, width).view("<u8")
    found = np.zeros(len(texts), np.uint64)
    for index in range(words.shape[1]):
        mixed = (found ^ words[:, index]) * _PRIME
        mixed ^= mixed >> np.uint64(32)
        found = np.where(words[:, index] != 0, mixed, found)
    return found
