"""What rows of single precision in the subsample would gain, and what they would cost.

    python bench/single_precision.py

The products of an evaluation, predictors and their transpose, over a design of 29 columns that is
float64, as samplers keep it, or float32 and widened in registers; in turn, medians of CPU time. The
error is that of the estimated log-likelihood, in its own standard deviations, for a million rows of
a logistic regression at draws of its posterior, whitened rows being rounded to float32.
Decision 25 quotes both.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from llvmlite import ir
from numba import njit

from streammc.numerics import row_products
from streammc.numerics.row_products import LANES, add_row_sums, aligned

DIM, REPEATS = 29, 21
SIZES = (30, 100, 1300)

_load = row_products._Vectors.load


def _load_either(self, address, mask):
    """Load eight numbers; of float32, widened."""
    if getattr(address.type, "pointee", None) != ir.FloatType():
        return _load(self, address, mask)
    kind = ir.VectorType(ir.FloatType(), LANES)
    pointer = self.builder.bitcast(address, kind.as_pointer())
    if mask is None:
        value = self.builder.load(pointer)
        value.align = 4
    else:
        align, zeros = ir.Constant(ir.IntType(32), 4), ir.Constant(kind, [0.0] * LANES)
        value = self._call("llvm.masked.load.v8f32.p0", kind, pointer, align, mask, zeros)
    return self.builder.fpext(value, ir.VectorType(ir.DoubleType(), LANES))


row_products._Vectors.load = _load_either


@njit(nogil=True, error_model="numpy")
def products(design, m, vector, out, sums, repeats):
    """Multiply the first ``m`` rows with a vector and back, many times."""
    for _ in range(repeats):
        row_products.row_products(design, 0, m, vector, 0, out, 0)
        add_row_sums(design, 0, m, out, 0, sums, 0)


def seconds(design, m) -> float:
    """Return the CPU time of both products once."""
    vector, out, sums = np.full(DIM, 1e-3), np.zeros(m + LANES), np.zeros(DIM)
    repeats = 3_000_000 // m
    begun = time.thread_time()
    products(design, m, vector, out, sums, repeats)
    return (time.thread_time() - begun) / repeats


def estimate_error(n: int, m: int) -> float:
    """Return the root mean square error of the estimate, in its standard deviations."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(n), rng.standard_normal((n, DIM - 1))]
    theta = 0.3 * rng.standard_normal(DIM)
    chance = 1 / (1 + np.exp(-X @ theta))
    hessian = (X.T * (chance * (1 - chance))) @ X
    S = np.linalg.inv(np.linalg.cholesky(hessian)).T
    errors = []
    for _ in range(200):
        rows = rng.integers(0, n, m)
        z, whitened, at = rng.standard_normal(DIM), X[rows] @ S, X[rows] @ theta
        y = (rng.random(m) < chance[rows]).astype(float)
        totals = []
        for each in (whitened, whitened.astype(np.float32).astype(float)):
            s = each @ z
            p = 1 / (1 + np.exp(-at))
            taylor = s * (y - p) - 0.5 * s * s * p * (1 - p)
            totals.append(y * s - np.logaddexp(0, at + s) + np.logaddexp(0, at) - taylor)
        spread = totals[0].std(ddof=1) * np.sqrt(m)
        errors.append((totals[1].sum() - totals[0].sum()) / spread)
    return float(np.sqrt(np.mean(np.square(errors))))


def main() -> None:
    """Print both tables."""
    print("| m | float64, us | float32, us | ratio |\n|---|---|---|---|")
    for m in SIZES:
        double, single = aligned(DIM, m), np.zeros((DIM, -(-m // 16) * 16), np.float32)
        values = np.random.default_rng(1).standard_normal((DIM, m))
        double[:, :m], single[:, :m] = values, values
        times = [(seconds(double, m), seconds(single, m)) for _ in range(REPEATS)]
        ratio = statistics.median(b / a for a, b in times)
        mine, theirs = (1e6 * statistics.median(column) for column in zip(*times, strict=True))
        print(f"| {m} | {mine:.3f} | {theirs:.3f} | {ratio:.2f} |", flush=True)
    for m in SIZES:
        error = estimate_error(1_000_000, m)
        print(f"m = {m}: error of the estimate {error:.1e} standard deviations")


if __name__ == "__main__":
    main()
