"""Every compiled loop over tiles of rows, with rows beyond the first tile and a short last one.

The expected values are those of single rows, from NumPy.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from problems import Small

from streammc.likelihood import remainder_pass
from streammc.likelihood.blocks import TILE, allocate_rows, allocate_scratch
from streammc.likelihood.contiguous_rows import allocate_held, log_likelihood, pointers, terms
from streammc.likelihood.remainder_pass import RemainderTask
from streammc.likelihood.target import CERTAIN, DENSITY, ESTIMATE, REST
from streammc.protocols import RowBlock
from streammc.samplers.hamiltonian.transition import allocate_proposal, propose_subsample

N = 2 * TILE + 77
THETA = np.array([0.7, -0.9])


def slope_of(problem, theta, rows):
    """The gradient of the sum of the remainders of some rows of a logistic regression."""

    def score(at):
        return problem.y - 1.0 / (1.0 + np.exp(-(problem.X @ at + problem.offset)))

    p = 1.0 / (1.0 + np.exp(-(problem.X @ problem.theta_star + problem.offset)))
    slope = score(theta) - score(problem.theta_star)
    if problem.order < 2:
        return problem.X[rows].T @ (problem.weight * slope)[rows]
    slope += p * (1.0 - p) * (problem.X @ (theta - problem.theta_star))
    return problem.X[rows].T @ (problem.weight * slope)[rows]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("count", [TILE, TILE + 1, N - 3])
def test_certainty_rows_of_several_tiles_count_once(count, order):
    problem = Small(n=N, certain=range(count), order=order)
    none, some = problem.base._replace(), np.array([N - 1, N - 2])
    point, _, _ = problem.point_at(THETA, some, none)
    remainders = problem.remainder_rows(THETA)
    assert remainders[:count].sum() == pytest.approx(point.scalars[CERTAIN], rel=1e-9)
    bare = Small(n=N, order=order)
    without, _, _ = bare.point_at(THETA, some, none)
    assert remainders[:count].sum() == pytest.approx(
        point.scalars[REST] - without.scalars[REST], rel=1e-6
    )
    expected = slope_of(problem, THETA, slice(0, count))
    np.testing.assert_allclose(expected, point.rest - without.rest, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("unit_rows", [1, 3])
def test_a_subsample_of_several_tiles_has_the_totals_and_the_gradient_of_its_units(unit_rows):
    # 512 is no multiple of 3: a unit lies in two tiles.
    k = (2 * TILE + 40) // unit_rows
    problem = Small(n=N, unit_rows=unit_rows, k=k, order=1)
    units = np.random.default_rng(1).integers(0, problem.n_units, k)
    base = problem.base._replace(variance_factor=0.0)
    point, sub, _ = problem.point_at(THETA, units, base)
    assert len(sub.y) > 2 * TILE
    rows = problem.unit_index(units)
    remainders = np.append(problem.remainder_rows(THETA), np.zeros(unit_rows))[rows]
    totals = remainders.reshape(k, unit_rows).sum(axis=1)
    np.testing.assert_allclose(totals, point.totals, rtol=1e-9, atol=1e-12)
    assert problem.n_units / k * totals.sum() == pytest.approx(point.scalars[ESTIMATE], rel=1e-9)
    slope = problem.n_units / k * slope_of(problem, THETA, rows[rows < N])
    found = np.linalg.solve(base.factor.T, point.gradient) - point.rest
    np.testing.assert_allclose(slope, found, rtol=1e-8)


@pytest.mark.parametrize("unit_rows", [1, 3])
def test_a_proposed_block_of_several_tiles_changes_the_density_by_its_units(unit_rows):
    k = 2 * (TILE // unit_rows + 30)
    problem = Small(n=N, unit_rows=unit_rows, k=k, order=1)
    rng = np.random.default_rng(2)
    units, new = rng.integers(0, problem.n_units, (2, k))
    bounds = np.array([0, k // 2, k])
    point, _, work = problem.point_at(THETA, units)
    proposal = allocate_proposal(problem.d, 1, unit_rows, bounds, units.copy())
    ahead = problem.unit_rows_of(new[k // 2 :])
    found = propose_subsample(problem.model.link, problem.base, ahead, 0, 1, point, proposal, work)
    after = np.concatenate([units[: k // 2], new[k // 2 :]])
    expected = problem.point_at(THETA, after)[0].scalars[DENSITY] - point.scalars[DENSITY]
    assert expected == pytest.approx(found, rel=1e-8, abs=1e-8)
    assert abs(found) > 1e-3


@pytest.mark.parametrize("order", [0, 1, 2])
def test_expansions_of_several_tiles_are_those_of_single_rows(order):
    problem = Small(n=N, order=order)
    found = problem.expanded(problem.rows(np.arange(N)), order)
    for i in (0, TILE - 1, TILE, TILE + 1, 2 * TILE, N - 1):
        one = problem.expanded(problem.rows([i]), order)
        for name, array in one._asdict().items():
            np.testing.assert_allclose(array[..., 0], getattr(found, name)[..., i], rtol=1e-14)


def held(problem):
    out = allocate_held(problem.n, problem.d)
    out.design[:], out.y[:] = problem.X.T, problem.y
    out.offset[:], out.weight[:] = problem.offset, problem.weight
    return out


@pytest.mark.parametrize("span", [(0, N), (5, TILE + 5), (5, TILE + 6), (TILE + 3, N - 2)])
@pytest.mark.parametrize("model", ["logistic", "gaussian"])
def test_the_log_likelihood_of_several_tiles_is_the_sum_over_rows(model, span):
    problem = Small(model=model, n=N)
    theta = np.append(THETA, [0.4])[: problem.dim]
    link, joint = pointers(problem.model)
    scratch, slope, (lo, hi) = allocate_scratch(problem.p), np.zeros(problem.dim), span
    rows = problem.log_lik_rows(theta)[lo:hi]
    for order in (0, 1):
        found = log_likelihood(
            link, joint, problem.base, held(problem), lo, hi, theta, order, slope, scratch
        )
        assert rows.sum() == pytest.approx(found, rel=1e-11)
    for j in range(problem.dim):
        step = np.eye(problem.dim)[j] * 1e-5
        up, down = (problem.log_lik_rows(theta + s)[lo:hi].sum() for s in (step, -step))
        assert (up - down) / 2e-5 == pytest.approx(slope[j], rel=1e-6)
    values = np.full(hi - lo + 4, np.nan)
    terms(link, problem.base, held(problem), lo, hi, theta, scratch, values, 2)
    np.testing.assert_allclose(rows, values[2:-2], rtol=1e-11)
    assert np.isnan(values[[0, 1, -2, -1]]).all()


@pytest.mark.parametrize("order", [-1, 1, 2])
@pytest.mark.parametrize("tolerance", [-1.0, 1e-6])  # each draw, and interpolated
@pytest.mark.parametrize(
    ("entries", "n_draws"), [(2, 5), (2**20, 8)]
)  # one tile at a time, and all at once; draws are evaluated by fours
def test_sums_of_remainders_over_several_tiles_are_those_of_rows(
    order, tolerance, entries, n_draws, monkeypatch
):
    monkeypatch.setattr(remainder_pass, "_PIECE_ENTRIES", entries)
    problem = Small(n=N, order=order)
    normals = np.random.default_rng(3).normal(size=(n_draws, problem.dim))
    draws = problem.theta_star + 0.05 * normals
    deltas = draws - problem.theta_star
    task = RemainderTask(problem.model, problem.theta_star, deltas, order, tolerance)
    rows = problem.rows(np.arange(N))
    found = task.map(RowBlock(0, 0, *rows)).sum(axis=0)
    if order < 0:
        expected = [problem.log_lik_rows(theta).sum() for theta in draws]
    else:
        expected = [problem.remainder_rows(theta).sum() for theta in draws]
    np.testing.assert_allclose(expected, found, rtol=1e-7, atol=max(1e-9, tolerance))
    monkeypatch.setattr(remainder_pass, "POWERS", 0.0 * remainder_pass.POWERS)
    without = task.map(RowBlock(0, 0, *rows)).sum(axis=0)
    assert (tolerance > 0.0) == bool(np.abs(without - found).max() > 1e-6)


@pytest.mark.parametrize("order", [1, 2])
def test_sums_of_remainders_of_several_predictors_are_those_of_their_expansion(order):
    problem = Small(model="student-t", n=40, d=3, order=order)
    delta = 0.1 * np.random.default_rng(3).normal(size=problem.dim)
    rows = problem.rows(np.arange(problem.n))
    step = np.vstack([rows.X @ delta[:3], *(np.full(problem.n, s) for s in delta[3:])])
    star = problem.expanded(rows, order).expansion
    expected = problem.log_lik_rows(problem.theta_star + delta) - star[0]
    expected -= (star[1:4] * step).sum(axis=0)
    for (a, b), second in zip(combinations_with_replacement(range(3), 2), star[4:], strict=False):
        expected -= (0.5 if a == b else 1.0) * second * step[a] * step[b]
    task = RemainderTask(problem.model, problem.theta_star, delta[None], order, -1.0)
    found = task.map(RowBlock(0, 0, *rows)).sum(axis=0)
    np.testing.assert_allclose(expected.sum(), found, rtol=1e-8)


def test_a_tile_that_is_left_out_would_be_noticed():
    problem = Small(n=N, certain=range(N - 3), order=1)
    remainders = problem.remainder_rows(THETA)
    point, _, _ = problem.point_at(THETA, np.array([N - 1, N - 2]))
    for wrong in (remainders[:TILE].sum(), remainders[: 2 * TILE].sum()):
        assert wrong != pytest.approx(point.scalars[CERTAIN], rel=1e-3)
    assert len(allocate_rows(N, 2).y) > 2 * TILE
