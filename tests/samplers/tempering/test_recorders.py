"""Warnings of a ladder print rates as percentages."""

from __future__ import annotations

import re

import numpy as np
import pytest

from streammc.samplers.tempering.facts import LEAST_SWAPS, ladder_checks
from streammc.samplers.tempering.kernel import respaced
from streammc.samplers.tempering.parallel_kernel import _warnings


@pytest.mark.parametrize("more", [{}, {"exchanges_accepted": np.array([0.1])}])
@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0 %"), (4e-7, "0.00004 %"), (0.0123, "1.2 %"), (0.0999, "10 %")]
)
def test_rates_are_per_cent_without_an_exponent(rate: float, text: str, more: dict) -> None:
    (line,) = _warnings({"swap_rate": np.array([0.5, rate]), **more}, 1.0, 1)
    assert f"exchanged states in {text} of the proposals, expected 10 % or more" in line
    assert not re.search(r"e[+-]?\d+ %", line)


@pytest.mark.parametrize("more", [{}, {"exchanges_accepted": np.array([0.1])}])
def test_a_rate_of_one_in_ten_is_enough(more: dict) -> None:
    assert [] == _warnings({"swap_rate": np.array([0.5, LEAST_SWAPS]), **more}, 1.0, 1)


def test_a_ladder_is_checked_by_what_its_summary_has() -> None:
    ladder = {
        "levels": {"swap_rate": [0.5, 0.05, None]},
        "transition_acceptance": 0.25,
        "restarts": 39,
        "round_trips": 0,
    }
    sampling = {"chains": 4}
    names = ("smallest swap rate between levels", "accepted tempered transitions, share",
             "restarts from the prior", "round trips")  # fmt: skip
    found = ladder_checks({"tempering": ladder, "sampling": sampling})
    assert [*zip(names, ("0.05", "0.25", "39", "0"), (False, None, False, False), strict=True)] == [
        (each.name, each.value, each.passed) for each in found
    ]
    for name, key in zip(names, ladder, strict=True):
        (one,) = ladder_checks({"tempering": {key: ladder[key]}, "sampling": sampling})
        assert name == one.name
    assert [] == ladder_checks({"tempering": {"levels": {}}}) == ladder_checks({})


def test_three_levels_are_respaced_and_two_are_not() -> None:
    beta = np.array([1.0, 0.5, 0.1])
    moved = respaced(beta, np.array([0.2, 0.6]))
    assert 0.1 < moved[1] < 0.4
    np.testing.assert_array_equal(beta[:2], respaced(beta[:2], np.array([0.2])))
