"""Factors of arrays in memory: one integer a row in place of indicator columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streammc.errors import ConfigError, DataError
from streammc.numerics.coded_matrix import CODE_DTYPE, MOST_COLUMNS
from streammc.stores.format.codes import described_codes, read_columns, with_codes
from streammc.stores.format.layout import CODES, MAX_FEATURES
from streammc.stores.number_checks import unmasked


def with_factors(
    matrix: NDArray[Any], names: Sequence[str], factors: Mapping[str, ArrayLike], groups: Any
) -> tuple[Any, list[str], dict[str, Any]]:
    """Return a design with factors as codes, the names of its columns, and its attributes.

    Parameters
    ----------
    matrix
        (n, q) dense columns, the first of the design.
    names
        Their names.
    factors
        (n,) whole numbers from 0 by name. Each becomes an indicator of every value but 0.
    groups
        Must be ``None``.

    Raises
    ------
    ConfigError
        If the factors are no mapping, or there are groups.
    DataError
        If values are no whole numbers from 0, or of another length, or all are 0.
    """
    if not isinstance(factors, Mapping) or not factors:
        raise ConfigError(
            f"expected factors by name, found {'none' if factors == {} else type(factors).__name__}"
            ": give a dictionary of arrays, or leave them out"
        )
    if groups is not None:
        raise ConfigError(
            "expected factors or groups, found both: leave one out, or give the factors as columns "
            "of X"
        )
    features, stated, codes = list(names), [], []
    for name, given in factors.items():
        values = _whole_numbers(str(name), given, len(matrix))
        columns = int(values.max())
        stated.append(described_codes(str(name), len(features), columns))
        features += [f"{name}[T.{level}]" for level in range(1, columns + 1)]
        codes.append(values.astype(CODE_DTYPE))
    if len(set(features)) != len(features) or len(features) > MAX_FEATURES:
        raise DataError(
            f"expected at most {MAX_FEATURES:,} columns of different names with those of the "
            f"factors, found {len(features):,}: rename the factors, or merge rare levels"
        )
    attributes = {
        "features": features,
        CODES: stated,
        "standardization": None,
        "dtype": matrix.dtype.name,
    }
    design = with_codes(matrix, np.stack(codes, axis=1), read_columns(attributes))
    return design, features, {"features": features, CODES: stated}


def _whole_numbers(name: str, given: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Return the values of a factor (n,), checked."""
    values = unmasked(given, f"factor {name!r}")
    wrong = f"shape {values.shape} of {values.dtype}"
    if values.shape == (n_rows,) and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if low >= 0 and 0 < high <= MOST_COLUMNS:
            return values
        wrong = f"values from {low} to {high}"
    raise DataError(
        f"expected {n_rows} integers from 0 to {MOST_COLUMNS}, not all 0, as factor {name!r}, "
        f"found {wrong}: give the number of the level, 0 for the reference"
    )
