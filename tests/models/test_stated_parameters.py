"""Parameters are what the model states; their labels are names and nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from streammc.diagnostics.derived import ratios
from streammc.errors import ConfigError, StoreError
from streammc.models import Parameter, user
from streammc.models.base import predictor
from streammc.models.table_scale import (
    COEFFICIENT,
    DISTANCE,
    PLACE,
    ScaleBlock,
    blocks_from_description,
    describe_blocks,
    transform,
)
from streammc.numerics.prior import KIND, LOCATION, NORMAL, SCALE
from streammc.priors import half_normal, normal
from streammc.runs.job import run_job
from streammc.samplers import hmc
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import StoreWriter, open_store

ONE = {"features": ["x"], "standardization": {"mean": [30.0], "scale": [4.0]}}


def own(**options: Any) -> Any:
    """Return a model of a user's own, which nothing evaluates."""
    return user("own", log_lik=max, gradient=max, hessian=max, **options)


def stated_blocks(model: Any, features: list[str]) -> tuple[ScaleBlock, ...]:
    """Return the blocks of a model after their way through a run's attributes."""
    blocks = json.loads(json.dumps(describe_blocks(model.table_scale(features))))
    return blocks_from_description(blocks)


def blocks_read_from_labels(model: Any, features: list[str]) -> tuple[ScaleBlock, ...]:
    """Return blocks guessed from labels: what the statements of models replace."""
    labels = model.labels(features)
    if list(labels) == ["theta1", "theta2"]:
        return (ScaleBlock(PLACE, labels[:1]), ScaleBlock(DISTANCE, labels[1:]))
    found = [ScaleBlock(DISTANCE, (label,)) for label in labels if label == "length_scale"]
    slopes = tuple(f"beta[{feature}]" for feature in features)
    if {*slopes} <= {*labels}:
        found.append(ScaleBlock(COEFFICIENT, slopes, "beta[Intercept]"))
    if not found:
        raise StoreError("expected one parameter per column: verify the store")
    return tuple(found)


UNMOVED = [
    ({"predictors": (), "scales": ("length_scale",)}, ("length_scale",)),
    ({"scales": ("length_scale",)}, ("length_scale",)),
    ({"predictors": (), "locations": ("theta1", "theta2")}, ("theta1", "theta2")),
    ({"predictors": (), "locations": ("alpha",), "scales": ("kappa",)}, ("alpha", "kappa")),
]
"""Parameters of users' own, and labels whose numbers are the same on both scales."""


def assert_unmoved(read: Any, options: dict[str, Any], labels: tuple[str, ...]) -> None:
    model = own(**options)
    given = list(model.labels(ONE["features"]))
    theta = np.random.default_rng(2).lognormal(size=(2, 9, len(given)))
    found, names = transform(theta, given, ONE, read(model, ONE["features"]))
    for label in labels:
        expected = theta[..., given.index(label)]
        np.testing.assert_array_equal(expected, found[..., names.index(label)])


@pytest.mark.parametrize(("options", "labels"), UNMOVED)
def test_a_name_moves_no_parameter_to_the_table_s_scale(options: Any, labels: Any) -> None:
    assert_unmoved(stated_blocks, options, labels)


@pytest.mark.parametrize(("options", "labels"), UNMOVED)
def test_a_version_that_reads_labels_would_be_seen(options: Any, labels: Any) -> None:
    with pytest.raises((AssertionError, StoreError)):
        assert_unmoved(blocks_read_from_labels, options, labels)


def quadratic(**options: Any) -> Any:
    """Return a likelihood of ``alpha`` and ``log kappa`` alone, Normal around (1, 0)."""

    def log_lik(theta: Any, X: Any, y: Any) -> Any:
        return np.full(len(y), -0.5 * ((theta[0] - 1.0) ** 2 + theta[1] ** 2) / len(y))

    def gradient(theta: Any, X: Any, y: Any) -> Any:
        return np.tile(np.array([1.0 - theta[0], -theta[1]]) / len(y), (len(y), 1))

    def hessian(theta: Any, X: Any, y: Any) -> Any:
        return np.tile(-np.eye(2) / len(y), (len(y), 1, 1))

    return user("own", log_lik=log_lik, gradient=gradient, hessian=hessian, **options)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("store") / "s.zarr"
    rng = np.random.default_rng(0)
    with StoreWriter(path, features=["x"]) as writer:
        writer.append(rng.normal(size=(40, 1)), rng.normal(size=40))
        writer.commit({"response": "y", "standardization": ONE["standardization"]})
    return open_store(path)


def summary_of(store: Any, model: Any) -> Any:
    request = RunRequest(store, model, hmc(), draws=50, warmup=50, chains=1, seed=1)
    return run_job(request).summary


def test_a_run_of_alpha_and_kappa_ends_with_its_summary(store: Any) -> None:
    model = quadratic(predictors=(), locations=("alpha",), scales=("kappa",))
    found = summary_of(store, model)
    assert {"alpha", "kappa"} == {*found["parameters_original"]}
    assert found["parameters"] == found["parameters_original"]


