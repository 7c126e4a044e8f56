import numpy as np
import pytest
import xarray as xr

from streammc.diagnostics.original_scale import original_scale, ratios, transform
from streammc.diagnostics.summary import summarize, summarize_draws
from streammc.errors import StoreError

FEATURES = ["Intercept", "a", "b"]
LABELS = ["beta[Intercept]", "beta[a]", "beta[b]", "log_sigma"]
MEAN, SCALE = [0.0, 30.0, -2.0], [1.0, 4.0, 0.5]
ATTRIBUTES = {"features": FEATURES, "standardization": {"mean": MEAN, "scale": SCALE}}
THETA = np.random.default_rng(3).normal(size=(4, 50, 4))


def test_the_linear_predictor_is_the_same_on_both_scales():
    x = np.random.default_rng(4).normal(size=(20, 2)) * 5.0
    design = np.column_stack([np.ones(20), (x - MEAN[1:]) / SCALE[1:]])
    theta, labels = transform(THETA, LABELS, ATTRIBUTES)
    assert labels == LABELS
    expected = THETA[:, :, :3] @ design.T
    found = theta[:, :, :3] @ np.column_stack([np.ones(20), x]).T
    np.testing.assert_allclose(expected, found, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(THETA[:, :, 3], theta[:, :, 3])


def test_draws_are_transformed_before_they_are_summarised():
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {
                    "beta": (("chain", "draw", "feature"), THETA[:, :, :3]),
                    "log_sigma": (("chain", "draw"), THETA[:, :, 3]),
                },
                coords={"feature": FEATURES},
            )
        }
    )
    found = original_scale(tree, ATTRIBUTES)
    intercept = THETA[:, :, 0] - THETA[:, :, 1] * 30.0 / 4.0 + THETA[:, :, 2] * 2.0 / 0.5
    expected = summarize_draws(intercept[:, :, None], ["i"])["i"]
    for name, value in expected.items():
        assert found["beta[Intercept]"][name] == pytest.approx(value, rel=1e-9)
    assert found["log_sigma"] == summarize(tree)["log_sigma"]
    assert original_scale(tree, {"standardization": None}) == summarize(tree)
    assert original_scale(tree, {}) == summarize(tree)


def test_a_centred_design_without_intercept_implies_one():
    attributes = {
        "features": FEATURES[1:],
        "standardization": {"mean": MEAN[1:], "scale": SCALE[1:]},
    }
    theta, labels = transform(THETA[:, :, 1:], LABELS[1:], attributes)
    assert labels == LABELS
    np.testing.assert_allclose(
        THETA[:, :, 1] * -30.0 / 4.0 + THETA[:, :, 2] * 2.0 / 0.5, theta[:, :, 0], atol=1e-12
    )
    scaled = {**attributes, "standardization": {"mean": [0.0, 0.0], "scale": SCALE[1:]}}
    assert transform(THETA[:, :, 1:], LABELS[1:], scaled)[1] == LABELS[1:]


def test_the_draws_themselves_are_not_changed():
    before = THETA.copy()
    transform(THETA, LABELS, ATTRIBUTES)
    np.testing.assert_array_equal(before, THETA)


@pytest.mark.parametrize(
    "change",
    [
        {"features": ["Intercept", "a"]},
        {"features": ["Intercept", "a", "c"]},
        {"standardization": {"mean": MEAN, "scale": [1.0, 0.0, 1.0]}},
        {"standardization": {"mean": MEAN, "scale": [1.0, np.nan, 1.0]}},
        {"standardization": {"mean": [0.0, np.inf, 0.0], "scale": SCALE}},
    ],
)
def test_a_standardisation_that_does_not_fit_is_refused(change):
    with pytest.raises(StoreError, match="verify the store"):
        transform(THETA, LABELS, {**ATTRIBUTES, **change})


def test_a_mean_of_the_columns_is_moved_and_stretched():
    theta = np.random.default_rng(0).normal(size=(2, 5, 2))
    attributes = {
        "features": ["a", "b"],
        "standardization": {"mean": [10.0, -1.0], "scale": [2.0, 0.5]},
    }
    moved, labels = transform(theta, ["mu[a]", "mu[b]"], attributes)
    assert labels == ["mu[a]", "mu[b]"]
    np.testing.assert_allclose(moved[..., 0], 10.0 + 2.0 * theta[..., 0])
    np.testing.assert_allclose(moved[..., 1], -1.0 + 0.5 * theta[..., 1])


def test_every_predictor_gets_its_own_intercept():
    theta = np.random.default_rng(0).normal(size=(1, 4, 3))
    attributes = {"features": ["a"], "standardization": {"mean": [3.0], "scale": [2.0]}}
    moved, labels = transform(theta, ["beta[a]", "tau[a]", "sigma"], attributes)
    assert labels == ["beta[Intercept]", "beta[a]", "tau[Intercept]", "tau[a]", "sigma"]
    x = 1.7
    for at, column in ((0, 0), (2, 1)):
        on_table = moved[..., at] + moved[..., at + 1] * x
        np.testing.assert_allclose(on_table, theta[..., column] * (x - 3.0) / 2.0)
    np.testing.assert_array_equal(moved[..., 4], theta[..., 2])


def test_ratios_are_exponentials_without_intercepts():
    theta = np.log(np.array([[[5.0, 2.0], [5.0, 4.0]]]))
    found = ratios(theta, ["beta[Intercept]", "beta[a]"], "poisson")
    assert found["kind"] == "rate ratio"
    assert list(found["parameters"]) == ["a"]
    assert found["parameters"]["a"]["mean"] == pytest.approx(3.0)
    assert ratios(theta, ["beta[Intercept]", "beta[a]"], "gaussian") is None
