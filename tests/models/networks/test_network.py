"""The network: derivatives, labels, and that a wrong one would be noticed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest

import streammc
from streammc.control_variates import compute
from streammc.errors import ConfigError, ModelError
from streammc.models import check_model, logistic, network
from streammc.models.check import Place, derivatives, evaluate
from streammc.models.networks import Network, link
from streammc.numerics.jit import LINK_SIGNATURE, jit
from streammc.priors import normal
from streammc.protocols import Rows
from streammc.samplers import hmc

SHAPES = [(1,), (3,), (1, 1), (2, 3), (3, 2, 2), (1, 4, 1, 2)]
shapes = pytest.mark.parametrize("hidden", SHAPES, ids=str)


def chance(hidden, eta):
    """P(y = 1) as in a textbook, one row."""
    h, at = 1 / (1 + np.exp(-eta[: hidden[0]])), hidden[0]
    for n_in, n_out in pairwise((*hidden, 1)):
        weights = eta[at : at + n_out * n_in].reshape(n_out, n_in)
        h = 1 / (1 + np.exp(-(weights @ h + eta[at + n_out * n_in :][:n_out])))
        at += n_out * (n_in + 1)
    assert at == len(eta)
    return h[0]


def place(model, m=8, seed=0):
    rng = np.random.default_rng(seed)
    eta = rng.standard_normal((model.n_linear + model.n_scalar, m))
    return Place(eta, model.simulate(eta, rng), np.zeros((0, m)))


@shapes
def test_mean_is_what_the_layers_compute(hidden):
    model = network(hidden)
    eta = place(model).eta
    expected = [chance(hidden, eta[:, i]) for i in range(eta.shape[1])]
    np.testing.assert_allclose(model.mean(eta), expected, rtol=1e-14)


@shapes
def test_value_is_that_of_the_mean(hidden):
    model = network(hidden)
    eta, y, _ = place(model)
    p = model.mean(eta)
    expected = np.log(np.where(y == 1.0, p, 1.0 - p))
    np.testing.assert_allclose(evaluate(model, eta, y)[0], expected, rtol=1e-13)


@shapes
def test_model_agrees_with_itself(hidden):
    report = check_model(network(hidden), support=[0.0, 1.0], draws=1000, points=6, seed=1)
    assert report.passed, str(report)


def test_the_default_agrees_with_itself():
    report = check_model(network(), support=[0.0, 1.0], draws=2000)
    assert report.passed, str(report)


@jit(LINK_SIGNATURE)
def wrong_slope(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Backpropagation with a factor on the first unit."""
    link(eta, X, y, constants, order, out)
    if order >= 1:
        for i in range(y.shape[0]):
            out[1, i] *= 1.0 + 1e-6


@jit(LINK_SIGNATURE)
def wrong_curvature(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """The part of Gauss and Newton alone, between the first two units."""
    link(eta, X, y, constants, order, out)
    if order == 2:
        p = eta.shape[0]
        for i in range(y.shape[0]):
            slope = out[p, i]
            spread = (y[i] - slope) * (1.0 - y[i] + slope)
            out[2 + p, i] = -spread * out[1, i] * out[2, i] / slope**2


@dataclass(frozen=True)
class WrongSlope(Network):
    link_kernel: ClassVar[Any] = wrong_slope


@dataclass(frozen=True)
class WrongCurvature(Network):
    link_kernel: ClassVar[Any] = wrong_curvature


def test_a_slope_that_is_a_millionth_off_is_noticed():
    model = WrongSlope(normal(1.0), (2, 2))
    assert not derivatives(model, place(model))[0].passed
    assert derivatives(network((2, 2)), place(model))[0].passed


def test_a_curvature_that_leaves_out_the_second_order_is_noticed():
    model = WrongCurvature(normal(1.0), (2, 2))
    assert derivatives(model, place(model))[0].passed
    assert not derivatives(model, place(model))[1].passed
    assert derivatives(network((2, 2)), place(model))[1].passed


@pytest.mark.parametrize("m", [1, 7, 63, 64, 65, 200])
def test_bits_depend_on_neither_tile_nor_order(m):
    model = network((3, 2))
    eta, y, _ = place(model, 200)
    whole, p = evaluate(model, eta, y), len(eta)
    part = evaluate(model, eta[:, 200 - m :], y[200 - m :])
    np.testing.assert_array_equal(whole[:, 200 - m :], part)
    for order, rows in ((0, 1), (1, 1 + p)):
        np.testing.assert_array_equal(whole[:rows], evaluate(model, eta, y, order)[:rows])


def test_labels_name_layers_units_and_inputs():
    model = network((3, 2))
    labels = model.labels(["Intercept", "x"])
    assert len(labels) == len(set(labels)) == model.dim(2)
    assert labels[:3] == ("beta[0, Intercept]", "beta[0, x]", "beta[1, Intercept]")
    assert labels[6:14] == (
        *(f"weight2[{k}, {j}]" for k in range(2) for j in range(3)),
        *("bias2[0]", "bias2[1]"),
    )
    assert labels[14:] == ("output[0]", "output[1]", "output_bias")


def test_size_of_the_networks_of_the_documentation():
    model = network()
    assert (model.n_linear + model.n_scalar, model.dim(29)) == (49, 273)


def test_start_is_always_the_same_and_no_saddle():
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(50, 3)), (rng.random(50) < 0.9) * 1.0, np.zeros(50), np.ones(50))
    model = network((3, 2))
    start = model.start(rows)
    np.testing.assert_array_equal(start, model.start(rows))
    first = start[:9].reshape(3, 3)
    assert len({*first.ravel()}) == 9
    eta = np.vstack([first @ rows.X.T, np.tile(start[9:, None], 50)])
    assert abs(model.mean(eta).mean() - rows.y.mean()) < 0.15


