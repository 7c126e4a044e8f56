"""What is settled before the first draw of a ladder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problem_of import problem_of

from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers import pt, spt, stt, tt
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays


@pytest.mark.parametrize(
    ("build", "move"),
    [(pt, "swap_rate"), (spt, "swap_rate"),
     (tt, "transition_acceptance"), (stt, "transition_acceptance")],
)  # fmt: skip
def test_a_sampler_makes_its_own_moves_over_the_levels_that_are_given(
    build: Any, move: str
) -> None:
    rng = np.random.default_rng(1)
    data = from_arrays(rng.normal(size=(200, 2)), (rng.random(200) < 0.5).astype(float))
    sampler = build(n_levels=3, beta_min=0.5, step_size=0.1)
    model = logistic(prior=normal(2.0))
    setup = decide(RunRequest(data, model, sampler, seed=1))
    assert (sampler.name, 3) == (setup.sampler.name, setup.sampler.n_levels)
    assert setup.plan is None
    counted = problem_of(data, model, setup.cv, None, setup.sampler).kernel(1, 0).tallies()
    assert (3, True) == (len(counted["beta"]), move in counted)
