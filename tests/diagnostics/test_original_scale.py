import numpy as np
import pytest
import xarray as xr

from streammc.diagnostics.derived import as_variables, ratios
from streammc.diagnostics.summary import draws_and_labels, summarize, summarize_draws
from streammc.errors import StoreError
from streammc.models import (
    binomial,
    gaussian,
    gaussian_mean,
    gaussian_mixture,
    gaussian_mixture_free,
    gaussian_mixture_tied,
    gaussian_process,
    logistic,
    negative_binomial,
    network,
    poisson,
    user,
)
from streammc.models.table_scale import blocks_from_description, describe_blocks, transform

FEATURES = ["Intercept", "a", "b"]
LABELS = ["beta[Intercept]", "beta[a]", "beta[b]", "log_sigma"]
MEAN, SCALE = [0.0, 30.0, -2.0], [1.0, 4.0, 0.5]
ATTRIBUTES = {"features": FEATURES, "standardization": {"mean": MEAN, "scale": SCALE}}
BLOCKS = gaussian().table_scale(FEATURES)
THETA = np.random.default_rng(3).normal(size=(4, 50, 4))


def own(*predictors, name="own", **options):
    """A model of a user's own, which nothing evaluates."""
    nothing = {"log_lik": max, "gradient": max, "hessian": max}
    return user(name, predictors=predictors, **nothing, **options)


def test_the_linear_predictor_is_the_same_on_both_scales():
    x = np.random.default_rng(4).normal(size=(20, 2)) * 5.0
    design = np.column_stack([np.ones(20), (x - MEAN[1:]) / SCALE[1:]])
    theta, labels = transform(THETA, LABELS, ATTRIBUTES, BLOCKS)
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
    draws = draws_and_labels(tree)
    found = summarize_draws(*transform(*draws, ATTRIBUTES, BLOCKS))
    intercept = THETA[:, :, 0] - THETA[:, :, 1] * 30.0 / 4.0 + THETA[:, :, 2] * 2.0 / 0.5
    expected = summarize_draws(intercept[:, :, None], ["i"])["i"]
    for name, value in expected.items():
        assert found["beta[Intercept]"][name] == pytest.approx(value, rel=1e-9)
    assert found["log_sigma"] == summarize(tree)["log_sigma"]
    for attributes in ({"standardization": None}, {}):
        assert summarize_draws(*transform(*draws, attributes, BLOCKS)) == summarize(tree)


def test_a_centred_design_without_intercept_implies_one():
    attributes = {
        "features": FEATURES[1:],
        "standardization": {"mean": MEAN[1:], "scale": SCALE[1:]},
    }
    blocks = gaussian().table_scale(FEATURES[1:])
    theta, labels = transform(THETA[:, :, 1:], LABELS[1:], attributes, blocks)
    assert labels == LABELS
    np.testing.assert_allclose(
        THETA[:, :, 1] * -30.0 / 4.0 + THETA[:, :, 2] * 2.0 / 0.5, theta[:, :, 0], atol=1e-12
    )
    scaled = {**attributes, "standardization": {"mean": [0.0, 0.0], "scale": SCALE[1:]}}
    assert transform(THETA[:, :, 1:], LABELS[1:], scaled, blocks)[1] == LABELS[1:]


def test_the_draws_themselves_are_not_changed():
    before = THETA.copy()
    transform(THETA, LABELS, ATTRIBUTES, BLOCKS)
    np.testing.assert_array_equal(before, THETA)


@pytest.mark.parametrize(
    "change",
    [
        {"features": ["Intercept", "a"]},
        {"standardization": {"mean": MEAN, "scale": [1.0, 0.0, 1.0]}},
        {"standardization": {"mean": MEAN, "scale": [1.0, np.nan, 1.0]}},
        {"standardization": {"mean": [0.0, np.inf, 0.0], "scale": SCALE}},
    ],
)
def test_a_standardisation_that_does_not_fit_is_refused(change):
    with pytest.raises(StoreError, match="verify the store"):
        transform(THETA, LABELS, {**ATTRIBUTES, **change}, BLOCKS)


def test_blocks_of_other_parameters_are_refused():
    with pytest.raises(StoreError, match="verify the store"):
        transform(THETA, LABELS, ATTRIBUTES, gaussian().table_scale(["Intercept", "a", "c"]))


def test_a_mean_of_the_columns_is_moved_and_stretched():
    theta = np.random.default_rng(0).normal(size=(2, 5, 2))
    attributes = {
        "features": ["a", "b"],
        "standardization": {"mean": [10.0, -1.0], "scale": [2.0, 0.5]},
    }
    moved, labels = transform(
        theta,
        ["mu[a]", "mu[b]"],
        attributes,
        gaussian_mean(covariance=np.eye(2)).table_scale(["a", "b"]),
    )
    assert labels == ["mu[a]", "mu[b]"]
    np.testing.assert_allclose(moved[..., 0], 10.0 + 2.0 * theta[..., 0])
    np.testing.assert_allclose(moved[..., 1], -1.0 + 0.5 * theta[..., 1])


