"""The Gaussian log-likelihood from the sums of one pass, against SciPy on every row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streammc.control_variates import compute
from streammc.models import gaussian
from streammc.models.glm.gaussian_identity import gaussian_sums
from streammc.stores import from_arrays


@pytest.mark.parametrize("size", [0.01, 1.0])
def test_sums_of_one_pass_give_value_and_gradient_anywhere(size):
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(80), rng.normal(size=(80, 2))]
    y, weight = X @ [1.0, -2.0, 0.5] + 0.7 * rng.normal(size=80), rng.uniform(0.5, 2.0, size=80)
    cv = compute(from_arrays(X, y, weight=weight), gaussian())

    def exact(theta):
        return weight @ stats.norm(X @ theta[:3], np.exp(theta[3])).logpdf(y)

    for _ in range(5):
        delta, out = size * rng.normal(size=4), np.empty(4)
        sums = (cv.log_lik, cv.gradient, cv.hessian, cv.theta_star, delta)
        theta = cv.theta_star + delta
        assert gaussian_sums(*sums, out) == pytest.approx(exact(theta), rel=1e-11)
        for j, step in enumerate(1e-5 * np.eye(4)):
            slope = (exact(theta + step) - exact(theta - step)) / 2e-5
            assert out[j] == pytest.approx(slope, rel=1e-6, abs=1e-4)
