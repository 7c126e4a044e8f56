"""Factors that cross in published tables, beside exact posteriors and the REML fits of lme4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crossed_exact import log_half_t, on_grid, reml
from crossed_published import LARGE, PUBLISHED, Published, exact, published_table, sampled
from crossed_tables import summary

pytestmark = pytest.mark.filterwarnings("ignore::streammc.errors.SamplingWarning")
GRIDS = {
    "Penicillin": [(-1.0, 0.9, 9), (-0.6, 4.0, 15), (-0.95, -0.2, 9)],
    "Pastes": [(-6.0, 2.5, 19), (0.3, 2.1, 9), (-0.8, 0.55, 9)],
    "sleepstudy": [(2.7, 5.2, 25), (3.1, 3.8, 19)],
}
"""First and last logarithms of the scales, and their number."""
DRAWS = {"Penicillin": 6000, "Pastes": 8000, "sleepstudy": 6000}


def table_of(case: Published, request: Any) -> Any:
    own = case.table in ("Penicillin", "Pastes")
    return published_table(case.table, None if own else request.getfixturevalue("data_folder"))


def different(found: Any, case: Published, mean: Any, sd: Any, error: float = 0.0) -> list[str]:
    """Return the parameters whose mean or sd is another; ``error`` of a mean in sds."""
    wrong = []
    for name, m, s in zip(case.reml, mean, sd, strict=True):
        if name in found:
            row = found[name]
            z = (row["mean"] - m) / np.hypot(row["mcse_mean"], error * s)
            if abs(z) > 4.5 or abs(row["sd"] / s - 1.0) > 0.1:
                wrong.append(name)
    return wrong


@pytest.mark.parametrize("name", GRIDS)
def test_posteriors_are_those_of_numerical_integration(name: str, request: Any) -> None:
    case = PUBLISHED[name]
    table = table_of(case, request)
    found = summary(sampled(case, table, seed=4, draws=DRAWS[name], warmup=300))
    assert {*case.reml} == {*found}
    assert min(row["ess_bulk"] for row in found.values()) > 0.3 * DRAWS[name]
    grid = [np.linspace(*each) for each in GRIDS[name]]
    prior = log_half_t(case.priors[2])
    assert [] == different(found, case, *on_grid(exact(case, table), prior, grid))
    shifted = {**table, case.factors[0]: np.roll(table[case.factors[0]], 1)}
    coarse = [each[::2] for each in grid]
    assert "sigma" in different(found, case, *on_grid(exact(case, shifted), prior, coarse))


@pytest.mark.parametrize("name", ["Penicillin", "Pastes", "sleepstudy"])
def test_the_mode_of_the_exact_density_is_the_fit_of_lme4(name: str, request: Any) -> None:
    case = PUBLISHED[name]
    sums = exact(case, table_of(case, request), flat=True)
    scales = reml(sums, np.full(len(case.factors) + 1, np.log(case.priors[2] / 5.0)))
    beta = sums.at(np.log(scales))[1]
    np.testing.assert_allclose(np.r_[beta, scales], [*case.reml.values()], rtol=2e-4)


def test_ratings_of_lecturers_have_the_exact_posterior(data_folder: Path) -> None:
    """InstEval: 73,421 ratings by 2,972 students of 1,128 lecturers in 28 combinations."""
    case = PUBLISHED["InstEval, dept:service"]
    table = published_table("InstEval", data_folder)
    found = summary(sampled(case, table, seed=4, draws=800, warmup=100))
    assert [] == different(found, case, *LARGE["InstEval, dept:service"], 0.03)
    assert "sigma" in different(found, case, *LARGE["InstEval, dept"], 0.03)


@pytest.mark.parametrize("name", LARGE)
def test_a_reml_fit_lies_inside_the_posterior(name: str) -> None:
    """A mode of the scales, and the posterior mean of skewed ones lies above it: by 0.3 sd here."""
    mean, sd = (np.array(each) for each in LARGE[name])
    away = (np.array([*PUBLISHED[name].reml.values()]) - mean) / sd
    assert np.abs(away).max() < 0.4
    assert np.abs(away[[0, 1, 2, 4]]).max() < 0.1


def test_slopes_of_subjects_are_those_of_lme4(data_folder: Path) -> None:
    """Drawn, not integrated; the REML fit of ``Reaction ~ Days + (1 + Days | Subject)``."""
    case = PUBLISHED["sleepstudy"]
    table = published_table("sleepstudy", data_folder)
    formula = "Reaction ~ Days + (1 + Days | Subject)"
    found = summary(sampled(case, table, formula, seed=4, draws=6000, warmup=300))
    fit = {"beta[Intercept]": 251.4051, "beta[Days]": 10.4673, "tau[Subject:Intercept]": 24.7407,
           "tau[Subject:Days]": 5.9221, "rho[Subject]": 0.0656, "sigma": 25.5918}  # fmt: skip
    assert {*fit} == {*found}
    away = {name: (fit[name] - row["mean"]) / row["sd"] for name, row in found.items()}
    assert max(map(abs, away.values())) < 0.5, away
    assert min(row["ess_bulk"] for row in found.values()) > 1800
