import numpy as np
import pytest

from streammc.diagnostics.quantiles import mean, quantiles

LEVELS = (0.0, 0.05, 0.5, 0.9, 1.0)


@pytest.mark.parametrize("draws", [2, 7, 200])
def test_equal_weights_give_those_of_numpy(draws):
    values = np.random.default_rng(1).normal(size=(40, draws))
    expected = np.quantile(values, LEVELS, axis=-1)
    for weights in (None, np.ones(draws), np.full(draws, 0.3)):
        np.testing.assert_allclose(quantiles(values, LEVELS, weights), expected, atol=1e-14)


def test_values_are_sorted_in_place_only_where_allowed():
    values = np.random.default_rng(4).normal(size=(3, 50))
    given = values.copy()
    expected = quantiles(given, LEVELS, None)
    np.testing.assert_array_equal(given, values)
    np.testing.assert_array_equal(quantiles(given, LEVELS, None, overwrite=True), expected)


def test_whole_weights_count_copies():
    rng = np.random.default_rng(2)
    values, weights = rng.normal(size=(40, 30)), rng.integers(1, 5, 30).astype(float)
    copies = np.repeat(values, weights.astype(int), axis=1)
    levels = (0.05, 0.31, 0.5, 0.95)
    expected = np.quantile(copies, levels, axis=-1, method="inverted_cdf")
    np.testing.assert_array_equal(quantiles(values, levels, weights), expected)
    np.testing.assert_allclose(mean(values, weights), copies.mean(axis=1), atol=1e-14)


def by_definition(x, w, p):
    """The middle of the first draw at which F >= p and of that from which on it stays."""
    order = np.argsort(x)
    reached = np.cumsum(w[order]) >= p * w.sum() - 1e-9
    below = np.flatnonzero(~reached)
    stays = 0 if below.size == 0 else below[-1] + 1
    return 0.5 * (x[order][np.flatnonzero(reached)[0]] + x[order][stays])


def test_signed_quantile_is_the_middle_of_all_crossings():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(60, 50))
    weights = np.where(rng.random(50) < 0.2, -1.0, 1.0)
    levels = (0.05, 0.5, 0.77)
    found = quantiles(values, levels, weights)
    for k, p in enumerate(levels):
        expected = [by_definition(row, weights, p) for row in values]
        np.testing.assert_allclose(found[k], expected, atol=1e-14)
    # A signed distribution function does fall somewhere, or nothing was tested.
    assert (found[1] != quantiles(values, levels, np.abs(weights) + 1e-9 * weights)[1]).any()


def test_signed_quantiles_find_the_target_where_plain_ones_do_not():
    # Normal(0, 1) as 1.5 times the sampled density less half of Normal(1, 0.5).
    rng = np.random.default_rng(4)
    n = 40_000
    negative = rng.random(n) < 0.25
    values = np.where(negative, rng.normal(1.0, 0.5, n), rng.normal(size=n))
    extra = ~negative & (rng.random(n) < 1 / 3)
    values[extra] = rng.normal(1.0, 0.5, extra.sum())
    weights = np.where(negative, -1.0, 1.0)
    exact = np.array([-1.6449, 0.0, 1.6449])
    found = quantiles(values[None], (0.05, 0.5, 0.95), weights)[:, 0]
    assert np.abs(found - exact).max() < 0.08
    assert np.abs(np.quantile(values, [0.05, 0.5, 0.95]) - exact).max() > 0.2
