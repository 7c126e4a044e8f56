"""The reason of a plan in words that need no glossary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streammc.control_variates.plan.subsample_plan import reason_lines, subsample_text

CV: Any = SimpleNamespace(certificate=SimpleNamespace(converged=True))
PREDICTED = {"variance": 0.004, "max_jump": 0.49, "needed_without_certainty": 102.0}


@pytest.mark.parametrize(
    ("certain", "k", "b", "text"),
    [
        (0, 33, 1, "a subsample is 33 random rows"),
        (0, 1, 1, "a subsample is 1 random row"),
        (0, 7, 4, "a subsample is 7 random runs of 4 rows"),
        (1, 2, 1, "1 row of largest influence (certainty rows: always evaluated) and 2 random"),
        (18, 33, 1, "18 rows of largest influence (certainty rows: always evaluated) and 33"),
    ],
)
def test_a_subsample_is_told_in_words(certain: int, k: int, b: int, text: str) -> None:
    assert text in subsample_text(certain, k, b, "row")


def test_the_reason_explains_its_numbers() -> None:
    first, bare = reason_lines(CV, 18, 33, 1, PREDICTED, None, 0.1, "row")
    assert "log-likelihood estimated from it is predicted to have variance 0.004" in first
    assert "(aim: at most 0.1)" in first
    assert "one random row to move it by at most 0.49" in first
    assert "units" not in first
    assert "without certainty rows 102 random rows would be needed" == bare
