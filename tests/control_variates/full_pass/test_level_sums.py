"""Sums by level against the sums of the same rows with all columns."""

from __future__ import annotations

import numpy as np
import pytest
from coded_tables import pair

import streammc
from streammc.control_variates.full_pass.block_pass import (
    ExpansionPass,
    RowSums,
    expansion_of,
    wide_expansion,
)
from streammc.control_variates.mode.newton import in_memory, level_columns
from streammc.control_variates.plan.unit_scores import UnitScoreTask
from streammc.likelihood.data_views import draw_subset, tempered
from streammc.likelihood.pass_cost import takes_codes
from streammc.numerics.coded_matrix import CodedMatrix, coded_columns

MODELS = (
    streammc.models.logistic(),
    streammc.models.negative_binomial(),
    streammc.models.student_t(),
)
WIDTHS = {1: (9,), 2: (9, 4), 3: (9, 4, 1)}


def rows(n: int, factors: int, dense: int) -> CodedMatrix:
    """Return rows with factors between dense columns; ``off`` is not 0, ``on - off`` not 1."""
    rng = np.random.default_rng(factors)
    widths = np.array(WIDTHS[factors])
    first = 1 + np.arange(factors) + np.cumsum(widths) - widths
    q = dense + widths.sum()
    on, off = rng.normal(1.0, 0.3, q), rng.normal(0.0, 0.2, q)
    codes = np.stack([rng.integers(0, width + 1, n) for width in widths], 1).astype(np.uint16)
    columns = coded_columns(int(q), first, widths, on, off)
    return CodedMatrix(rng.normal(size=(n, dense)), codes, columns)


def sums_of(design, model, columns=None):
    rng = np.random.default_rng(7)
    n, q = design.shape
    d = model.dim(q)
    theta, shifts = 0.2 * rng.normal(size=d), 0.1 * rng.normal(size=(8, d))
    y = rng.integers(0, 2, n).astype(np.float64)
    offset, weight = 0.1 * rng.normal(size=n), rng.integers(0, 3, n).astype(np.float64)
    sums = RowSums(model, theta, shifts, 2, q, coded=columns)
    squares, remainders = np.empty(n), np.empty((8, n))
    assert (-1, 0) == sums.add(design, y, offset, weight, squares, remainders)
    if columns is None:
        found = expansion_of(sums.totals, d)
    else:
        found = wide_expansion(columns, model.n_scalar, sums.totals)
    return [*found, squares, remainders, sums.terms]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize(("factors", "dense"), [(1, 3), (2, 5), (3, 4)])
def test_sums_by_level_are_those_of_all_columns(model, factors, dense):
    design = rows(2000, factors, dense)
    expected = sums_of(design.expanded(), model)
    found = sums_of(design, model, design.columns)
    for one, other in zip(expected, found, strict=True):
        scale = np.abs(one).max()
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-13 * scale)


def test_one_wrong_code_is_seen_in_the_sums():
    design = rows(2000, 2, 5)
    codes = design.codes.copy()
    codes[17, 0] = (codes[17, 0] + 1) % 10
    wrong = CodedMatrix(design.dense, codes, design.columns)
    expected = sums_of(design.expanded(), MODELS[0])
    found = sums_of(wrong, MODELS[0], design.columns)
    assert np.abs(expected[1] - found[1]).max() > 1e-6 * np.abs(expected[1]).max()


def test_hessian_is_symmetric():
    design = rows(500, 2, 5)
    hessian = sums_of(design, MODELS[1], design.columns)[2]
    np.testing.assert_array_equal(hessian, hessian.T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pass_over_codes_finds_the_expansion_and_scores_of_dense_columns(dtype):
    dense, coded = pair(dtype=dtype, chunk_rows=4096, weight="w")
    model = streammc.models.logistic()
    rng = np.random.default_rng(2)
    d = dense.n_features
    task = ExpansionPass(
        model, 0.1 * rng.normal(size=d), 0.02 * rng.normal(size=(8, d)), 2, 50, True
    )
    one, other = (data.reduce(task, scheduler="sync") for data in (dense, coded))
    for a, b in zip(one.expansion(d), other.expansion(d), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-12 * np.abs(a).max())
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_allclose(other.squares, one.squares, rtol=1e-9)
    np.testing.assert_array_equal(one.histogram.counts, other.histogram.counts)


def test_pass_over_codes_has_the_same_bits_for_any_number_of_threads():
    _, coded = pair(chunk_rows=4096)
    task = ExpansionPass(
        streammc.models.logistic(), np.zeros(coded.n_features), np.zeros((0, 1)), 2, 0, True
    )
    task = ExpansionPass(task.model, task.theta, np.zeros((0, len(task.theta))), 2, 0, True)
    one, two = (coded.reduce(task, scheduler=threads) for threads in ("sync", 2))
    assert one.totals.tobytes() == two.totals.tobytes()


def test_scores_of_units_are_those_of_dense_columns():
    dense, coded = pair()
    d = dense.n_features
    rng = np.random.default_rng(3)
    shifts = 0.05 * rng.normal(size=(8, d))
    task = UnitScoreTask(streammc.models.logistic(), np.zeros(d), shifts, 2, 7, 4)
    one, other = (data.reduce(task, scheduler="sync") for data in (dense, coded))
    np.testing.assert_allclose(np.concatenate(other.scores), np.concatenate(one.scores), rtol=1e-8)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_rows_in_memory_have_the_log_likelihood_of_dense_columns(temperature):
    model = streammc.models.logistic()
    found = []
    for data in pair(weight="w"):
        warm = tempered(data, temperature)
        some, columns = draw_subset(warm, 10**6), level_columns(warm, model)
        assert ("codes" in data.attributes) == (columns is not None)
        theta = 0.1 * np.random.default_rng(5).normal(size=data.n_features)
        found.append(in_memory(model, some, 2.0, columns)(theta))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12 * np.abs(one).max())


def test_models_that_see_columns_take_every_column():
    assert takes_codes(streammc.models.logistic())
    assert not takes_codes(streammc.models.network(hidden=2))
    assert not takes_codes(streammc.models.gaussian_mean())
