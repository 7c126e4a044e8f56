"""Polynomials and splines are computed from a fitted state to the last bit of formulaic."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from streammc.stores.formula.bases import as_matrix, basis, transform
from streammc.stores.formula.parser import Call, parse_expression, tokenize
from streammc.stores.formula.state_fitters import fitter

OPEN = [f"extrapolation='{word}'" for word in ("clip", "zero", "extend")]
TERMS = [
    *("poly(x)", "poly(x, 3)", "poly(x, 2, raw=True)"),
    *(f"bs(x, df=6, {word})" for word in OPEN),
    *("bs(x, df=5)", "bs(x, df=4, degree=1)", "bs(x, knots=[0, 1], degree=0)"),
    "bs(x, knots=[-1, 0, 1], degree=2, include_intercept=True)",
    *(f"{name}(x, df=5{more})" for name in ("cr", "cc") for more in ("", ", constraints='center'")),
    *(f"{name}(x, df=5, {word})" for name in ("cr", "cc") for word in OPEN),
    "cr(x, df=5, extrapolation='raise')",
]


@pytest.mark.parametrize("text", TERMS)
def test_a_basis_has_the_bits_of_formulaic(text):
    node = parse_expression(tokenize(text))
    assert isinstance(node, Call)
    rng = np.random.default_rng(3)
    rows = rng.normal(size=400)
    state: dict | None = {}
    if "raw" not in text:
        fit, state = fitter(node, 1), None
        while state is None:
            fit.add(rows)
            state = fit.finish()
    x = np.r_[1.5 * rng.normal(size=2000), rows.min(), rows.max(), rows[:3], 0.0]
    if "raise" in text or ("bs" in text and "extrapolation" not in text):
        x = np.clip(x, rows.min(), rows.max())
    expected = as_matrix(transform(node, x, dict(state or {})))
    np.testing.assert_array_equal(expected, basis(node, x, state or {}))


def test_expressions_are_computed_by_numpy_alone():
    code = (
        "import sys, streammc.stores.formula.fitted\n"
        "heavy = 'numba zarr dask xarray pyarrow pandas formulaic scipy'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
