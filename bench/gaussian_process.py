"""Milliseconds of a Gaussian process: its value and gradient against LAPACK's factorisations.

Run as ``python bench/gaussian_process.py``. Prints the table of
``docs/decisions/0015-a-term-is-a-set-of-rows.md``: 18 columns, one BLAS thread, the least
of some repetitions, measured in turns. LAPACK is given the matrix; we make it as well.
"""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from streammc.models import gaussian_process
from streammc.numerics.process_limits import single_threaded

COLUMNS = 18
SIZES = (64, 128, 256, 512, 1024)
REPETITIONS = 40


def calls(n: int) -> list[Callable[[], Any]]:
    """Return what is timed: value, value and gradient, factor, factor and inverse."""
    rng, model = np.random.default_rng(0), gaussian_process()
    X, y = 2.0 * rng.normal(size=(COLUMNS, n)), rng.normal(size=n)
    theta, gradient = np.full(COLUMNS + 2, 0.5), np.zeros(COLUMNS + 2)
    C = np.asfortranarray(np.cov(rng.normal(size=(n, 2 * n))) + np.eye(n))

    def invert() -> None:
        factor, _ = lapack.dpotrf(C, lower=1)
        lapack.dpotri(factor, lower=1, overwrite_c=1)

    return [
        lambda: model.joint(X, y, theta, model.constants, 0, gradient),
        lambda: model.joint(X, y, theta, model.constants, 1, gradient),
        lambda: lapack.dpotrf(C, lower=1),
        invert,
    ]


def milliseconds(n: int) -> list[float]:
    """Return the least time of each, measured in turns."""
    timed = calls(n)
    best = [np.inf] * len(timed)
    for _ in range(REPETITIONS):
        for k, call in enumerate(timed):
            began = time.perf_counter()
            call()
            best[k] = min(best[k], time.perf_counter() - began)
    return [1e3 * seconds for seconds in best]


def main() -> None:
    """Print the table."""
    print(f"{platform.processor() or platform.machine()}, {datetime.date.today()}\n")
    print("| rows | value | with gradient | LAPACK: factor | with inverse |\n|---|---|---|---|---|")
    with single_threaded():
        for n in SIZES:
            print(f"| {n} | " + " | ".join(f"{time:.2f}" for time in milliseconds(n)) + " |")


if __name__ == "__main__":
    main()