def test_every_predictor_gets_its_own_intercept():
    theta = np.random.default_rng(0).normal(size=(1, 4, 3))
    attributes = {"features": ["a"], "standardization": {"mean": [3.0], "scale": [2.0]}}
    moved, labels = transform(
        theta, ["beta[a]", "tau[a]", "sigma"], attributes, own("beta", "tau").table_scale(["a"])
    )
    assert labels == ["beta[Intercept]", "beta[a]", "tau[Intercept]", "tau[a]", "sigma"]
    x = 1.7
    for at, column in ((0, 0), (2, 1)):
        on_table = moved[..., at] + moved[..., at + 1] * x
        np.testing.assert_allclose(on_table, theta[..., column] * (x - 3.0) / 2.0)
    np.testing.assert_array_equal(moved[..., 4], theta[..., 2])


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (logistic, "odds ratio"),
        (binomial, "odds ratio"),
        (poisson, "rate ratio"),
        (negative_binomial, "rate ratio"),
        (gaussian, None),
        (lambda: own("beta", name="logistic"), None),
    ],
)
def test_ratios_are_exponentials_without_intercepts(model, kind):
    theta = np.log(np.array([[[5.0, 2.0], [5.0, 4.0]]]))
    features = ["Intercept", "a"]
    blocks = model().table_scale(features)
    found = ratios(theta, ["beta[Intercept]", "beta[a]"], blocks, features)
    assert (found is None) == (kind is None)
    if found is not None:
        assert found["kind"] == kind
        assert list(found["parameters"]) == ["a"]
        assert found["parameters"]["a"]["mean"] == pytest.approx(3.0)


