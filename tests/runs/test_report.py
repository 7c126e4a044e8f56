"""Warnings of the summary."""

from __future__ import annotations

import pytest

from streammc.diagnostics.weights import Audit
from streammc.runs.run_summary import (
    audit_warnings,
    audited_again,
    mixing_warnings,
    summary_warnings,
)
from streammc.samplers import gibbs, hmc_ecs, pt

QUIET = {
    "n_blocks": 10,
    "warmup": 1000,
    "theta_star_certified": True,
    "divergences": 0,
    "log_lik_variance_mean": 0.1,
    "deff": 1.0,
}


def audit(correction, mcse, pareto_k=0.1, ess=400.0, largest_weight=1.2, **second):
    """A verdict with two parameters, of which the second is corrected."""
    still = {"correction_sd": 0.001, "mcse_sd": 0.002}
    written = {
        "largest_correction": abs(correction),
        "largest_z": abs(correction) / mcse,
        "pareto_k": pareto_k,
        "draws": 400,
        "ess": ess,
        "largest_weight": largest_weight,
        "parameters": {"a": still, "b": {"correction_sd": correction, "mcse_sd": mcse, **second}},
    }
    return Audit.from_json(written)


def test_a_small_correction_within_its_error_is_no_warning():
    assert [] == summary_warnings(hmc_ecs(), {}, QUIET, audit(0.05, 0.02), "logistic")
    assert [] == summary_warnings(hmc_ecs(), {}, QUIET, None, "logistic")


@pytest.mark.parametrize("sign", [1, -1])
def test_small_correction_beyond_its_error_is_a_warning(sign):
    (line,) = summary_warnings(hmc_ecs(), {}, QUIET, audit(sign * 0.05, 0.005), "logistic")
    assert "corrects the mean of b by 0.05 posterior sd" in line
    assert "z = 10.0" in line


@pytest.mark.parametrize(("size", "told"), [(3e-5, False), (0.009, False), (0.011, True)])
def test_a_correction_that_nobody_could_see_is_no_warning_at_any_z(size, told):
    lines = summary_warnings(hmc_ecs(), {}, QUIET, audit(size, size / 50.0), "logistic")
    assert told == any("small but not by chance (z = 50.0)" in line for line in lines)
    assert len(lines) == told


def test_the_clear_correction_is_named_and_not_a_tiny_one_of_larger_z():
    written = audit(0.05, 0.005).to_json()
    written["parameters"]["a"] = {"correction_sd": 3e-5, "mcse_sd": 1e-7}
    (line,) = audit_warnings(Audit.from_json({**written, "largest_z": 300.0}))
    assert "the mean of b by 0.05 posterior sd, small but not by chance (z = 10.0)" in line


@pytest.mark.parametrize(
    ("ess", "largest", "told"),
    [(399.99, 1.01, False), (361.0, 4.0, False), (359.0, 4.0, True), (395.0, 6.0, True)],
)
def test_heavy_tail_of_nearly_equal_weights_is_no_warning(ess, largest, told):
    lines = summary_warnings(hmc_ecs(), {}, QUIET, audit(0.0, 0.01, 0.95, ess, largest), "logistic")
    assert told == any("Pareto k 0.95" in line for line in lines)
    without = audit(0.0, 0.01, 0.95, ess, None)  # as an earlier version recorded it
    lines = summary_warnings(hmc_ecs(), {}, QUIET, without, "logistic")
    assert any("Pareto k 0.95" in line for line in lines)


@pytest.mark.parametrize(
    ("ratio", "error", "told"),
    [
        (0.77, 0.02, True),
        (1.3, 0.05, True),
        (0.77, 0.1, False),
        (0.92, 0.001, False),
        (None, None, False),
    ],
)
def test_a_standard_deviation_that_the_audit_changes_is_told(ratio, error, told):
    verdict = audit(0.0, 0.01, sd_ratio=ratio, sd_ratio_mcse=error)
    lines = summary_warnings(hmc_ecs(), {}, QUIET, verdict, "logistic")
    assert told == any(f"sd of b is {ratio}" in line for line in lines if ratio)
    assert len(lines) == told


def test_an_audit_replaces_the_lines_of_an_audit_alone():
    first, second = audit(0.2, 0.005), audit(0.0, 0.01)
    data = ["separation: a", "collinear columns: b, c"]
    lines = [data[0], "not audited: streammc audit RUN", *audit_warnings(first), data[1]]
    assert data == audited_again(lines, first, second)
    assert [*data, *audit_warnings(first)] == audited_again(lines, first, first)


def test_a_large_correction_is_told_once():
    (line,) = summary_warnings(hmc_ecs(), {}, QUIET, audit(0.2, 0.005), "logistic")
    assert "above 0.1" in line


def statistics(r_hat=1.0, ess_bulk=2000.0, ess_tail=1500.0, ess_sd=1800.0):
    return {"r_hat": r_hat, "ess_bulk": ess_bulk, "ess_tail": ess_tail, "ess_sd": ess_sd}


@pytest.mark.parametrize("chains", [1, 4, 16])
def test_good_mixing_gives_no_warning(chains):
    good = statistics(1.009, 100.0 * max(chains, 4), 100.0 * max(chains, 4))
    assert [] == mixing_warnings(
        {"a": good, "b": statistics(1.0, 2000.0, 2000.0)}, chains, hmc_ecs()
    )


@pytest.mark.parametrize("chains", [1, 4])
@pytest.mark.parametrize(
    ("bad", "parts"),
    [
        (statistics(r_hat=1.04), ("largest r_hat is 1.040 (b)", "pt")),
        (statistics(ess_bulk=1.7), ("smallest ess is 1.7 (b), below 400", "--draws")),
        (statistics(ess_tail=399.0), ("smallest ess is 399 (b), below 400", "--draws")),
        (statistics(ess_sd=399.0), ("smallest ess is 399 (b), below 400", "means, sds and")),
        (statistics(None, None, None), ("draws of b have mixed is not known", "constant")),
        (statistics(r_hat=None), ("draws of b have mixed is not known", "constant")),
    ],
)
def test_mixing_warns_of_the_worst_parameter(chains, bad, parts):
    (line,) = summary_warnings(
        hmc_ecs(),
        {"a": statistics(), "b": bad, "c": statistics()},
        {**QUIET, "chains": chains},
        None,
        "logistic",
    )
    for part in parts:
        assert part in line


def test_more_chains_need_more_independent_draws():
    (line,) = mixing_warnings({"a": statistics(ess_bulk=1000.0)}, 16, hmc_ecs())
    assert "below 1600" in line


@pytest.mark.parametrize(
    ("sampler", "advised"), [(hmc_ecs(), True), (pt(), False), (gibbs(), False)]
)
def test_pt_is_advised_where_it_may_sample(sampler, advised):
    (line,) = mixing_warnings({"a": statistics(r_hat=1.04)}, 4, sampler)
    assert advised == line.endswith("or look for several modes with pt")
