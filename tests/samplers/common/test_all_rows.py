"""What samplers share that keep all rows in memory, and the clock of chains."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.models import gaussian_process, logistic
from streammc.priors import normal
from streammc.samplers import pt
from streammc.samplers.common.preparation import ground
from streammc.stores import from_arrays


@pytest.mark.parametrize("model", [logistic(prior=normal(2.0)), gaussian_process()])
def test_rows_are_held_for_the_likelihood_that_the_model_has(model):
    rng = np.random.default_rng(1)
    data = from_arrays(rng.normal(size=(20, 1)), (rng.random(20) < 0.5).astype(float))
    cv = without_pass(bind(data, model))
    _, held, first, spread = ground(data, model, cv, pt(covariance="identity"))
    assert int(model.joint is not None) == held.joint
    assert (0.1, len(cv.theta_star)) == (spread, len(first))


def test_a_start_is_the_first_position_without_any_spread():
    data = from_arrays(np.ones((20, 1)), np.ones(20))
    model = logistic(prior=normal(2.0))
    sampler = pt(start=0.7, covariance="identity")
    base, _, first, spread = ground(data, model, without_pass(bind(data, model), 0.7), sampler)
    np.testing.assert_allclose([0.7], base.theta_star + base.factor @ first)
    assert 0.0 == spread
