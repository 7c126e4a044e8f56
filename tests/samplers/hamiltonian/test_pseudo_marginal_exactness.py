"""The pseudo-marginal kernel as a matrix, built from the production code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import Small

from streammc.likelihood.target import DENSITY
from streammc.samplers.hamiltonian.transition import allocate_proposal, propose_subsample

GRID = np.linspace(-1.5, 1.5, 5)


def space(problem):
    return list(itertools.product(range(problem.n_units), repeat=problem.k))


def density_matrix(problem, states):
    """exp(l^ - s^2/2) p(theta) on the grid of theta (rows) and subsamples (columns)."""
    log = np.array(
        [[problem.point_at([t], np.array(u))[0].scalars[DENSITY] for u in states] for t in GRID]
    )
    return np.exp(log - log.max())


BLOCKS = {"two blocks": (0, 1, 2), "one block": (0, 2)}
"""Bounds of the blocks of two units; one block replaces the whole subsample."""


def subsample_kernel(problem, theta, states, block, bounds):
    """Transition matrix over subsamples at one theta: acceptance from the production code."""
    matrix = np.zeros((len(states), len(states)))
    index = {u: i for i, u in enumerate(states)}
    bounds = np.array(bounds, dtype=np.int64)
    first, last = bounds[block], bounds[block + 1]
    contents = list(itertools.product(range(problem.n_units), repeat=int(last - first)))
    for u in states:
        point, _, work = problem.point_at([theta], np.array(u))
        for new in contents:
            ahead = problem.unit_rows_of(new)
            units = np.array(u, dtype=np.int64)
            proposal = allocate_proposal(problem.d, 1, problem.unit_rows, bounds, units)
            log_ratio = propose_subsample(
                problem.model.link, problem.base, ahead, 0, block, point, proposal, work
            )
            target = list(u)
            target[first:last] = new
            accept = min(1.0, np.exp(log_ratio)) / len(contents)
            matrix[index[u], index[tuple(target)]] += accept
            matrix[index[u], index[u]] += 1.0 / len(contents) - accept
    return matrix


def full_kernel(problem, states, weights, bounds, *, refresh=False):
    """One iteration: update every block in turn, then Metropolis over the grid."""
    n_grid, n_u = weights.shape
    u_step = np.zeros((n_grid * n_u, n_grid * n_u))
    for i, theta in enumerate(GRID):
        kernel = np.eye(n_u)
        for block in range(len(bounds) - 1):
            kernel = kernel @ subsample_kernel(problem, theta, states, block, bounds)
        if refresh:  # the current estimate drawn again instead of carried
            kernel = np.full((n_u, n_u), 1.0 / n_u)
        u_step[i * n_u : (i + 1) * n_u, i * n_u : (i + 1) * n_u] = kernel
    theta_step = np.zeros_like(u_step)
    for i in range(n_grid):
        for j in range(n_u):
            row = i * n_u + j
            for move in (-1, 1):
                to = i + move
                ratio = min(1.0, weights[to, j] / weights[i, j]) if 0 <= to < n_grid else 0.0
                if ratio > 0.0:
                    theta_step[row, to * n_u + j] += 0.5 * ratio
                theta_step[row, row] += 0.5 * (1.0 - ratio)
    return u_step @ theta_step


def stationary(matrix):
    n = len(matrix)
    system = np.vstack([matrix.T - np.eye(n), np.ones(n)])
    return np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]


@pytest.mark.trust(5)
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize(("unit_rows", "certain"), [(1, ()), (2, (0,))])
def test_marginal_is_the_estimated_likelihood_averaged_over_subsamples(
    unit_rows, certain, blocks, record_property
):
    problem = Small(n=5, d=1, order=0, unit_rows=unit_rows, certain=certain, seed=5)
    states = space(problem)
    weights = density_matrix(problem, states)
    exact = weights.sum(axis=1) / weights.sum()
    matrix = full_kernel(problem, states, weights, BLOCKS[blocks])
    found = stationary(matrix).reshape(weights.shape).sum(axis=1)
    distance = 0.5 * np.abs(found - exact).sum()
    assert distance < 1e-12
    broken = full_kernel(problem, states, weights, BLOCKS[blocks], refresh=True)
    wrong = 0.5 * np.abs(stationary(broken).reshape(weights.shape).sum(axis=1) - exact).sum()
    record_property("figure", f"{blocks}: total variation {distance:.0e}")
    record_property("caught", f"estimate of the current state refreshed ({wrong:.2f})")
    assert wrong > 0.05
