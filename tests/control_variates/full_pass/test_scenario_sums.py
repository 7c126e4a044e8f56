"""Sums over groups of rows in scenarios, against sums with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.control_variates.full_pass.scenario_sums import add_scenarios


def sums(X, ends, n_linear, changes, derivatives, tile):
    """The sums of ``add_scenarios``, of changes ``[{column: values}]``."""
    S, width, _ = derivatives.shape
    G, q, pairs = len(ends), X.shape[1], n_linear * (n_linear + 1) // 2
    gradients, hessians = np.zeros((G, S, width, q + 1)), np.zeros((G, S, pairs, q, q))
    first = np.cumsum([0, *map(len, changes)])
    place = np.array([column for each in changes for column in each])
    values = np.array([column for each in changes for column in each.values()])
    add_scenarios(
        X, ends, n_linear, tile, first, place, values, derivatives, gradients, hessians
    )  # fmt: skip
    return gradients, hessians


@pytest.mark.parametrize(("n_linear", "p"), [(1, 1), (2, 3)])
def test_sums_are_those_of_all_rows_with_constant_and_replaced_columns(n_linear, p):
    rng = np.random.default_rng(1)
    ends, m, q = np.array([0, 70, 71, 400]), 400, 7
    X = rng.normal(size=(m, q))
    X[:, 0] = 1.0
    X[:70, 3], X[71:, 3], X[71:, 5] = 2.0, -1.0, 0.0
    changes = [{}, {3: rng.normal(size=m), 6: X[:, 6] + 1.0}]
    derivatives = rng.normal(size=(2, p + p * (p + 1) // 2, m))
    gradients, hessians = sums(X, ends, n_linear, changes, derivatives, 64)
    pairs = [(a, b) for a in range(p) for b in range(a + 1)]
    for s, change in enumerate(changes):
        changed = np.c_[X, np.ones(m)]
        for column, values in change.items():
            changed[:, column] = values
        for g, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            own, c = changed[low:high], derivatives[s, :, low:high]
            for d, (a, _) in enumerate([(p, 0)] * p + pairs):
                if d < p or a >= n_linear:
                    assert np.allclose(gradients[g, s, d], c[d] @ own)
                else:
                    exact = (own[:, :q].T * c[d]) @ own[:, :q]
                    assert np.allclose(hessians[g, s, d - p], np.triu(exact))
    broken = sums(X, ends, n_linear, [{}, {3: changes[1][3], 6: X[:, 6]}], derivatives, 64)
    assert not np.allclose(broken[0], gradients)
