"""Factors as codes through the command line: ingest, info, sample, diagnose, predict."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray
from coded_tables import table
from command_line import streammc

from streammc.stores.ingest import value_checks

FORMULA = ("--formula", "late ~ x + C(tail)", "--quiet")
SHORT = ("--draws", "50", "--warmup", "50", "--chains", "1", "--seed", "1", "--quiet")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two tables, and stores and runs with and without codes."""
    folder = tmp_path_factory.mktemp("coded")
    pq.write_table(table(20_000), folder / "t.parquet")
    pq.write_table(table(5_000, seed=2), folder / "new.parquet")
    for name, above in (("dense", "4096"), ("coded", "64")):
        store = folder / f"{name}.zarr"
        words = ("ingest", folder / "t.parquet", store, *FORMULA, "--codes-above", above)
        done = streammc(*words)
        assert done.code == 0, done.err
        words = ("sample", store, "-o", folder / name, "--model", "logistic", *SHORT)
        done = streammc(*words, "--prior", "normal(0, 1)", "--sampler", "hmc-ecs", "--audit")
        assert done.code == 0, done.err
    return folder


def test_info_names_the_factor_and_its_columns(made):
    done = streammc("info", made / "coded.zarr")
    assert "C(tail), 89 columns" in done.out
    assert "codes" not in streammc("info", made / "dense.zarr", "--json").json
    assert streammc("verify", made / "coded.zarr").code == 0


def test_ingest_prints_the_codes_once(made):
    words = ("ingest", made / "t.parquet", made / "again.zarr", *FORMULA)
    done = streammc(*words)
    assert "C(tail), 89 columns" in done.out
    again = streammc(*words[:-1])
    assert "nothing to do" in again.err
    assert streammc(*words, "--codes-above", "3").code == 78


def test_a_large_store_is_said_before_it_is_written_and_a_far_larger_one_is_a_warning(
    made, monkeypatch
):
    monkeypatch.setattr(value_checks, "LARGE_BYTES", 100_000)
    words = ("ingest", made / "t.parquet", made / "large.zarr", *FORMULA[:2])
    note, *_ = streammc(*words).err.splitlines()
    assert re.match(rf"{made}/large.zarr takes 0.\d+ MB: 20,000 rows of \d+ bytes", note)
    dense = ("ingest", made / "t.parquet", made / "larger.zarr", *FORMULA)
    warning, *_ = streammc(*dense, "--codes-above", "4096").err.splitlines()
    assert "times their source of" in warning
    assert "89 of the 91 columns are those of C(tail): store factors as codes" in warning
    kept = streammc(*dense, "--codes-above", "4096", "--overwrite").err
    assert 1 == kept.count("times their source")


def test_parameters_have_the_same_names_and_values(made):
    found = [streammc("diagnose", made / name, "--json").json for name in ("dense", "coded")]
    one, other = (each["parameters"] for each in found)
    assert list(one) == list(other)
    assert "beta[C(tail)[T.N041]]" in one
    means = [[row["mean"] for row in each.values()] for each in (one, other)]
    np.testing.assert_allclose(means[1], means[0], rtol=0, atol=1e-6)


def test_predictions_are_those_of_dense_columns(made):
    found = []
    for name in ("dense", "coded"):
        new, out = made / f"new-{name}.zarr", made / f"p-{name}.zarr"
        words = ("ingest", made / "new.parquet", new, "--like", made / f"{name}.zarr", "--quiet")
        assert streammc(*words, "--chunk-rows", "4096").code == 0
        done = streammc("predict", made / name, new, "-o", out, "--by", "x", "--quiet", "--json")
        assert done.code == 0, done.err
        with xarray.open_zarr(out) as dataset:
            found.append(dataset["mean"].values)
    assert np.isfinite(found[0]).all()
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)


def test_codes_above_needs_a_formula_and_no_like(made):
    new = made / "refused.zarr"
    words = ("ingest", made / "t.parquet", new, "--codes-above", "5", "--quiet")
    plain = streammc(*words, "--response", "late", "--features", "x")
    assert (2, True) == (plain.code, "expected a formula with --codes-above" in plain.err)
    like = streammc(*words, "--like", made / "coded.zarr")
    assert (2, True) == (like.code, "leave out --codes-above" in like.err)
    assert not new.exists()
