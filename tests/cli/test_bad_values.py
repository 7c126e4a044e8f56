"""Tables with values that cannot be used, from the file to the run.

Each case is refused when its time comes, by the ingest or by the model: exit code, one
line with column, row and count, and nothing left beside the inputs. Those that can be
used run, and say what is odd about them.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import snapshot, streammc

ROWS = 400
FEW = ("--draws", "50", "--warmup", "50", "--chains", "2", "--seed", "1")
RNG = np.random.default_rng(0)
X = RNG.normal(size=ROWS)
Y = (RNG.random(ROWS) < 1 / (1 + np.exp(-X))).astype(np.int64)
AS_IT_IS = ("--no-standardize", "--dtype", "float64")


def at(values: Any, row: int, value: Any) -> Any:
    """``values`` with ``value`` in one row."""
    changed = np.array(values, np.float64)
    changed[row] = value
    return changed


class Case(NamedTuple):
    """A table, how it is used, and what comes of it."""

    columns: dict[str, Any]
    message: str
    """Part of the one line, or of a warning where the table can be used."""
    options: tuple[str, ...] = ()
    model: str = "logistic"
    code: int = 65


DATES = pa.array([0] * ROWS, pa.timestamp("s"))
INGEST = {
    "NaN in a predictor": Case(
        {"x": at(at(X, 7, np.nan), 9, np.nan), "y": Y},
        "column 'x', found missing values in 2 rows, first in data row 8 of",
    ),
    "null in a predictor": Case(
        {"x": pa.array(X, mask=X > 2), "y": Y},
        f"column 'x', found missing values in {np.count_nonzero(X > 2)} rows",
    ),
    "NaN in the response": Case(
        {"x": X, "y": at(Y, 0, np.nan)}, "'y', found missing values in 1 row, first in data row 1 "
    ),
    "infinity": Case(
        {"x": at(X, 3, -np.inf), "y": Y}, "'x', found infinite values in 1 row, first in data row 4"
    ),
    "NaN in the last row": Case(
        {"x": at(X, -1, np.nan), "y": Y},
        f"'x', found missing values in 1 row, first in data row {ROWS}",
    ),
    "squares that overflow": Case(
        {"x": at(X, 3, 1e200), "y": Y}, "at most 1e+150 in size in column 'x'", AS_IT_IS
    ),
    "an offset that overflows": Case(
        {"x": X, "o": at(X, 3, 1e200), "y": Y}, "in column 'o', found 1e+200", ("--offset", "o")
    ),
    "no rows": Case({"x": X[:0], "y": Y[:0]}, "expected at least one row"),
    "no rows but missing ones": Case(
        {"x": X * np.nan, "y": Y}, "400 rows, all with missing values", ("--drop-missing",)
    ),
    "negative weights": Case(
        {"x": X, "w": at(np.ones(ROWS), 5, -1), "y": Y},
        "'w', found negative weights in 1 row, first in data row 6 of",
        ("--weight", "w"),
    ),
    "NaN weights": Case(
        {"x": X, "w": at(np.ones(ROWS), 5, np.nan), "y": Y},
        "'w', found missing values in 1 row",
        ("--weight", "w"),
    ),
    "integers that float64 rounds": Case(
        {"x": np.where(X > 2, 2**53 + 1, 0), "y": Y},
        f"'x', found large integers in {np.count_nonzero(X > 2)} rows, first in data row",
    ),
    "unsigned integers above 2**63": Case(
        {"x": pa.array([2**63 + 5] * ROWS, pa.uint64()), "y": Y}, "large integers in 400 rows"
    ),
    "dates": Case({"x": DATES, "y": Y}, "numbers in column 'x' of 't.parquet', found dates: leave"),
    "text": Case(
        {"x": ["one"] * ROWS, "y": Y}, "'x', found text in 400 rows, first in data row 1 "
    ),
    "lists": Case({"x": [[1.0]] * ROWS, "y": Y}, "column 'x' of 't.parquet', found the type list"),
    "binary": Case({"x": [b"\0\1"] * ROWS, "y": Y}, "found text in 400 rows"),
}
"""Refused when the file is read."""

MODEL = {
    "labels {1, 2}": Case(
        {"x": X, "y": Y + 1}, "(recode labels such as {1, 2} or {-1, 1}) in column 'y'"
    ),
    "labels {-1, 1}": Case({"x": X, "y": 2 * Y - 1}, "'y', found -1 in the row"),
    "proportions": Case({"x": X, "y": Y / 2}, "found 0.5 in the row"),
    "negative counts": Case({"x": X, "y": Y - 1}, "whole numbers from 0", model="poisson"),
    "fractional counts": Case({"x": X, "y": Y + 0.5}, "and 399 more rows like it", model="poisson"),
    "counts above 2**53": Case(
        {"x": X, "y": np.where(Y, 1e17, 1.0)}, "found 1e+17 in the row", model="poisson"
    ),
    "a category that never occurs": Case(
        {"x": X, "y": 2 * Y}, "none of 1: recode", model="ordinal"
    ),
    "one category alone": Case({"x": X, "y": 0 * Y + 3}, "found 3 alone", model="ordinal"),
    "no response": Case({"x": X, "z": Y}, "expected a response in the data"),
    "infinite rates": Case(
        {"x": X, "o": at(np.zeros(ROWS), 3, 1e100), "y": Y},
        "finite log-likelihood at the expansion point",
        ("--offset", "o"),
        "poisson",
    ),
}
"""Refused by the model, before the run is there."""

WORKS = {
    "constant column": Case({"x": X, "c": np.ones(ROWS), "y": Y}, "column 'c' is constant (1)"),
    "two equal columns": Case({"x": X, "z": X, "y": Y}, "rank 2 of 3"),
    "collinear columns": Case({"x": X, "v": X**2, "z": X + X**2, "y": Y}, "rank 3 of 4"),
    "perfect separation": Case({"x": X, "y": X > 0}, "separation: "),
    "one class alone": Case({"x": X, "y": Y * 0}, "keeps beta[Intercept] from running away"),
    "one row": Case({"x": X[:1], "y": Y[:1]}, "column 'x' is constant"),
    "fewer rows than columns": Case(
        {f"x{i}": RNG.normal(size=6) for i in range(9)} | {"y": Y[:6]}, "rank 6 of 10"
    ),
    "few digits of variation": Case(
        {"x": 1e9 + 1e-3 * X, "y": Y}, "float64 holds few digits of its variation"
    ),
    "one huge value": Case({"x": at(X, 3, 1e300), "y": Y}, ""),
    "weights of zero": Case({"x": X, "w": np.arange(ROWS) % 2, "y": Y}, "", ("--weight", "w")),
}
"""Can be used: what is odd is said in a warning."""


def write(columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), "t.parquet")


def ingest(case: Case) -> Any:
    response = ("--response", "y") if "y" in case.columns else ()
    return streammc("ingest", "t.parquet", "s", *response, *case.options, "--quiet")


def sample(case: Case) -> Any:
    return streammc("sample", "s", "-o", "run", "--model", case.model, *FEW, "--quiet")


def assert_refused(done: Any, case: Case, before: Any, here: Path) -> None:
    assert (case.code, "") == (done.code, done.out), done.err
    assert 1 == len(done.err.splitlines()), done.err
    assert done.err.startswith("streammc: expected ") or f": {case.model}: expected " in done.err
    assert case.message in done.err
    assert "Traceback" not in done.err
    assert before == snapshot(here)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", INGEST.values(), ids=INGEST)
def test_table_with_unusable_values_is_refused_by_ingest(case: Case, here: Path) -> None:
    write(case.columns)
    before, started = snapshot(here), time.monotonic()
    assert_refused(ingest(case), case, before, here)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("case", MODEL.values(), ids=MODEL)
def test_store_with_unusable_values_is_refused_by_the_model(case: Case, here: Path) -> None:
    write(case.columns)
    assert 0 == ingest(case).code
    before = snapshot(here)
    assert_refused(sample(case), case, before, here)
    done = streammc("summarize", "s", "--model", case.model, "--quiet")
    assert_refused(done, case, before, here)


@pytest.mark.parametrize("case", WORKS.values(), ids=WORKS)
def test_table_with_doubtful_values_works_with_a_warning(case: Case, here: Path) -> None:
    write(case.columns)
    made = ingest(case)
    done = sample(case)
    assert (0, 0) == (made.code, done.code), made.err + done.err
    warnings = [line for line in (made.err + done.err).splitlines() if "warning: " in line]
    assert not case.message or any(case.message in line for line in warnings), warnings


@pytest.mark.trust(50)
def test_a_single_row_has_an_r_hat_and_finite_draws(here: Path) -> None:
    write({"x": X[:1], "y": Y[:1]})
    assert 0 == ingest(WORKS["one row"]).code
    found = streammc("sample", "s", "-o", "run", "--model", "logistic", *FEW, "--json").json
    for entry in found["parameters"].values():
        assert np.isfinite([entry["mean"], entry["sd"], entry["r_hat"]]).all()


EXACT = {
    "constant": (X[:50], np.full(50, 3.0)),
    "zeros": (X[:50], np.zeros(50)),
    "perfect": (X[:50], 1.0 + 2.0 * X[:50]),
    "one row": (X[:1], np.ones(1)),
    "two rows": (X[:2], np.array([1.0, 0.0])),
    "two equal rows": (X[[0, 0]], np.ones(2)),
    "far": (X[:50], 1e5 + RNG.normal(size=50)),
    "far counts": (X[:50], np.round(1e5 + 300.0 * RNG.normal(size=50))),
}
MIXED = [
    *((name, "gaussian", "auto") for name in EXACT),
    *((name, "student-t", "auto") for name in EXACT if not name.startswith("far")),
    *((name, "logistic", "auto") for name in ("zeros", "one row", "two rows", "two equal rows")),
    *((name, "negative-binomial", "auto") for name in ("zeros", "one row", "far counts")),
    *(("constant", "gaussian", sampler) for sampler in ("mh", "pt", "hmc-ecs")),
]


@pytest.mark.parametrize(("name", "model", "sampler"), MIXED)
def test_exact_fit_and_far_response_are_refused_with_a_remedy(
    name: str, model: str, sampler: str, here: Path
) -> None:
    x, y = EXACT[name]
    write({"x": x, "y": y})
    assert 0 == streammc("ingest", "t.parquet", "s", "--response", "y", "--quiet").code
    run = ("sample", "s", "-o", "run", "--model", model, "--sampler", sampler)
    done = streammc(*run, "--draws", "40", "--warmup", "40", "--chains", "1", "--seed", "1")
    assert done.code in (0, 65), done.err
    if done.code == 65:
        line = done.err.splitlines()[-1]
        assert ";" in line, line
    else:
        assert "warning: " in done.err


def test_draws_that_are_not_finite_name_the_parameter(here: Path) -> None:
    write({"x": X[:50], "y": np.full(50, 3.0)})
    assert 0 == streammc("ingest", "t.parquet", "s", "--response", "y", "--quiet").code
    done = streammc("sample", "s", "-o", "run", "--model", "gaussian", *FEW, "--quiet")
    assert 65 == done.code
    assert "sigma" in done.err
    assert "--prior" in done.err


ZEROS = [-0.0, 5e-324, -5e-324, 1e-310]


@pytest.mark.trust(50)
def test_negative_zeros_and_subnormals_count_as_zero(here: Path) -> None:
    found = []
    for column in (np.where(X > 1, np.resize(ZEROS, ROWS), X), np.where(X > 1, 0.0, X)):
        write({"x": column, "y": Y})
        assert 0 == streammc("ingest", "t.parquet", "s", "--response", "y", *AS_IT_IS).code
        done = streammc("summarize", "s", "-o", "cv", "--model", "logistic", "--json")
        found.append(list(done.json["theta_star"].values()))
        for name in ("s", "cv"):
            shutil.rmtree(name)
    assert found[0] == pytest.approx(found[1], rel=1e-14)


@pytest.mark.trust(50)
@pytest.mark.parametrize("kind", ["float16", "float32", "int8", "uint16", "bool"])
def test_narrow_types_keep_their_values(kind: str, here: Path) -> None:
    values = np.round(X * 3).astype(kind) if kind != "uint16" else np.round(X**2).astype(kind)
    found = []
    for column in (values, values.astype(np.float64)):
        write({"x": column, "y": Y})
        made = streammc("ingest", "t.parquet", "s", "--response", "y", "--json").json
        found.append(made["fingerprint"])
        shutil.rmtree("s")
    assert found[0] == found[1]


@pytest.mark.trust(50)
def test_missing_rows_are_dropped_and_counted_where_allowed(here: Path) -> None:
    write({"x": at(at(X, 7, np.nan), 9, np.nan), "y": at(Y, 0, np.nan)})
    done = streammc("ingest", "t.parquet", "s", "--response", "y", "--drop-missing", "--json")
    assert (ROWS - 3, 3) == (done.json["n_rows"], done.json["n_dropped"])
    assert "left out: 3" in done.err


def test_a_missing_model_is_named_by_the_kind_of_response() -> None:
    result = streammc("sample", "flights.zarr", "-o", "run")
    assert result.code == 2
    assert "logistic for a response of 0 and 1" in result.err
