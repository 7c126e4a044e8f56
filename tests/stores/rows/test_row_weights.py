"""Weights and trials on their way into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from table_files import rows_of, write_csv, write_gz, write_parquet

from streammc.control_variates.full_pass.block_pass import ExpansionPass
from streammc.errors import DataError
from streammc.models import logistic
from streammc.stores import StoreWriter, from_arrays, open_store
from streammc.stores.ingest.ingestion import from_table, ingest

THETA = np.array([0.3, -0.7])
PLAIN: dict[str, Any] = {"shuffle": False, "standardize": False, "dtype": "float64"}


def weighted_table(rows: int = 2_000) -> pa.Table:
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, rows)
    return pa.table({"x": rng.normal(size=rows), "y": y, "w": rng.integers(0, 4, rows) + y})


def sums(store: Any) -> Any:
    task = ExpansionPass(logistic(), THETA, np.empty((0, 2)), 2, 0, True)
    value, gradient, hessian = store.reduce(task).expansion(2)
    return np.r_[value, gradient, hessian.ravel()]


@pytest.mark.parametrize("write", [write_csv, write_gz, write_parquet])
@pytest.mark.parametrize("shuffle", [False, True])
def test_weights_of_a_file_count_as_repeated_rows(
    write: Any, shuffle: bool, tmp_path: Path
) -> None:
    table = weighted_table()
    index = np.repeat(np.arange(table.num_rows), table["w"].to_numpy())
    options = PLAIN | {"response": "y", "shuffle": shuffle}
    source, repeated = write(table, tmp_path / "t"), write(table.take(index), tmp_path / "r")
    ingest(source, tmp_path / "s", weight="w", **options)
    ingest(repeated, tmp_path / "long", features=["x"], **options)
    ingest(source, tmp_path / "ignored", features=["x"], **options)
    found, exact, wrong = (sums(open_store(tmp_path / name)) for name in ("s", "long", "ignored"))
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    assert np.abs(wrong / exact - 1).min() > 1e-2


def test_fractional_weights_are_stored_as_they_are(tmp_path: Path) -> None:
    table = weighted_table().drop_columns("w").append_column("w", pa.array(np.arange(2_000) / 7))
    ingest(write_csv(table, tmp_path / "t"), tmp_path / "s", response="y", weight="w", **PLAIN)
    assert np.array_equal(np.arange(2_000) / 7, rows_of(tmp_path / "s")["weight"])


def counts() -> pa.Table:
    return pa.table(
        {
            "x": [0.5, -1.0, 2.0, 0.0, 1.0],
            "dead": [3, 0, 5, 0, 7],
            "born": [4, 6, 5, 0, 21],
            "w": [1.0, 0.5, 2.0, 3.0, 0.0],
        }
    )


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_counts_become_proportions_and_weights(write: Any, tmp_path: Path) -> None:
    source = write(counts().drop_columns("w"), tmp_path / "t")
    report = ingest(source, tmp_path / "s", response="dead", trials="born", **PLAIN)
    found = rows_of(tmp_path / "s")
    assert ["Intercept", "x"] == report["features"]
    assert ("born", None, "float64") == (report["trials"], report["weight"], report["y_dtype"])
    assert [0.75, 0, 1, 0, 7 / 21] == found["y"].tolist()
    assert [4, 6, 5, 0, 21] == found["weight"].tolist()
    # Whether a table or arrays: the same.
    table = from_table(source, response="dead", trials="born", **PLAIN)
    X = np.c_[np.ones(5), counts()["x"]]
    arrays = from_arrays(X, counts()["dead"], trials=counts()["born"])
    assert "trials" == arrays.attributes["trials"]
    for name, one, other in zip(
        ("X", "y", "offset", "weight"), table.rows().arrays, arrays.rows().arrays, strict=True
    ):
        assert np.array_equal(one, other), name
        assert name == "offset" or np.array_equal(found[name], other)


def test_trials_multiply_a_weight(tmp_path: Path) -> None:
    ingest(counts(), tmp_path / "s", response="dead", trials="born", weight="w", **PLAIN)
    assert [4, 3, 10, 0, 0] == rows_of(tmp_path / "s")["weight"].tolist()
    table = counts()
    store = from_arrays(np.ones((5, 1)), table["dead"], trials=table["born"], weight=table["w"])
    assert [4, 3, 10, 0, 0] == store.rows().arrays[3].tolist()


def test_counts_have_the_log_likelihood_of_single_trials() -> None:
    rng = np.random.default_rng(5)
    born = rng.integers(0, 9, 300)
    dead = rng.binomial(born, 0.3)
    store = from_arrays(rng.normal(size=(300, 2)), dead, trials=born)
    X, y, _, weight = store.rows().arrays
    eta = X @ THETA
    found = weight @ (y * eta - np.logaddexp(0, eta))
    single = np.concatenate([np.arange(n) < c for c, n in zip(dead, born, strict=True)])
    rows = np.repeat(np.arange(300), born)
    exact = sums(from_arrays(X[rows], single))[0]
    assert found == pytest.approx(exact, rel=1e-12)
    assert abs(y @ eta - np.logaddexp(0, eta).sum() - exact) > 10  # without the weight


def test_rows_that_are_dropped_may_miss_their_counts(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,c,n\n1,2,3\n2,,3\n3,1,\n4,0,1\n")
    options = PLAIN | {"response": "c", "trials": "n", "drop_missing": True}
    report = ingest(tmp_path / "t.csv", tmp_path / "s", **options)
    assert (2, 2) == (report["n_rows"], report["n_dropped"])
    assert [2 / 3, 0] == rows_of(tmp_path / "s")["y"].tolist()


@pytest.mark.parametrize("weight", [-1.0, 1e16])
def test_a_writer_refuses_weights_that_cannot_be(weight: float, tmp_path: Path) -> None:
    ones, bad = np.ones((4, 1)), np.array([1, 1, weight, 1])
    with StoreWriter(tmp_path / "s", features=["x"], weight=True) as writer:
        writer.append(ones, np.ones(4), weight=np.ones(4))
        with pytest.raises(DataError, match=r"in 1 row, first in data row 6 of store .*s'"):
            writer.append(ones, np.ones(4), weight=bad)
    assert [] == list(tmp_path.iterdir())
