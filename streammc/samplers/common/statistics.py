"""Statistics of a draw that all samplers record, and the columns that loops write them to."""

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
"""The first columns of every family, in this order; a family appends its own."""

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
