"""Forecast of the time and memory of full passes and of Newton's method, from sizes alone.

With d parameters the sums of a pass are a d x d matrix: a row costs d^2 / 2 multiply-adds,
a factorisation d^3, and every thread keeps matrices of its own. The rates are approximate, for
one core of an Intel Xeon; ``bench/many_levels.py`` measures them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from streammc.errors import OutOfMemoryError
from streammc.numerics.process_limits import available_memory, available_threads
from streammc.protocols import Dataset, Model, Phases

FORECAST: Final = "forecast"
"""Phase in which the forecast of a run is reported."""
LONG_SECONDS: Final = 60.0
"""Work predicted to take longer is announced before it starts."""
SUBSET_ROWS: Final = 65_536
SUBSET_BYTES: Final = 2**27
"""Largest number, and size in bytes, of the rows that Newton's method keeps in memory."""
CANDIDATE_ROWS: Final = 20_000
"""Largest number of highest-score rows kept in addition."""
_MULTIPLY_ADDS: Final = 6e9
"""Rate of a Hessian, per second and core."""
_ROW_SECONDS: Final = 1e-7
_PRODUCT_SECONDS: Final = 2e-10
"""Time of a linear predictor, per row, column and draw."""
_LEVEL_SECONDS: Final = 4e-9
"""Time of an addition to the sums of a level."""
_WIDEN_SECONDS: Final = 2.5e-8
"""Time of an entry of the Hessian that is made from sums by level, once a pass."""
_FACTOR_SECONDS: Final = 1e-10
"""Time of Cholesky factor and inverse, divided by d^3."""
_DRAWS: Final = 8
"""Scoring draws of a pass."""
_EVALUATIONS: Final = 30
"""Evaluations with rows in memory, by Newton's method and by the checks of the mode."""
_NEWTON_PASSES: Final = 6
"""Passes if these make all Newton steps."""
_STEPS: Final = 12
"""Steps of Newton's method with rows in memory between two passes."""
_PASSES: Final = 3
"""Passes otherwise, unless all rows are in memory."""
_THREAD_MATRICES: Final = 4
_NEWTON_MATRICES: Final = 12


