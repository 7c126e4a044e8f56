from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import streammc
from streammc.runs.setup import decide
from streammc.samplers import mh, mh_austere, mh_sublhd
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.metropolis.options import _bounded, _held, _starts, temperature_facts


def test_the_pass_for_a_bound_is_counted_with_its_rows_and_seconds() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 2))
    data = streammc.from_arrays(X, (rng.random(500) < 0.5).astype(float))
    model = streammc.models.logistic()
    before = streammc.control_variates(data, model)
    request: Any = SimpleNamespace(dataset=data, model=model, scheduler=None)
    begun = time.perf_counter()
    after = _bounded(before, request, mh_sublhd(bound="model"), None).certificate
    elapsed = time.perf_counter() - begun
    certificate = before.certificate
    assert (500, None) == (after.rows_read - certificate.rows_read, certificate.term_bound)
    assert after.term_bound is not None
    assert 0.0 < after.seconds - certificate.seconds <= elapsed


@pytest.mark.parametrize(
    ("covariance", "shape"), [("diagonal", "diagonal"), ("full", "full"), ("laplace", None)]
)
def test_a_shape_is_learnt_where_the_covariance_asks_for_it(
    covariance: Any, shape: str | None
) -> None:
    rng = np.random.default_rng(1)
    data = streammc.from_arrays(rng.normal(size=(300, 2)), (rng.random(300) < 0.5).astype(float))
    model = streammc.models.logistic(prior=streammc.priors.normal(2.0))
    request = RunRequest(data, model, mh(covariance=covariance), seed=1)
    setup = decide(request)
    problem: Any = setup.sampler.problem(dataclasses.replace(request, model=model), setup)
    assert shape == problem.shape


def test_first_positions_are_dispersed_unless_control_variates_have_to_fit_there() -> None:
    cv: Any = SimpleNamespace(dim=3, theta_star=np.zeros(3), other_modes=lambda: "others")
    base: Any = None
    assert (2.0, "others") == _starts(mh(covariance="laplace"), cv, base)[1:]
    assert (1.0, None) == _starts(mh_austere(covariance="laplace"), cv, base)[1:]


def test_rows_are_held_in_whole_units_for_tests_that_sweep() -> None:
    rng = np.random.default_rng(1)
    data = streammc.from_arrays(rng.normal(size=(7, 3)), (rng.random(7) < 0.5).astype(float))
    model = streammc.models.logistic(prior=streammc.priors.normal(2.0))
    cv = streammc.control_variates(data, model)
    shapes = []
    for sweeps in (True, False):
        prepared: Any = SimpleNamespace(sweeps=sweeps)
        block = _held(data, model, cv, prepared, np.zeros(0, np.int64), 2, 1)
        shapes.append(block.design.shape)
        assert [1.0] * 7 + [0.0] == block.weight.tolist() or not sweeps
    assert [(3, 8), (3, 0)] == shapes


@pytest.mark.parametrize(("remedy", "warmer"), [("heat", True), ("heat", False), ("shrink", True)])
def test_the_temperature_of_the_draws_is_told_where_a_remedy_raised_it(
    remedy: str, warmer: bool
) -> None:
    heat = np.array([[2.0, 2.0], [2.0, 5.0 if warmer else 2.0]])
    run: Any = SimpleNamespace(
        identity={"temperature": 2.0},
        warmup=3,
        attributes={"sampler": {"remedy": remedy}},
        statistics=lambda _: {"temperature": heat},
    )
    raised = {"temperature": 5.0, "temperatures": [2.0, 5.0], "temperature_asked": 2.0}
    assert temperature_facts(run) == (
        raised if warmer and remedy == "heat" else {"temperature": 2.0}
    )
