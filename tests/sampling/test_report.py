"""What the summary warns of."""

from __future__ import annotations

import pytest

from streammc.sampling.advice import summary_warnings

QUIET = {
    "n_blocks": 10,
    "warmup": 1000,
    "theta_star_certified": True,
    "divergences": 0,
    "log_lik_variance_mean": 0.1,
    "deff": 1.0,
}


def audit(correction, mcse, pareto_k=0.1):
    """A verdict with two parameters, of which the second is corrected."""
    still = {"correction_sd": 0.001, "mcse_sd": 0.002}
    return {
        "largest_correction": abs(correction),
        "largest_z": abs(correction) / mcse,
        "pareto_k": pareto_k,
        "parameters": {"a": still, "b": {"correction_sd": correction, "mcse_sd": mcse}},
    }


def test_a_small_correction_within_its_error_is_no_warning():
    assert [] == summary_warnings({}, QUIET, audit(0.05, 0.02))
    assert [] == summary_warnings({}, QUIET, None)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_correction_that_is_no_chance_is_a_warning(sign):
    (line,) = summary_warnings({}, QUIET, audit(sign * 0.05, 0.005))
    assert "corrects the mean of b by 0.05 posterior sd" in line
    assert "z = 10.0" in line


def test_a_large_correction_is_told_once():
    (line,) = summary_warnings({}, QUIET, audit(0.2, 0.005))
    assert "above 0.1" in line
