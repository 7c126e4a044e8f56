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
