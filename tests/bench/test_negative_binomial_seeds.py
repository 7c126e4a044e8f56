"""Counts that are Poisson under a negative binomial: a scale whose posterior has a long tail."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from streammc.errors import RefusedError
from streammc.samplers import hmc_ecs

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from negative_binomial_seeds import LARGEST_Z, counts, errors, run, truth


@pytest.mark.parametrize(
    ("rows", "seed", "why"),
    [(2000, 1, "as fast"), (2000, 3, "as fast"), (5000, 3, "leaves the posterior")],
)
def test_automatic_settings_end_with_the_truth(rows, seed, why):
    report, draws = run(rows, seed, 600)
    assert report.summary["sampling"]["sampler"] == "hmc"
    assert why in report.summary["sampling"]["reason"]
    z = errors(draws, truth(counts(rows, seed)))
    assert max(abs(value) for value in z.values()) < LARGEST_Z, z


def test_draws_without_the_tail_differ_from_the_truth():
    _, draws = run(2000, 1, 600)
    exact = truth(counts(2000, 1))
    cut = np.where(draws[..., 1:] > exact.quantiles[-1], exact.quantiles[1], draws[..., 1:])
    z = errors(np.concatenate([draws[..., :1], cut], axis=-1), exact)
    assert max(abs(value) for value in z.values()) > 7.0


def test_hmc_ecs_by_name_is_refused_before_it_draws():
    with pytest.raises(RefusedError, match=r"leaves the posterior in .* use --sampler hmc"):
        run(2000, 1, 600, hmc_ecs())
