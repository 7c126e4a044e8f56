"""Exchanging rows of the subsets keeps level 0 exact; drawing them anew without a test does not."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest
from ladders import ROWS, STATES, SUBSETS, Tabulated, by_hand

from streammc.numerics.process_limits import single_threaded
from streammc.samplers.tempering.ladder import EVALUATED, GRADIENT_STALE, LOG_LIK, STALE
from streammc.samplers.tempering.loop import EXCHANGES, OFFSETS, resample

CLOSE = 1e-9


def put(case, orders, configuration):
    """Start from these orders of the rows and these positions."""
    case.kernel._order[:] = orders
    case.kernel._take_rows()
    case.place(configuration)


def exchange(case, m, uniforms):
    """One call in production for the replica at level m, which is number m."""
    kernel, problem = case.kernel, case.problem
    resample(
        problem.link, problem.joint, kernel.ensemble, kernel.subsets(), m, m, np.array(uniforms),
        kernel._tallies[m, EXCHANGES:],
    )  # fmt: skip


def regions(case, m):
    """First and last place in the order, inside X_m and outside, from which rows are drawn."""
    ladder = case.kernel.ladder
    size = int(ladder.hi[m] - ladder.lo[m])
    if len(case.kernel._order) > 1:
        return (0, size), (size, ROWS)
    first = int(ladder.hi[m + 1]) if m + 1 < case.levels else 0
    return (first, size), (size, int(ladder.hi[m - 1]))


def orders_of(case):
    every = list(itertools.permutations(range(ROWS)))
    return list(itertools.product(every, repeat=len(case.kernel._order)))


def proposals(case, m):
    """Offsets that draw each pair of places, and these places."""
    (a, b), (c, d) = regions(case, m)
    for i, j in itertools.product(range(b - a), range(d - c)):
        yield ((i + 0.5) / (b - a), (j + 0.5) / (d - c)), (a + i, c + j)


def after(orders, which, places):
    changed = [list(order) for order in orders]
    i, j = places
    changed[which][i], changed[which][j] = changed[which][j], changed[which][i]
    return tuple(tuple(order) for order in changed)


def make(name, **options):
    case = Tabulated(name, resample=1, **options)
    sizes = case.kernel.ladder.hi - case.kernel.ladder.lo
    assert [4, 2, 1] == list(sizes)
    return case


@pytest.mark.parametrize("name", SUBSETS)
def test_resampling_decides_by_the_likelihood_of_the_proposed_set_and_stores_it(name):
    case = make(name)
    rng = np.random.default_rng(2)
    every = orders_of(case)
    decided = set()
    for orders in [every[i] for i in rng.integers(0, len(every), 12)]:
        for m, configuration in itertools.product((1, 2), case.configurations[::5]):
            which = 0 if len(orders) == 1 else m - 1
            for offsets, places in proposals(case, m):
                put(case, after(orders, which, places), configuration)
                proposed = case.log_lik(m, configuration[m])
                put(case, orders, configuration)
                chance = np.exp(min(proposed - case.log_lik(m, configuration[m]), 0.0))
                for u in (chance * (1 - CLOSE), chance * (1 + CLOSE)):
                    if u >= 1.0:
                        continue
                    put(case, orders, configuration)
                    exchange(case, m, [*offsets, u])
                    moved = u < chance
                    wanted = after(orders, which, places) if moved else orders
                    np.testing.assert_array_equal(wanted, case.kernel._order)
                    own = case.kernel.own
                    kept = np.array(own.y), np.array(case.kernel.replicas.scalars)
                    assert case.known()
                    assert moved == (kept[1][m, STALE] == GRADIENT_STALE)
                    case.kernel._take_rows()
                    np.testing.assert_array_equal(case.kernel.own.y, kept[0])
                    decided.add(moved)
    assert {True, False} == decided


def test_several_resampling_proposals_are_decided_in_sequence():
    for name in SUBSETS:
        case, single = Tabulated(name, resample=2), make(name)
        (a, b), (c, d) = regions(case, 1)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            orders = [rng.permutation(ROWS) for _ in case.kernel._order]
            u, begin = rng.random(2), rng.random(2)
            put(case, orders, (0, 1, 2))
            exchange(case, 1, [*begin, *u])
            put(single, orders, (0, 1, 2))
            for k in range(min(2, b - a, d - c)):
                i = (int(begin[0] * (b - a)) + k) % (b - a) + 0.5
                j = (int(begin[1] * (d - c)) + k) % (d - c) + 0.5
                exchange(single, 1, [i / (b - a), j / (d - c), u[k]])
            np.testing.assert_array_equal(single.kernel._order, case.kernel._order)
            np.testing.assert_allclose(
                single.kernel.replicas.scalars[1, LOG_LIK],
                case.kernel.replicas.scalars[1, LOG_LIK],
                rtol=1e-14,
            )
    assert OFFSETS == 2


@pytest.mark.parametrize("name", SUBSETS)
def test_resampling_counts_the_rows_that_it_evaluates(name):
    case = Tabulated(name, resample=2)
    put(case, [range(ROWS)] * len(case.kernel._order), (0, 1, 2))
    for m in (1, 2):
        (a, b), (c, d) = regions(case, m)
        proposed, before = min(2, b - a, d - c), case.kernel.replicas.scalars[m, EVALUATED]
        exchange(case, m, [0.5, 0.5, 0.5, 0.5])
        rows = int(case.kernel.ladder.hi[m] - case.kernel.ladder.lo[m]) if case.whole else 2
        assert proposed * rows == case.kernel.replicas.scalars[m, EVALUATED] - before


def inner(case, m):
    """(3, 3) the random walk at level m by the table."""
    out = np.zeros((STATES, STATES))
    for s in range(STATES):
        for side in (s - 1, s + 1):
            if 0 <= side < STATES:
                out[s, side] = 0.5 * np.exp(min(case.log_h(m, side) - case.log_h(m, s), 0.0))
        out[s, s] = 1.0 - out[s].sum()
    return out


def level_zero(case, orders, *, free):
    """(3,) where level 0 is in the long run, of exchanges, inner kernels and swaps in turn."""
    size, block = len(orders), len(case.configurations)
    move = np.zeros((size, block, size, block))
    swapped = np.zeros_like(move)
    index = {order: o for o, order in enumerate(orders)}
    exchanged = []
    for m in (1, 2):
        one = np.zeros_like(move)
        for order, o in index.items():
            pairs = [places for _, places in proposals(case, m)]
            for places in pairs:
                other = after(order, 0, places)
                for c, configuration in enumerate(case.configurations):
                    case.kernel._order[:] = other
                    change = case.log_lik(m, configuration[m])
                    case.kernel._order[:] = order
                    change -= case.log_lik(m, configuration[m])
                    chance = 1.0 if free else np.exp(min(change, 0.0))
                    one[o, c, index[other], c] += chance / len(pairs)
                    one[o, c, o, c] += (1.0 - chance) / len(pairs)
        exchanged.append(one)
    for order, o in index.items():
        case.kernel._order[:] = order
        walk = reduce(np.kron, [inner(case, m) for m in range(case.levels)])
        swapped[o, :, o, :] = walk @ by_hand(case)
    flat = size * block
    whole = swapped.reshape(flat, flat)
    for one in exchanged:
        whole = whole @ one.reshape(flat, flat)
    whole = whole.T - np.eye(flat)
    whole[-1] = 1.0
    stationary = np.linalg.solve(whole, np.eye(flat)[-1])
    return stationary.reshape(size, STATES, -1).sum(axis=(0, 2))


def test_level_0_is_exact_unless_rows_are_exchanged_without_a_test():
    case = make("nested", swaps="sweep")
    exact = np.exp([case.log_h(0, s) for s in range(STATES)])
    exact /= exact.sum()
    off = {}
    for free in (False, True):
        with single_threaded():  # 20 times slower on threads that others use
            found = level_zero(case, orders_of(case), free=free)
        off[free] = 0.5 * np.abs(found - exact).sum()
    assert off[False] < 1e-13
    assert off[True] > 5e-3
