"""Design columns that cannot change alone have no ratio per unit."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.models import logistic
from streammc.runs.job import run_job
from streammc.samplers import hmc
from streammc.samplers.common.sampler import RunRequest
from streammc.stores.ingest.ingestion import from_table

N = 120
RNG = np.random.default_rng(3)
TABLE = {
    "y": RNG.integers(0, 2, N),
    "x": RNG.uniform(1.0, 3.0, N),
    "z": RNG.uniform(1.0, 3.0, N),
    "t": np.array(["a", "b", "c"])[RNG.integers(0, 3, N)].tolist(),
    "g": np.arange(N) % 6,
}


@pytest.mark.parametrize(
    ("formula", "together"),
    [
        ("y ~ x + z + t", []),
        ("y ~ log(x) + scale(z) + C(t)", []),
        ("y ~ x + z*t", ["t[T.b]", "t[T.c]", "z", "z:t[T.b]", "z:t[T.c]"]),
        ("y ~ x + I(x ** 2) + z", ["x", "I(x ** 2)"]),
        ("y ~ x + log(x) + z", ["x", "log(x)"]),
        ("y ~ I(x > 2) + x + z", ["I(x > 2)", "x"]),
        ("y ~ I(x * z) + z", ["I(x * z)", "z"]),
        ("y ~ z + bs(x, df=4)", [f"bs(x, df=4)[{k}]" for k in range(1, 5)]),
        ("y ~ x:t - 1", ["x:t[a]", "x:t[b]", "x:t[c]"]),
        ("y ~ x + z + (1 + x | g)", []),
    ],
)
def test_columns_that_share_a_table_column_change_only_together(formula, together) -> None:
    store = from_table(TABLE, formula=formula, seed=1)
    assert sorted(together) == sorted(store.only_together())
    assert {*together} <= {*store.feature_names}


def test_no_column_changes_together_without_a_formula() -> None:
    store = from_table(TABLE, response="y", features=["x", "z"])
    assert [] == store.only_together()


def test_a_run_withholds_the_ratios_of_the_parents_of_an_interaction(tmp_path) -> None:
    store = from_table(TABLE, formula="y ~ z + x*I(t == 'b')", seed=1)
    options = {"draws": 20, "warmup": 20, "chains": 1, "seed": 1, "path": tmp_path / "run"}
    found = run_job(RunRequest(store, logistic(), hmc(), **options)).summary["ratios"]
    shown = {*found["parameters"]} - {*found["only_together"]}
    assert {"z"} == shown
    assert 3 == len(found["only_together"])
