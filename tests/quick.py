"""Parameters of which some are for ``make test`` and the others are slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def diagonal(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return pairs with every value of both."""
    count = max(len(left), len(right))
    return [(left[i % len(left)], right[i % len(right)]) for i in range(count)]
