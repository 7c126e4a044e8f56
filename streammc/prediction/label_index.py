"""Numbers of groups by their labels: an index of 16 bytes a group."""

from __future__ import annotations

import re
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
_WHOLE: Final = re.compile(rb"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
"""A whole number, also as a float is written."""
_ZEROS: Final = re.compile(rb"(-?)0+([0-9]+)(?:\.0+)?")
"""A whole number with zeros before it."""
_TRUTHS: Final = {
    b"0": (b"False", b"false", b"FALSE"),
    b"1": (b"True", b"true", b"TRUE"),
}
"""Texts of the two booleans by their number, which is the label of a boolean."""


class LabelIndex:
    """Search for the groups of a table by label; a label is compared as a whole.

    Integers and texts are compared as texts where only one of the two tables has integers. A label
    that no group has is searched for in its other spellings: whole numbers and the same as floats
    (``1``, ``1.0``), booleans as numbers and as texts (``1``, ``True``, ``true``), and, where only
    one of the two tables has integers, with zeros before a number (``1``, ``01``). It is found if
    one group has them; a group named as written comes first.

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
        found = self._as_written(wanted)
        boolean = self._groups.n_groups <= len(_TRUTHS)
        own = self._groups.labels(0, 1).dtype
        numbers = own.kind != "S"
        padded = min(own.itemsize, _NUMBER_BYTES) if not numbers and labels.dtype.kind != "S" else 0
        others = [
            (place, text)
            for place in np.flatnonzero(found == UNKNOWN).tolist()
            for text in spellings(wanted[place], boolean, numbers, padded)
        ]
        if others:
            group = self._as_written(np.array([text for _, text in others]))
            known = group != UNKNOWN
            place = np.array([place for place, _ in others])[known]
            pairs = np.unique(np.stack([place, group[known]], axis=1), axis=0)
            places, first, count = np.unique(pairs[:, 0], return_index=True, return_counts=True)
            found[places[count == 1]] = pairs[first[count == 1], 1]
        return found[inverse]

    def example(self) -> str:
        """Return the label of a group."""
        return label_text(self._groups.labels(0, 1)[0])

    def _as_written(self, wanted: NDArray[np.bytes_]) -> Index:
        """Return the number of the group of each text (m,), or ``UNKNOWN``."""
        hashes = _hashes(wanted)
        at = np.searchsorted(self._hashes, hashes)
        found = np.full(len(wanted), UNKNOWN)
        open_ = np.arange(len(wanted))
        while True:  # again for labels whose hash is also that of another group
            open_ = open_[at[open_] < len(self._hashes)]
            open_ = open_[self._hashes[at[open_]] == hashes[open_]]
            if not len(open_):
                return found
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


def label_text(label: Any) -> str:
    """Return a label, an int64 or a text as bytes, for a message."""
    return (label.decode() if isinstance(label, bytes) else str(label))[:60]


def spellings(label: bytes, boolean: bool, numbers: bool = False, padded: int = 0) -> list[bytes]:
    """Return the other texts of a label that is a whole number or a boolean; else none.

    Parameters
    ----------
    label
        The label as it is written.
    boolean
        Whether a number can be that of a boolean: the groups are not more than two.
    numbers
        Whether the labels of the groups are integers, so that ``01`` is 1.
    padded
        Longest text of a label of the groups, if 1 may be written ``01`` there; else 0.
    """
    zeros = _ZEROS.fullmatch(label) if numbers else None
    if zeros is not None:
        return [b"%d" % int(zeros[1] + zeros[2])]
    whole = _WHOLE.fullmatch(label)
    texts: list[bytes] = []
    if whole is not None:
        number = b"0" if whole[1] == b"-0" else whole[1]
        texts = [number, number + b".0", *_TRUTHS.get(number, ())]
        texts += [number.zfill(width) for width in range(len(number) + 1, padded + 1)]
    for number, truths in _TRUTHS.items():
        if label in truths:
            texts = [*truths, *([number] if boolean else [])]
    return [text for text in texts if text != label]


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
