"""Parameters of which some are for ``make test`` and the others are slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], *names: Any) -> list[Any]:
    """Return all values as parameters; those that are not among ``names`` are marked slow."""
    found = list(values)
    unknown = set(names) - set(found)
    assert not unknown, unknown
    return [
        value if value in names else pytest.param(value, marks=pytest.mark.slow) for value in found
    ]


def quick_pairs(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """Return every pair; those of one diagonal are quick, so that each value is in one of them."""
    columns = list(right)
    return [
        pytest.param(a, b, marks=() if (i - j) % len(columns) == 0 else pytest.mark.slow)
        for i, a in enumerate(left)
        for j, b in enumerate(columns)
    ]
