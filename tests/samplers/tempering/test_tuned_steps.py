"""Step sizes of the levels: tuned in warm-up where none is given, each by its own acceptance."""

from __future__ import annotations

import numpy as np
import pytest
from ladders import problem

from streammc.priors import normal
from streammc.samplers import pt, tt
from streammc.samplers.common import tuning
from streammc.samplers.tempering.parallel_kernel import ParallelKernel
from streammc.samplers.tempering.transition_kernel import TransitionKernel

KERNELS = {pt: ParallelKernel, tt: TransitionKernel}


def started(build, **options):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(30), rng.normal(size=30)]
    y = X @ [0.5, -0.5] + rng.normal(size=30)
    options = {"n_levels": 3, "beta_min": 0.25, "ladder": "geometric", **options}
    kernel = KERNELS[build](problem(build(**options), X, y, prior=normal(2.0)), 1, 0)
    kernel.initialise()
    return kernel


@pytest.mark.parametrize("build", KERNELS)
def test_levels_follow_what_their_acceptance_asks_for(build):
    kernel = started(build)
    before = kernel.ladder.step.copy()
    kernel.advance(20, True)
    assert (before != kernel.ladder.step).all()
    steps = np.exp(kernel._tuning[:, tuning.LOG_STEP])
    np.testing.assert_array_max_ulp(steps, kernel.ladder.step)  # exp of NumPy, and of the loop
    assert (kernel._tuning[:, tuning.LOG_STEP] != kernel._tuning[:, tuning.LOG_AVERAGE]).all()
    kernel.advance(1, False)
    averaged = np.exp(kernel._tuning[:, tuning.LOG_AVERAGE])
    np.testing.assert_array_equal(averaged, kernel.ladder.step)


@pytest.mark.parametrize("build", KERNELS)
def test_a_step_that_is_given_stays(build):
    kernel = started(build, step_size=0.3)
    np.testing.assert_allclose(0.3 * np.array([1.0, 0.5, 0.25]) ** -0.5, kernel.ladder.step)
    before = kernel.ladder.step.copy()
    kernel.advance(20, True)
    kernel.advance(5, False)
    np.testing.assert_array_equal(before, kernel.ladder.step)