@dataclass(frozen=True)
class PassCost:
    """Forecast of full passes and of Newton's method.

    Attributes
    ----------
    n_rows, dim, threads
        Number of rows, of parameters d, and of threads of a pass.
    core_seconds
        Time of one pass on one thread.
    most_passes
        Largest number of passes; ``None``: until certified.
    evaluation_seconds
        Time of a step of Newton's method with rows in memory, on one thread.
    memory_bytes
        Peak memory of d x d matrices and of rows in memory.
    subset_rows
        Number of rows in memory.
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
        """Predicted time of all passes and evaluations, before the first draw."""
        return self.passes * self.pass_seconds + self.evaluations * self.evaluation_seconds

    @property
    def passes(self) -> int:
        """Predicted number of passes."""
        usual = _NEWTON_PASSES if self.few_rows else _PASSES
        usual = 1 if self.subset_rows == self.n_rows else usual
        return usual if self.most_passes is None else min(self.most_passes, usual)

    @property
    def evaluations(self) -> int:
        """Predicted number of evaluations with rows in memory."""
        return 2 if self.few_rows else _EVALUATIONS

    @property
    def few_rows(self) -> bool:
        """Whether full passes find the mode faster than Newton's method on rows in memory.

        False if the number of passes is limited. The number of threads does not enter, since no
        bit of the draws may depend on it.
        """
        sooner = self.core_seconds < _STEPS * self.evaluation_seconds
        return self.most_passes is None and self.thin and sooner

    @property
    def thin(self) -> bool:
        """Whether the rows in memory are a part of all, and fewer than 10 per parameter."""
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
    predictors: tuple[int, int] = (1, 0),
    threads: int = 1,
    matrices: bool = True,
    n_blocks: int = 1,
    passes: int | None = None,
    codes: Sequence[int] = (),
) -> PassCost:
    """Return the predicted cost of control variates for a table and a model.

    Parameters
    ----------
    n_rows, n_features
        Rows and columns of the design.
    predictors
        Linear predictors, and scalar parameters, of the model.
    threads
        Threads of a pass.
    matrices
        Whether the threads keep their matrices in the memory of this machine.
    n_blocks
        Blocks of the pass: the results of some are kept until they are combined.
    passes
        Largest number of passes; ``None``: until certified.
    codes
        Number of columns of each factor whose sums are by level.
    """
    n_linear, n_scalar = predictors
    d = n_linear * n_features + n_scalar
    p = n_linear + n_scalar
    products = n_linear * (n_linear + 1) // 2 * n_features**2 / 2
    sums = _ROW_SECONDS + products / _MULTIPLY_ADDS
    row_seconds = sums + (1 + _DRAWS) * n_linear * n_features * _PRODUCT_SECONDS
    widened = 0.0
    if codes:
        sums = row_seconds = _coded_row_seconds(n_features, codes)
        widened = _WIDEN_SECONDS * d * d
    fit = max(SUBSET_BYTES // (8 * (n_features + 3)), 1)
    subset = min(n_rows, SUBSET_ROWS, fit)
    highest = min(n_rows, CANDIDATE_ROWS, fit)
    evaluation = subset * sums + widened + _FACTOR_SECONDS * float(d) ** 3
    square = 8 * d * d
    blocks = 8 * (p * (p + 1) // 2) * n_features**2
    waiting = 2 * math.ceil(math.log2(max(n_blocks, 2)))
    kept = _NEWTON_MATRICES * square
    if matrices and codes:
        pairs = (sum(codes) ** 2 - sum(width**2 for width in codes)) // 2
        own = 16 * (pairs + n_features * (n_features - sum(codes) + 4))
        kept += (2 * threads + waiting) * own + square
    elif matrices:
        kept += threads * (_THREAD_MATRICES * square + blocks) + waiting * square
    return PassCost(
        n_rows=n_rows,
        dim=d,
        threads=threads,
        core_seconds=n_rows * row_seconds + widened,
        most_passes=passes,
        evaluation_seconds=evaluation,
        memory_bytes=kept + 8 * (subset + highest) * (n_features + 3),
        subset_rows=subset,
    )


def _coded_row_seconds(n_features: int, codes: Sequence[int]) -> float:
    """Return the time of a row of a pass whose sums of factors are by level."""
    dense, factors = n_features - sum(codes), len(codes)
    sums = _ROW_SECONDS + dense**2 / 2 / _MULTIPLY_ADDS
    products = (1 + _DRAWS) * (dense + factors) * _PRODUCT_SECONDS
    return sums + products + factors * (dense + 4 + (factors - 1) / 2) * _LEVEL_SECONDS


def seconds_text(seconds: float) -> str:
    """Return a time as text: one or two digits and a unit."""
    if seconds < 100.0:
        return f"{max(seconds, 1.0):.0f} s"
    if seconds < 6000.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.0f} h"


def takes_codes(model: Model) -> bool:
    """Return whether sums by level are possible: one linear predictor, and no look at columns."""
    return model.n_linear == 1 and not model.sees_columns


def forecast(
    dataset: Dataset, model: Model, *, passes: int | None = None, scheduler: Any = None
) -> PassCost:
    """Return the predicted cost of control variates, from sizes alone: no row is read.

    ``passes`` is their largest number, ``None``: until certified. ``scheduler`` is that of
    ``Dataset.reduce``; remote workers are counted as the threads of this machine.
    """
    here = scheduler is None or scheduler == "sync" or type(scheduler) is int
    threads = available_threads() if scheduler is None or not here else scheduler
    coded = dataset.attributes.get("codes", ()) if takes_codes(model) else ()
    return pass_cost(
        dataset.n_rows,
        dataset.n_features,
        predictors=(model.n_linear, model.n_scalar),
        threads=1 if threads == "sync" else threads,
        matrices=here,
        n_blocks=-(-dataset.n_rows // dataset.block_rows()),
        passes=passes,
        codes=[each["columns"] for each in coded],
    )


def announce(
    dataset: Dataset,
    model: Model,
    *,
    passes: int | None = None,
    scheduler: Any = None,
    phases: Phases | None = None,
) -> PassCost:
    """Return the cost by :func:`forecast`, and report a long one to ``phases``.

    OutOfMemoryError if the matrices of the pass need more memory than is available.
    """
    cost = forecast(dataset, model, passes=passes, scheduler=scheduler)
    free = available_memory()
    if cost.memory_bytes > free:
        raise OutOfMemoryError(
            f"expected {cost.memory_bytes / 1e9:.2g} GB of memory for a full pass with "
            f"{cost.dim:,} parameters on {cost.threads} threads (matrices of {cost.dim:,} x "
            f"{cost.dim:,}), found {free / 1e9:.2g} GB available: ingest with fewer columns, such "
            "as with rare levels of a factor merged, or use one thread (--scheduler sync)"
        )
    if phases is not None and cost.seconds >= LONG_SECONDS:
        phases(FORECAST, 0, None, {**cost.facts(), "text": cost.text()})
    return cost
