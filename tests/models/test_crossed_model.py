"""Factors with slopes: correlations and partial ones, their prior, the scale of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crossed_tables import correlations_of

from streammc.errors import ConfigError
from streammc.models import gaussian
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.models.table_scale import EFFECTS, ScaleBlock, transform
from streammc.numerics.prior import log_prior
from streammc.priors import half_normal, lkj, normal

FEATURES = ("Intercept", "x", "z")
PRIOR: Any = {f"beta[{name}]": normal(0.0, 1.0) for name in FEATURES}
PRIOR |= {"sigma": half_normal(1.0), "tau*": half_normal(1.0), "rho*": lkj(2.0)}


def model_of(
    correlated: bool = True, terms: tuple[str, ...] = ("1", "x", "z"), **prior: Any
) -> Any:
    inner: Any = gaussian(prior=PRIOR | prior)
    return CrossedModel(
        inner.prior, inner=inner, crossed=("g",), terms=(terms,), correlated=(correlated,),
        features=FEATURES,
    )  # fmt: skip


def test_correlations_are_those_of_partial_ones() -> None:
    model = model_of()
    labels = model.labels(FEATURES)
    assert ("rho[g:Intercept,x]", "rho[g:Intercept,z]", "rho[g:x,z]") == labels[-3:]
    theta = np.random.default_rng(1).normal(size=(7, len(labels)))
    values = model.constrain(theta)
    for row, own in zip(theta, values, strict=True):
        R = correlations_of(row[-3:], 3)
        np.testing.assert_allclose(own[-3:], [R[1, 0], R[2, 0], R[2, 1]], rtol=1e-12)
    np.testing.assert_allclose(model.unconstrain(values), theta, rtol=1e-9)
    (sigma,) = model.covariances(theta)
    scale = np.sqrt(np.diagonal(sigma, axis1=1, axis2=2))
    np.testing.assert_allclose(scale, np.exp(theta[:, 4:7]), rtol=1e-12)
    np.testing.assert_allclose(sigma[:, 2, 1] / scale[:, 2] / scale[:, 1], values[:, -1])


def test_a_prior_of_correlations_is_one_of_their_matrix() -> None:
    """``det(R)^(shape - 1)``: differences of it are those of the rows of the table."""
    shape = 3.0
    model = model_of(**{"rho*": lkj(shape)})
    table = model.prior_table(model.labels(FEATURES))[-3:, :5].copy()
    theta = np.random.default_rng(2).normal(size=(5, 3))

    def density(row: Any, power: float) -> float:
        R = correlations_of(row, 3)
        steps = 1e-5 * np.eye(3)
        own = [(1, 0), (2, 0), (2, 1)]
        J = [[(correlations_of(row + s, 3) - correlations_of(row - s, 3))[i, j] / 2e-5
              for i, j in own] for s in steps]  # fmt: skip
        return float((power - 1.0) * np.linalg.slogdet(R)[1] + np.linalg.slogdet(J)[1])

    found = [log_prior(row.copy(), table, np.zeros(3)) for row in theta]
    for power, same in ((shape, True), (shape + 0.5, False)):
        known = [density(row, power) for row in theta]
        away = np.ptp(np.subtract(found, known))
        assert (away < 1e-6) == same, (power, away)
    with pytest.raises(ConfigError, match="all correlations of a factor"):
        model = model_of(**{"rho[g:x,z]": lkj(3.0)})
        model.prior_table(model.labels(FEATURES))


@pytest.mark.parametrize("correlated", [True, False])
def test_effects_on_the_scale_of_the_table_are_those_of_its_columns(correlated: bool) -> None:
    names = ("tau[g:Intercept]", "tau[g:x]", "tau[g:z]")
    rho = ("rho[g:Intercept,x]", "rho[g:Intercept,z]", "rho[g:x,z]")
    block = ScaleBlock(EFFECTS, names + rho * correlated, effects=("Intercept", "x", "z"))
    mean, scale = np.array([0.0, 2.0, -1.0]), np.array([1.0, 0.5, 3.0])
    stated = {"features": list(FEATURES),
              "standardization": {"mean": mean.tolist(), "scale": scale.tolist()}}  # fmt: skip
    own = np.array([0.7, 0.4, 1.2] + [0.3, -0.2, 0.5] * correlated)
    draws, labels = transform(own[None, None], block.labels, stated, [block])
    R = np.eye(3)
    if correlated:
        R[[1, 2, 2], [0, 0, 1]] = R[[0, 0, 1], [1, 2, 2]] = own[3:]
    A = np.diag(1.0 / scale)
    A[0, 1:] = -mean[1:] / scale[1:]
    sigma = A @ (R * np.outer(own[:3], own[:3])) @ A.T
    tau = np.sqrt(np.diag(sigma))
    S = sigma / np.outer(tau, tau)
    expected = dict(zip(names, tau, strict=True)) | dict(
        zip(rho, S[[1, 2, 2], [0, 0, 1]], strict=True)
    )
    if not correlated:
        assert abs(expected.pop("rho[g:x,z]")) < 1e-12  # and is not reported
    assert [*expected] == labels
    np.testing.assert_allclose(draws[0, 0], [*expected.values()], rtol=1e-12)


def test_a_slope_that_is_no_column_is_refused() -> None:
    with pytest.raises(ConfigError, match="random slopes of 'g' among the features, found 'w'"):
        model_of(terms=("1", "w"))