def test_every_unit_of_a_network_is_the_same_on_both_scales():
    labels = [f"beta[{k}, {name}]" for k in range(2) for name in FEATURES] + [
        "output[0]",
        "output[1]",
    ]
    draws = np.random.default_rng(5).normal(size=(2, 30, 8))
    x = np.random.default_rng(4).normal(size=(20, 2)) * 5.0
    design = np.column_stack([np.ones(20), (x - MEAN[1:]) / SCALE[1:]])
    theta, found = transform(draws, labels, ATTRIBUTES, network(hidden=[2]).table_scale(FEATURES))
    assert found == labels
    for first in (0, 3):
        units = theta[:, :, first : first + 3] @ np.column_stack([np.ones(20), x]).T
        expected = draws[:, :, first : first + 3] @ design.T
        np.testing.assert_allclose(expected, units, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(draws[:, :, 6:], theta[:, :, 6:])


def test_means_of_a_mixture_are_those_of_the_columns():
    attributes = {
        "features": ["a", "b"],
        "standardization": {"mean": [1.0, -3.0], "scale": [2.0, 5.0]},
    }
    labels = ["mu[0, a]", "mu[0, b]", "mu[1, a]", "mu[1, b]"]
    draws = np.random.default_rng(5).normal(size=(2, 30, 4))
    blocks = gaussian_mixture(components=2, dim=2).table_scale(["a", "b"])
    theta, _ = transform(draws, labels, attributes, blocks)
    expected = np.tile([1.0, -3.0], 2) + np.tile([2.0, 5.0], 2) * draws
    np.testing.assert_array_equal(expected, theta)


def test_tied_means_keep_their_meaning():
    attributes = {"features": ["a"], "standardization": {"mean": [10.0], "scale": [3.0]}}
    draws = np.random.default_rng(5).normal(size=(2, 30, 2))
    theta, labels = transform(
        draws, ["theta1", "theta2"], attributes, gaussian_mixture_tied().table_scale(["a"])
    )
    assert labels == ["theta1", "theta2"]
    np.testing.assert_allclose(10.0 + 3.0 * draws[:, :, 0], theta[:, :, 0], rtol=1e-15)
    second = 10.0 + 3.0 * draws.sum(axis=2)
    np.testing.assert_allclose(second, theta.sum(axis=2), rtol=1e-13, atol=1e-13)


def test_only_parameters_by_feature_share_a_dimension():
    labels = ["beta[a]", "beta[b]", "output[0]", "output[1]", "output[2]", "bias"]
    found = as_variables(np.zeros((2, 5, 6)), labels, ["a", "b"])
    assert found["beta"][0] == ("chain", "draw", "feature")
    assert found["output"][0] == ("chain", "draw", "output_dim")
    assert found["output"][1].shape == (2, 5, 3)
    assert found["bias"][0] == ("chain", "draw")
    assert xr.Dataset(found).sizes == {"chain": 2, "draw": 5, "feature": 2, "output_dim": 3}


def test_length_scales_are_distances():
    standard = {"mean": [0.0, 30.0], "scale": [4.0, 0.5]}
    attributes = {"features": ["a", "b"], "standardization": standard}
    theta = np.random.default_rng(5).lognormal(size=(2, 9, 4))
    labels = ["length_scale[a]", "length_scale[b]", "sigma_f", "sigma_n"]
    by_feature = gaussian_process(ard=True).table_scale(["a", "b"])
    found, names = transform(theta, labels, attributes, by_feature)
    assert names == labels
    np.testing.assert_allclose(theta * [4.0, 0.5, 1.0, 1.0], found)
    # One for all columns has no unit, unless they all have the same.
    shared = ["length_scale", "sigma_f", "sigma_n"]
    blocks = gaussian_process(ard=False).table_scale(["a", "b"])
    unmoved = transform(theta[..., 1:], shared, attributes, blocks)[0]
    np.testing.assert_array_equal(theta[..., 1:], unmoved)
    standard["scale"] = [4.0, 4.0]
    found, names = transform(theta[..., 1:], shared, attributes, blocks)
    np.testing.assert_allclose(theta[..., 1:] * [4.0, 1.0, 1.0], found)
    assert names == shared


@pytest.mark.parametrize("feature", ["x", "0"])
@pytest.mark.parametrize("scales", [[], ["sigma[0]", "sigma[1]"]])
def test_components_of_one_column_move_and_widen(feature, scales):
    standard = {"mean": [30.0], "scale": [4.0]}
    attributes = {"features": [feature], "standardization": standard}
    labels = ["mu[0]", "mu[1]", *scales, "weight[0]"]
    theta = np.random.default_rng(6).uniform(size=(2, 9, len(labels)))
    model = gaussian_mixture_free(components=2, scale=None if scales else 1.0)
    found, names = transform(theta, labels, attributes, model.table_scale([feature]))
    assert names == labels
    np.testing.assert_allclose(30.0 + 4.0 * theta[..., :2], found[..., :2])
    np.testing.assert_allclose(4.0 * theta[..., 2:-1], found[..., 2:-1])
    np.testing.assert_array_equal(theta[..., -1], found[..., -1])


@pytest.mark.parametrize("features", [["a"], ["a", "b"], ["Intercept", "a"]])
def test_names_of_user_parameters_do_not_decide_their_scale(features):
    spelled = {"locations": ("theta1", "theta2", "mu[0]"), "scales": ("length_scale", "sigma[0]")}
    count = len(features)
    attributes = {
        "features": features,
        "standardization": {"mean": [3.0] * count, "scale": [2.0] * count},
    }
    for predictors, shared in (
        ((), spelled),
        (("mu",), spelled),
        (("length_scale", "beta"), {"locations": ("theta1", "theta2")}),
    ):
        model = own(*predictors, **shared)
        labels = list(model.labels(features))
        theta = np.random.default_rng(1).normal(size=(2, 5, len(labels)))
        blocks = blocks_from_description(describe_blocks(model.table_scale(features)))
        found, names = transform(theta, labels, attributes, blocks)
        at = {label: column for column, label in enumerate(names)}
        for column, label in enumerate(labels):
            moved = found[..., at[label]]
            if column >= count * len(predictors):
                np.testing.assert_array_equal(theta[..., column], moved)
            elif not label.endswith("[Intercept]"):
                np.testing.assert_allclose(theta[..., column] / 2.0, moved)


def test_two_parameters_called_theta_are_not_tied_means():
    attributes = {"features": ["a"], "standardization": {"mean": [10.0], "scale": [3.0]}}
    model = own(locations=("theta1", "theta2"))
    draws = np.random.default_rng(5).normal(size=(2, 30, 2))
    found, _ = transform(draws, ["theta1", "theta2"], attributes, model.table_scale(["a"]))
    np.testing.assert_array_equal(draws, found)


def test_ratios_mark_the_columns_of_bases_and_interactions_of_a_formula():
    marked = ["bs(h, df=6)[1]", "poly(x, 2)[2]", "a:b", "a:C(o)[T.x:y]", "log(a):cr(h, df=4)[1]"]
    plain = ["a", "C(o)[T.x:y]", "log(a)", "scale(a)", "C(o, Treatment('x:y'))[T.z]"]
    features = [*plain, *marked]
    labels = [f"beta[{name}]" for name in features]
    theta = np.zeros((1, 2, len(features)))
    blocks = logistic().table_scale(features)
    assert ratios(theta, labels, blocks, features)["only_together"] == []
    assert ratios(theta, labels, blocks, features, formula=True)["only_together"] == marked
