from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import streammc
from streammc.runs.setup import decide
from streammc.samplers import mh, mh_sublhd
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.metropolis.options import _bounded


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
