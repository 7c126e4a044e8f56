from __future__ import annotations

from typing import Any

import pytest

from streammc.samplers import hmc_ecs

FACTS = {"n_blocks": 10, "warmup": 50, "log_lik_variance_mean": 1.0, "beyond_edge": 0.001}
"""Of a run at all of its limits."""


def warnings(facts: dict[str, Any]) -> list[str]:
    checks = hmc_ecs().checks({"sampling": facts})
    return [check.warning for check in checks if check.warning]


def test_a_run_at_its_limits_is_not_warned_about() -> None:
    assert [] == warnings(FACTS)
    assert [] == warnings(FACTS | {"predicted_perturbation": 0.04})
    assert [] == warnings({})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"warmup": 49}, "warmup of 49 is shorter than 5 x 10 blocks"),
        ({"log_lik_variance_mean": 1.005}, "mean log_lik_variance is 1.00, above 1.0"),
        ({"beyond_edge": 0.001005}, "0.1 % of the iterations came beyond the edge"),
        (
            {"beyond_edge": 0.02},
            "2 % of the iterations came beyond the edge of the region",
        ),
        ({"mean_sign": 0.98, "negative_signs": 0.01}, "of the draws have a negative sign"),
        ({"predicted_perturbation": 12.0}, "off by 12 in the tails"),
        ({"predicted_perturbation": 1e9}, "off by more than 1,000"),
        ({"predicted_perturbation": 0.3}, "off by 0.3 in the tails, above 0.05: use a larger"),
    ],
)
def test_a_run_beyond_a_limit_is_warned_about(change: dict[str, float], text: str) -> None:
    (line,) = warnings(FACTS | change)
    assert text in line