def test_start_has_a_finite_likelihood_where_all_responses_are_alike():
    rows = Rows(np.ones((5, 1)), np.ones(5), np.zeros(5), np.ones(5))
    assert np.isfinite(network().start(rows)).all()


@pytest.mark.parametrize("hidden", [[], [0], [2.5], "wide", [True], 3.5, None])
def test_layer_sizes_below_one_are_refused(hidden):
    with pytest.raises(ConfigError, match="expected hidden layers"):
        network(hidden)


def test_too_wide_a_network_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match=r"at most 256 .* found 485: every row has a Hessian"):
        network([20, 20, 2])
    assert network([84]).n_scalar == 85


def test_weights_without_a_named_prior_are_standard_normal():
    model = network([2], prior={"output*": normal(3.0)})
    labels = model.labels(["x"])
    assert model.prior_table(labels)[:, 2].tolist() == [1.0, 1.0, 3.0, 3.0, 3.0]


def test_hmc_samples_a_network_that_predicts():
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(400), rng.normal(size=(400, 2))]
    y = ((X[:, 1] ** 2 + X[:, 2] ** 2) < 1.2) * 1.0  # no linear predictor tells them apart
    data, model = streammc.from_arrays(X, y), network([3], prior=normal(3.0))
    run = streammc.sample(data, model, sampler=hmc(), draws=100, warmup=300, chains=1, seed=2)
    posterior = run["posterior"]
    assert posterior["beta"].dims == ("chain", "draw", "beta_dim")
    beta = posterior["beta"].values[0].reshape(-1, 3, 3)
    shared = np.c_[posterior["output"].values[0], posterior["output_bias"].values[0]]
    means = [
        model.mean(np.vstack([first @ X.T, np.tile(rest[:, None], 400)]))
        for first, rest in zip(beta, shared, strict=True)
    ]
    right = (np.mean(means, axis=0) > 0.5) == (y == 1.0)
    assert right.mean() > 0.9
    assert max(y.mean(), 1.0 - y.mean()) < 0.7


def test_a_unit_that_saturates_is_no_separation():
    rng = np.random.default_rng(2)
    X = np.c_[np.ones(500), rng.normal(size=500)]
    data = streammc.from_arrays(X, (X[:, 1] > 0.0) * 1.0)
    as_columns, as_units = (compute(data, model) for model in (logistic(), network([2])))
    assert any("separation" in line for line in as_columns.certificate["warnings"])
    words = " ".join(as_units.certificate["warnings"])
    assert "separation" not in words
    assert "columns" not in words


def test_mode_search_that_ends_at_a_saddle_is_one_line_with_a_remedy():
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(300), rng.normal(size=300)]
    data = streammc.from_arrays(X, (X[:, 1] ** 2 < 0.5) * 1.0)
    model = network([2], prior=normal(10.0))
    with pytest.raises(ModelError, match=r"curves upwards in some direction: .* between the modes"):
        compute(data, model, theta_star=np.zeros(model.dim(2)), passes=1)
