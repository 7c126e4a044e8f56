"""Warnings of a ladder print rates as percentages."""

from __future__ import annotations

import re

import numpy as np
import pytest

from streammc.samplers.tempering.facts import LEAST_SWAPS
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
