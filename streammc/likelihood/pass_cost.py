"""Seconds and bytes of a full pass and of Newton's method, from sizes alone.

With d parameters the sums of a pass are a d x d matrix: a row costs d^2 / 2 multiply-adds,
a factorisation d^3, and every thread keeps matrices of its own. The rates are those of one
core of an Intel Xeon, and about right: ``bench/many_levels.py`` measures them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Final

LONG_SECONDS: Final = 60.0
"""Work that is expected to take longer is announced."""
SUBSET_ROWS: Final = 65_536
SUBSET_BYTES: Final = 2**27
"""Rows, and bytes of them, that Newton's method keeps in memory."""
CANDIDATE_ROWS: Final = 20_000
"""Rows of the highest scores that it keeps beside them."""
_MULTIPLY_ADDS: Final = 6e9
"""Of a Hessian, a second and core."""
_ROW_SECONDS: Final = 1e-7
_PRODUCT_SECONDS: Final = 2e-10
"""Of a linear predictor, a column and draw."""
_FACTOR_SECONDS: Final = 1e-10
"""Of Cholesky and inverse, times d^3."""
_DRAWS: Final = 8
"""Scores of a pass are taken at this many draws."""
_EVALUATIONS: Final = 30
"""Of Newton's method and of the checks, with rows in memory; 2 where passes do its work."""
_NEWTON_PASSES: Final = 6
"""Where they do."""
_STEPS: Final = 12
"""Of Newton's method, between two passes."""
_PASSES: Final = 3
"""Where rows in memory are not all rows."""
_THREAD_MATRICES: Final = 4
_NEWTON_MATRICES: Final = 12


@dataclass(frozen=True)
class PassCost:
    """Forecast of full passes and of Newton's method.

    Attributes
    ----------
    n_rows, dim, threads
        Rows, parameters d, threads of a pass.
    core_seconds
        Of one pass on one thread.
    most_passes
        That may be made; ``None``: as many as it takes.
    evaluation_seconds
        Of a step of Newton's method with rows in memory, on one thread.
    memory_bytes
        Matrices of d x d and rows in memory, at the peak.
    subset_rows
        Rows in memory.
    """

    n_rows: int
    dim: int
    threads: int
    core_seconds: float
    most_passes: int | None
    evaluation_seconds: float
    memory_bytes: int
    subset_rows: int

    @property
    def pass_seconds(self) -> float:
        """Seconds of one pass."""
        return self.core_seconds / self.threads

    @property
    def seconds(self) -> float:
        """Seconds before the first draw."""
        return self.passes * self.pass_seconds + self.evaluations * self.evaluation_seconds

    @property
    def passes(self) -> int:
        """Passes that are expected."""
        usual = _NEWTON_PASSES if self.few_rows else _PASSES
        usual = 1 if self.subset_rows == self.n_rows else usual
        return usual if self.most_passes is None else min(self.most_passes, usual)

    @property
    def evaluations(self) -> int:
        """Evaluations that are expected with rows in memory."""
        return 2 if self.few_rows else _EVALUATIONS

    @property
    def few_rows(self) -> bool:
        """Whether passes find the mode sooner than Newton's method on rows in memory does.

        Not where passes are limited: then none is for looking. Threads do not count: no bit of
        the draws may depend on them.
        """
        sooner = self.core_seconds < _STEPS * self.evaluation_seconds
        return self.most_passes is None and self.thin and sooner

    @property
    def thin(self) -> bool:
        """Whether rows in memory are not all, and fewer than 10 per parameter: they tell little."""
        return self.subset_rows < min(self.n_rows, 10 * self.dim)

    def facts(self) -> dict[str, Any]:
        """Return the forecast as JSON."""
        return {
            "rows": self.n_rows,
            "parameters": self.dim,
            "threads": self.threads,
            "expected_pass_seconds": round(self.pass_seconds, 1),
            "expected_passes": self.passes,
            "expected_evaluations": self.evaluations,
            "expected_evaluation_seconds": round(self.evaluation_seconds, 2),
            "expected_seconds": round(self.seconds, 1),
            "expected_memory_bytes": self.memory_bytes,
        }

    def text(self) -> str:
        """Return the forecast as one line."""
        some = "one pass is" if self.passes == 1 else f"about {self.passes} passes are"
        return (
            f"a full pass over {self.n_rows:,} rows x {self.dim:,} parameters takes about "
            f"{seconds_text(self.pass_seconds)}; {some} needed, with Newton's method about "
            f"{seconds_text(self.seconds)} before the first draw, and "
            f"{self.memory_bytes / 1e9:.2g} GB of memory"
        )


def pass_cost(
    n_rows: int,
    n_features: int,
    *,
    n_linear: int = 1,
    n_scalar: int = 0,
    threads: int = 1,
    matrices: bool = True,
    n_blocks: int = 1,
    passes: int | None = None,
) -> PassCost:
    """Return the forecast for a table and a model.

    Parameters
    ----------
    n_rows, n_features
        Of the design.
    n_linear, n_scalar
        Linear predictors, and scalar parameters, of the model.
    threads
        That a pass runs on.
    matrices
        Whether they keep their matrices in the memory of this machine.
    n_blocks
        Blocks of the pass: results of some wait to be combined.
    passes
        At most this many; ``None``: as many as it takes.
    """
    d = n_linear * n_features + n_scalar
    p = n_linear + n_scalar
    products = n_linear * (n_linear + 1) // 2 * n_features**2 / 2
    sums = _ROW_SECONDS + products / _MULTIPLY_ADDS
    row_seconds = sums + (1 + _DRAWS) * n_linear * n_features * _PRODUCT_SECONDS
    fit = max(SUBSET_BYTES // (8 * (n_features + 3)), 1)
    subset = min(n_rows, SUBSET_ROWS, fit)
    highest = min(n_rows, CANDIDATE_ROWS, fit)
    evaluation = subset * sums + _FACTOR_SECONDS * float(d) ** 3
    square = 8 * d * d
    blocks = 8 * (p * (p + 1) // 2) * n_features**2
    waiting = 2 * math.ceil(math.log2(max(n_blocks, 2)))
    kept = _NEWTON_MATRICES * square
    if matrices:
        kept += threads * (_THREAD_MATRICES * square + blocks) + waiting * square
    return PassCost(
        n_rows=n_rows,
        dim=d,
        threads=threads,
        core_seconds=n_rows * row_seconds,
        most_passes=passes,
        evaluation_seconds=evaluation,
        memory_bytes=kept + 8 * (subset + highest) * (n_features + 3),
        subset_rows=subset,
    )


def seconds_text(seconds: float) -> str:
    """Return a time as one or two digits and a unit."""
    if seconds < 100.0:
        return f"{max(seconds, 1.0):.0f} s"
    if seconds < 6000.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.0f} h"


def available_memory() -> int:
    """Return the bytes of memory that the system has to give.

    Half of what the machine has where the system does not say what is available.
    """
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
