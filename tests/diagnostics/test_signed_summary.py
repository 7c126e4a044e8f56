"""Signed summaries: standard errors of a ratio; a plain summary of signed draws is refused."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from streammc.diagnostics.summary import (
    ratio_terms,
    signed_statistics,
    signs,
    summarize,
    summarize_draws,
)
from streammc.errors import StreammcError

TRUE_MEAN = (0.9 * 1.0 - 0.1 * 3.0) / 0.8


def draws(rng, size):
    """A tenth of the draws is negative, from elsewhere: together a density with mean 0.75."""
    sign = np.where(rng.random(size) < 0.9, 1.0, -1.0)
    return rng.normal(np.where(sign > 0, 1.0, 3.0), 1.0), sign


def tree(values, sign):
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"a": (("chain", "draw"), values)}),
            "sample_stats": xr.Dataset({"sign": (("chain", "draw"), sign)}),
        }
    )


def test_errors_are_those_of_the_ratio_and_plain_errors_are_too_small():
    rng = np.random.default_rng(0)
    z, plain = [], []
    for _ in range(600):
        values, sign = draws(rng, (4, 250))
        found = signed_statistics(values, sign)
        z.append((found["mean"] - TRUE_MEAN) / found["mcse_mean"])
        plain.append((found["mean"] - TRUE_MEAN) / (values.std() / np.sqrt(values.size)))
    assert abs(np.mean(z)) < 4.5 / np.sqrt(600)
    assert abs(np.std(z) - 1.0) < 4.5 / np.sqrt(2 * 600)
    assert np.std(plain) - 1.0 > 4.5 / np.sqrt(2 * 600)


def test_errors_grow_with_autocorrelation():
    rng = np.random.default_rng(1)
    values, sign = draws(rng, (4, 1000))
    once = signed_statistics(values, sign)
    repeated = signed_statistics(np.repeat(values, 5, axis=1), np.repeat(sign, 5, axis=1))
    assert repeated["mean"] == pytest.approx(once["mean"])
    assert repeated["mcse_mean"] == pytest.approx(once["mcse_mean"], rel=0.25)
    assert repeated["ess_bulk"] == pytest.approx(once["ess_bulk"], rel=0.5)


def test_a_run_without_a_negative_sign_is_summarised_like_any_other():
    values, sign = draws(np.random.default_rng(2), (4, 500))
    everything = tree(values, np.ones_like(sign))
    assert signs(everything) is None
    assert summarize(everything) == summarize_draws(values[:, :, None], ["a"])
    assert summarize(everything, plain=True) == summarize(everything)


def test_a_plain_summary_is_refused_where_a_sign_is_negative():
    values, sign = draws(np.random.default_rng(2), (4, 500))
    one = np.ones_like(sign)
    one[2, 7] = -1.0
    with pytest.raises(StreammcError, match=r"found 0\.05% of them negative"):
        summarize(tree(values, one), plain=True)
    weighted, plain = summarize(tree(values, sign))["a"], summarize_draws(values[:, :, None], ["a"])
    assert abs(weighted["mean"] - TRUE_MEAN) < 4.5 * weighted["mcse_mean"]
    assert abs(plain["a"]["mean"] - TRUE_MEAN) > 5 * plain["a"]["mcse_mean"]


def test_quantiles_are_those_of_the_signed_distribution():
    """The positive draws minus the negative ones: N(1, 1) and N(3, 1), weights 9 to -1."""
    from scipy import stats

    values, sign = draws(np.random.default_rng(6), (4, 50_000))
    found = signed_statistics(values, sign)
    for name, p in (("q5", 0.05), ("median", 0.5), ("q95", 0.95)):
        below = (0.9 * stats.norm(1).cdf(found[name]) - 0.1 * stats.norm(3).cdf(found[name])) / 0.8
        assert below == pytest.approx(p, abs=0.01), name


def test_moments_transform_with_the_scale():
    values, sign = draws(np.random.default_rng(3), (2, 400))
    one, other = signed_statistics(values, sign), signed_statistics(5 - 2 * values, sign)
    assert other["mean"] == pytest.approx(5 - 2 * one["mean"])
    assert other["sd"] == pytest.approx(2 * one["sd"])
    assert other["mcse_mean"] == pytest.approx(2 * one["mcse_mean"])


def test_summary_is_unknown_where_signs_cancel():
    values, _ = draws(np.random.default_rng(4), (2, 400))
    sign = np.tile([1.0, -1.0], 400).reshape(2, 400)
    assert {None} == set(summarize_draws(values[:, :, None], ["a"], sign)["a"].values())


def test_terms_of_a_ratio_have_mean_zero():
    values, sign = draws(np.random.default_rng(5), (2, 400))
    mean, terms = ratio_terms(values, sign)
    assert (sign * values).sum() / sign.sum() == pytest.approx(mean)
    assert abs(terms.mean()) < 1e-13
