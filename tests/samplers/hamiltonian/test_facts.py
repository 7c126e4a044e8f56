from __future__ import annotations

import pytest

from streammc.samplers.hamiltonian.options import edge_warnings, hmc_ecs

FACTS = {"n_blocks": 10, "warmup": 50, "log_lik_variance_mean": 1.0, "beyond_edge": 0.001}
"""Of a run at all of its limits."""


def test_a_run_at_its_limits_is_not_warned_about() -> None:
    assert [] == hmc_ecs().warnings(FACTS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"warmup": 49}, "warmup of 49 is shorter than 5 x 10 blocks"),
        ({"log_lik_variance_mean": 1.005}, "mean log_lik_variance is 1.00, above 1.0"),
        ({"beyond_edge": 0.001005}, "of the iterations came beyond the edge"),
        ({"negative_signs": 0.01}, "of the draws have a negative sign"),
    ],
)
def test_a_run_beyond_a_limit_is_warned_about(change: dict[str, float], text: str) -> None:
    (line,) = hmc_ecs().warnings(FACTS | change)
    assert text in line


def test_an_error_in_the_tails_is_said_with_its_size() -> None:
    assert "off by 12 in the tails" in edge_warnings({"predicted_perturbation": 12.0})[0]
    assert "off by more than 1,000" in edge_warnings({"predicted_perturbation": 1e9})[0]