def test_what_a_user_states_moves_parameters_to_the_table_s_scale(store: Any) -> None:
    stated = (Parameter("alpha", table_scale=PLACE), Parameter("kappa", support="positive"))
    run = summary_of(store, quadratic(parameters=stated))
    here, there = run["parameters"], run["parameters_original"]
    assert there["alpha"]["mean"] == pytest.approx(30.0 + 4.0 * here["alpha"]["mean"])
    assert here["kappa"] == there["kappa"]
    assert here["kappa"]["q5"] > 0.0


def test_records_and_names_state_the_same_model() -> None:
    named = own(predictors=("beta", "tau"), locations=("a",), scales=("b",))
    records = (predictor(), predictor("tau"), Parameter("a"), Parameter("b", support="positive"))
    stated = own(parameters=records)
    features = ["Intercept", "x"]
    assert named.labels(features) == stated.labels(features)
    assert named.table_scale(features) == stated.table_scale(features)
    theta = np.random.default_rng(1).normal(size=(3, 6))
    np.testing.assert_array_equal(named.constrain(theta), stated.constrain(theta))
    np.testing.assert_allclose(theta, stated.unconstrain(stated.constrain(theta)))


def test_default_priors_of_records_are_those_of_the_table() -> None:
    records = (
        Parameter("a", default=normal(2.0, location=1.0)),
        Parameter("nu", support="positive", default=half_normal(3.0)),
        Parameter("c"),
    )
    model = own(parameters=records, prior={"c": normal(7.0)})
    table = model.prior_table(model.labels([]))
    assert [NORMAL, 1.0, 2.0] == table[0, [KIND, LOCATION, SCALE]].tolist()
    assert table[1].tolist() == half_normal(3.0).rows(["nu"], [True])[0].tolist()
    assert 7.0 == table[2, SCALE]


def test_a_statement_is_part_of_the_identity() -> None:
    one, other = (
        own(parameters=(predictor(), Parameter("a", default=normal(scale)))) for scale in (1.0, 2.0)
    )
    assert one.describe() != other.describe()
    assert one.describe() == json.loads(json.dumps(one.describe()))
    assert "parameters" not in own(locations=("a",)).describe()


def test_parameters_per_feature_that_are_no_coefficients() -> None:
    model = own(
        parameters=(Parameter("mu", per_feature=True, components=(2,), table_scale=PLACE),),
        n_features=2,
    )
    assert ("mu[0, a]", "mu[0, b]", "mu[1, a]", "mu[1, b]") == model.labels(["a", "b"])
    assert (4, 0, 4) == (model.dim(2), model.n_linear, model.n_scalar)
    with pytest.raises(ConfigError, match="expected 2 columns, found 1"):
        model.labels(["a"])


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (["a"], r"expected parameters as streammc.models.Parameter, found 'a'"),
        ([Parameter("a"), Parameter("a")], "different names"),
        ([Parameter("a", support="simplex", components=(2,))], "found 'a', simplex"),
        ([Parameter("a"), predictor()], "expected the coefficients first, found a, beta"),
        ([Parameter("mu", per_feature=True)], "expected n_features"),
        (
            [predictor(exponential="odds ratio"), predictor("tau", "rate ratio")],
            "one meaning of the exponentials, found odds ratio and rate ratio",
        ),
    ],
)
def test_records_that_do_not_fit_are_refused_in_one_line(records: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        own(parameters=records)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"support": "whole"},
            "a support of real, positive, correlation, simplex, ordered",
        ),
        ({"table_scale": "beta"}, "found 'real' and 'beta' of 'a'"),
        ({"table_scale": COEFFICIENT}, "expected a coefficient for each feature"),
        ({"exponential": "odds ratio"}, "expected an exponential of a coefficient"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Parameter("a", **options)


def test_names_and_records_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="found both"):
        own(locations=("a",), parameters=(predictor(),))


def test_ratios_of_two_predictors_are_told_apart() -> None:
    records = (predictor("a", "odds ratio"), predictor("b", "odds ratio"))
    model, features = own(parameters=records), ["Intercept", "x"]
    theta = np.log(np.array([[[1.0, 2.0, 1.0, 8.0], [1.0, 2.0, 1.0, 8.0]]]))
    found = ratios(theta, model.labels(features), model.table_scale(features), features)
    assert found is not None
    assert {"a[x]": 2.0, "b[x]": 8.0} == {
        name: pytest.approx(entry["mean"]) for name, entry in found["parameters"].items()
    }


def test_a_place_that_columns_share_moves_where_they_have_one_mean_and_scale() -> None:
    model = own(parameters=(Parameter("m", table_scale=PLACE),))
    theta = np.random.default_rng(3).normal(size=(1, 4, 1))
    standard = {"mean": [1.0, 1.0], "scale": [2.0, 2.0]}
    attributes = {"features": ["a", "b"], "standardization": standard}
    blocks = model.table_scale(["a", "b"])
    np.testing.assert_array_equal(1.0 + 2.0 * theta, transform(theta, ["m"], attributes, blocks)[0])
    standard["mean"] = [1.0, 3.0]
    np.testing.assert_array_equal(theta, transform(theta, ["m"], attributes, blocks)[0])
