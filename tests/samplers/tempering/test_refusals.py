"""Impossible ladders are refused before anything is drawn."""

import numpy as np
import pytest

from streammc.errors import ConfigError
from streammc.models import logistic
from streammc.priors import flat, normal
from streammc.runs.job import run_job
from streammc.samplers import pt, spt, tt
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays


@pytest.mark.parametrize("build", [pt, tt])
def test_power_of_the_posterior_at_zero_is_refused(build):
    with pytest.raises(
        ConfigError, match=r"beta_min must be a finite number in \(0, 1\), found 0.0"
    ):
        build(path="posterior", beta_min=0.0)
    assert build(path="posterior", beta_min=1e-3).path == "posterior"


def test_subsets_may_end_at_the_prior_and_resample_nothing_below_zero():
    assert spt(beta_min=0.0).beta_min == 0.0
    with pytest.raises(ConfigError, match="resample must be a whole number of 0 or more, found -1"):
        spt(resample=-1)
    with pytest.raises(ConfigError, match="swaps must be one of even-odd, sweep"):
        spt(swaps="odd-even")


def test_a_flat_prior_is_no_last_level(tmp_path):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(60), rng.normal(size=60)]
    data = from_arrays(X, rng.random(60) < 0.5)
    short = {"draws": 3, "warmup": 3, "chains": 1, "seed": 1, "audit": False}
    sampler = pt(n_levels=3, beta_min=0.0)
    with pytest.raises(ConfigError, match=r"found a flat one on beta\[x0\]; set another prior"):
        run_job(RunRequest(data, logistic(prior=flat()), sampler, path=tmp_path / "run", **short))
    assert [] == list(tmp_path.iterdir())
    run_job(RunRequest(data, logistic(prior=normal(2.0)), sampler, path=tmp_path / "run", **short))
    warm = pt(n_levels=3, beta_min=0.1)
    run_job(RunRequest(data, logistic(prior=flat()), warm, path=tmp_path / "warm", **short))
