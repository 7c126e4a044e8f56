"""The self-check of a model finds every kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streammc.models.check import check_model
from streammc.models.glm.bernoulli_logit import Logistic
from streammc.models.glm.poisson_log import Poisson
from streammc.protocols import Matrix, Vector


def broken(change: Callable[[Matrix, Vector, int, Matrix], None]) -> type[Poisson]:
    """Return the Poisson model with what its link wrote changed afterwards."""

    def link(eta: Matrix, X: Matrix, y: Vector, constants: Vector, order: int, out: Matrix) -> None:
        Poisson.link_kernel(eta, X, y, constants, order, out)
        change(eta, y, order, out)

    class Broken(Poisson):
        link_kernel: Any = staticmethod(link)

    return Broken


def wrong_slope(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    out[1] *= 1.0 + 1e-7


def wrong_curvature(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    out[2] += 1e-7


def dropped_constant(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    out[0] += 0.001 * (y == 0.0)


def neighbours(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    out[0] = np.nextafter(out[0], -np.inf) if len(y) == 1 else out[0]


def order_changes_bits(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    if order == 0:
        out[0] = np.nextafter(out[0], -np.inf)


def overflow(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    out[0, eta[0] > 700.0] = np.nan


def wrong_likelihood(eta: Matrix, y: Vector, order: int, out: Matrix) -> None:
    out *= 1.05


CASES = [
    (wrong_slope, "first derivatives"),
    (wrong_curvature, "second derivatives"),
    (dropped_constant, "probabilities sum to one"),
    (neighbours, "same bits for every order and place"),
    (order_changes_bits, "same bits for every order and place"),
    (overflow, "NaN or +inf for predictors up to 1e4"),
    (wrong_likelihood, "simulated mean of score squared plus curvature"),
]


@pytest.mark.parametrize(
    ("change", "finding"), CASES, ids=lambda case: getattr(case, "__name__", None)
)
def test_a_broken_link_is_found(
    change: Callable[[Matrix, Vector, int, Matrix], None], finding: str
) -> None:
    report = check_model(broken(change)(), support=np.arange(400.0))
    assert finding in {each.name for each in report.findings if not each.passed}
    assert not report.passed
    assert f"FAIL {finding}" in str(report)


def test_an_unchanged_link_passes() -> None:
    report = check_model(broken(lambda *_: None)(), support=np.arange(400.0))
    assert report.passed, str(report)


def test_a_simulator_of_another_family_is_found() -> None:
    class Overdispersed(Poisson):
        def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
            rate = np.exp(eta[0]) * rng.gamma(10.0, 0.1, size=eta.shape[1])
            return rng.poisson(rate).astype(np.float64)

    failed = {each.name for each in check_model(Overdispersed()).findings if not each.passed}
    assert failed == {"simulated mean of score squared plus curvature"}


def test_a_biased_simulator_is_found() -> None:
    class Shifted(Logistic):
        def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
            return super().simulate(eta + 0.2, rng)

    failed = {each.name for each in check_model(Shifted()).findings if not each.passed}
    assert "simulated mean of the score" in failed


def test_a_method_that_breaks_the_protocol_is_named() -> None:
    class Mislabelled(Logistic):
        def labels(self, feature_names: Any) -> tuple[str, ...]:
            return ("beta",) * len(feature_names)

    (finding,) = [each for each in check_model(Mislabelled()).findings if not each.passed]
    assert (finding.name, finding.detail) == ("interface", "labels")
