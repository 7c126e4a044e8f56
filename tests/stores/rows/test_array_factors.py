from __future__ import annotations

import numpy as np
import pytest

from streammc.errors import ConfigError, DataError
from streammc.stores.memory import from_arrays
from streammc.stores.rows.row_blocks import whole

X = np.arange(12.0).reshape(6, 2)
G, H = np.array([0, 1, 3, 0, 2, 3]), np.array([1, 0, 1, 1, 0, 0], np.uint8)


def test_factors_follow_the_columns_as_indicators_of_every_level_but_0():
    data = from_arrays(X, np.zeros(6), factors={"g": G, "h": H})
    expected = np.column_stack([X, G == 1, G == 2, G == 3, H == 1]).astype(float)
    (block,) = data.blocks()
    np.testing.assert_array_equal(expected, whole(block).X)
    assert ("x0", "x1", "g[T.1]", "g[T.2]", "g[T.3]", "h[T.1]") == data.feature_names
    assert 2 * 8 + 8 + 2 * 2 == data.rows().row_bytes
    assert data.fingerprint != from_arrays(X, np.zeros(6), factors={"g": G, "h": 1 - H}).fingerprint


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (G - 1, "values from -1 to 2"),
        (np.zeros(6, int), "values from 0 to 0"),
        (G[:5], r"shape \(5,\)"),
        (G + 0.0, "float64"),
        (G + 70000, "to 70003"),
    ],
)
def test_values_that_number_no_levels_are_refused(wrong, found):
    with pytest.raises(DataError, match=f"factor 'g', found {found}|factor 'g', found .*{found}"):
        from_arrays(X, factors={"g": wrong})


def test_factors_need_names_and_no_groups():
    with pytest.raises(ConfigError, match="factors by name, found list"):
        from_arrays(X, factors=[G])
    with pytest.raises(ConfigError, match="factors by name, found none"):
        from_arrays(X, factors={})
    with pytest.raises(ConfigError, match="factors or groups, found both"):
        from_arrays(X, factors={"g": G}, groups=H)
    with pytest.raises(DataError, match="different names"):
        from_arrays(X, factors={"g": G}, feature_names=["g[T.1]", "b"])
