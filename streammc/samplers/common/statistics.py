"""Names of the statistics of a draw: columns of the compiled loops, and recorded columns."""

from __future__ import annotations

from typing import Final

STATISTICS: Final = (
    "lp",
    "acceptance_rate",
    "diverging",
    "energy",
    "step_size",
    "n_steps",
    "log_lik_variance",
    "subsample_accepted",
    "n_rows",
    "log_lik_remainder",
)
"""First columns of the statistics, in this order; a family of samplers appends its own."""
OF_ESTIMATES: Final = ("log_lik_variance", "subsample_accepted", "log_lik_remainder")
"""Columns with a meaning only if the log-likelihood is estimated from a subsample."""

LP: Final = STATISTICS.index("lp")
ACCEPTANCE_RATE: Final = STATISTICS.index("acceptance_rate")
DIVERGING: Final = STATISTICS.index("diverging")
ENERGY: Final = STATISTICS.index("energy")
STEP_SIZE: Final = STATISTICS.index("step_size")
N_STEPS: Final = STATISTICS.index("n_steps")
LOG_LIK_VARIANCE: Final = STATISTICS.index("log_lik_variance")
SUBSAMPLE_ACCEPTED: Final = STATISTICS.index("subsample_accepted")
N_ROWS: Final = STATISTICS.index("n_rows")
LOG_LIK_REMAINDER: Final = STATISTICS.index("log_lik_remainder")


def recorded(columns: tuple[str, ...], *without: str) -> tuple[str, ...]:
    """Return ``columns`` except those of quantities that a sampler does not have."""
    return tuple(name for name in columns if name not in without)


PERTURBED_STATISTICS: Final = (*STATISTICS, "beyond_edge")
"""Statistics of ``hmc-ecs``; ``beyond_edge`` is 1 if a trajectory went beyond the edge."""


SIGNED_STATISTICS: Final = (*STATISTICS, "sign")
"""Statistics of ``hmc-ecs-signed``; ``sign`` is that of the estimated likelihood."""


BEYOND_EDGE_COLUMN: Final = PERTURBED_STATISTICS.index("beyond_edge")


SIGN_COLUMN: Final = SIGNED_STATISTICS.index("sign")


METROPOLIS_STATISTICS: Final = (
    *STATISTICS,
    "test_rows",
    "decision_error",
    "forced",
    "temperature",
)
"""Statistics of a draw: also the rows that the decision rests on, the error that the test
estimates of it, whether it was forced, and the temperature."""


TEST_ROWS, DECISION_ERROR, WAS_FORCED, TEMPERATURE = range(
    len(STATISTICS), len(METROPOLIS_STATISTICS)
)


EQUI_ENERGY_STATISTICS: Final = (*STATISTICS, "jump_proposed", "jump_accepted", "ring")
"""Statistics of a draw: also the jumps that level 0 proposed, their acceptance probabilities,
and the energy ring of its state."""


JUMP_PROPOSED, JUMP_ACCEPTED, RING = range(len(STATISTICS), len(EQUI_ENERGY_STATISTICS))


TEMPERED_STATISTICS: Final = (*STATISTICS, "swap_accepted", "replica")
"""Statistics of a draw: also the share of the proposed swaps that were accepted (of a tempered
transition: whether it was accepted), and the number of the replica at level 0."""


SWAP_ACCEPTED, REPLICA = range(len(STATISTICS), len(TEMPERED_STATISTICS))


NOISE_STATISTICS: Final = (*STATISTICS, "noise_clipped")
"""Statistics with an estimate of the noise; ``noise_clipped`` is its clipped share."""


OF_ACCEPTANCE: Final = ("acceptance_rate", "diverging", "subsample_accepted")
"""Columns with a meaning only if steps can be rejected."""


NOISE_CLIPPED_COLUMN: Final = NOISE_STATISTICS.index("noise_clipped")
