"""Chains in whitened coordinates: the same draws but for roundings, resumed bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import Small, kernel_problem

from streammc.control_variates.certify import compute
from streammc.control_variates.plan.subsample_plan import PlanRequest, plan
from streammc.models import logistic, user
from streammc.models.glm.bernoulli_logit import link as logistic_link
from streammc.priors import normal
from streammc.samplers import hmc_ecs
from streammc.samplers.hamiltonian.problem import subsampled, whiten_block, whitened_base
from streammc.stores.memory import from_arrays


def problem(*, whitened, model="logistic", nuts=False, product=False, certain=(4, 9)):
    small = Small(model, n=60, d=3, k=6, certain=() if product else certain, near_mode=True)
    base = small.product_base(6, -8.0) if product else small.base
    found = kernel_problem(small, step_size=0.3, base=base, nuts=nuts)
    if whitened:
        found = replace(found, base=whitened_base(base, small.d))
        whiten_block(found.base.whitening, small.certain)
    return found


def started(**options):
    kernel = problem(**options).kernel(3, 0)
    kernel.initialise()
    return kernel


CASES = [{}, {"model": "student-t, 4 df"}, {"nuts": True}, {"product": True}]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_whitened_chain_makes_the_draws_of_one_in_theta(options):
    draws = [started(whitened=side, **options).advance(40, False) for side in (False, True)]
    assert 30 < len(np.unique(draws[0]["theta"][:, 0]))
    for name, values in draws[0].items():
        np.testing.assert_allclose(draws[1][name], values, rtol=1e-7, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_whitened_chain_is_resumed_bit_for_bit(options):
    chain, other = (started(whitened=True, **options) for _ in range(2))
    chain.advance(25, True)
    other.set_state(*chain.get_state())
    expected, found = chain.advance(40, False), other.advance(40, False)
    for name, values in expected.items():
        np.testing.assert_array_equal(values, found[name], err_msg=name)


@pytest.mark.parametrize("sides", [(False, True), (True, False)])
def test_checkpoint_in_other_coordinates_is_continued(sides):
    first, second = (started(whitened=side) for side in sides)
    first.advance(25, True)
    arrays, meta = first.get_state()
    if sides[1]:
        del arrays["whitened"]  # as an earlier version wrote it
    second.set_state(arrays, meta)
    expected, found = first.advance(40, False), second.advance(40, False)
    np.testing.assert_allclose(found["theta"], expected["theta"], rtol=1e-7, atol=1e-8)


def of_columns(link):
    """Return a problem of hmc-ecs whose model has this link."""
    rng = np.random.default_rng(2)
    X = np.c_[np.ones(500), rng.normal(size=(500, 2))]
    store = from_arrays(X, (rng.random(500) < 0.5).astype(float))
    model = user("own", link=link, prior=normal(2.0)) if link else logistic(prior=normal(2.0))
    cv, sampler = compute(store, model), hmc_ecs(subsample_size=20, certainty=False)
    design = plan(cv, store, model, PlanRequest(subsample_size=20, certainty=False))
    return subsampled(store, model, cv, design, sampler)


def test_rows_are_whitened_only_for_links_that_see_no_columns():
    assert of_columns(None).base.whitening.shape == (3, 8)
    # A link of the user's own sees the columns: those of the table, never whitened ones.
    assert of_columns(logistic_link.py_func).base.whitening.shape == (0, 0)
