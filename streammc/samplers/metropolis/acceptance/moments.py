"""Mean and central moments of terms that come in batches, in float64, without cancellation."""

from __future__ import annotations

from numba import types

from streammc.numerics.jit import f8, i8, jit, vector
from streammc.samplers.metropolis.acceptance.interface import (
    BATCH,
    COUNT,
    KEPT,
    M2,
    M3,
    MEAN,
    SWEPT_LARGEST,
    SWEPT_M2,
    SWEPT_MEAN,
)


@jit(types.void(vector, i8, f8, vector, vector), borrow=True)
def add_terms(x, n, factor, facts, terms):  # type: ignore[no-untyped-def]
    """Add ``n`` terms ``factor x_j`` to the moments in ``facts``, and keep what fits.

    Two passes over the batch, then the pairwise update of Chan, Golub and LeVeque (1979)
    and, for the cubes, Pebay (2008).
    """
    if n <= 0:
        return
    mean = 0.0
    for j in range(n):
        mean += factor * x[j]
    mean /= n
    second = third = 0.0
    for j in range(n):
        deviation = factor * x[j] - mean
        second += deviation * deviation
        third += deviation * deviation * deviation
    before = facts[COUNT]
    total = before + n
    shift = mean - facts[MEAN]
    facts[M3] += (
        third
        + shift**3 * before * n * (before - n) / (total * total)
        + 3.0 * shift * (before * second - n * facts[M2]) / total
    )
    facts[M2] += second + shift * shift * before * n / total
    facts[MEAN] += shift * n / total
    facts[COUNT] = total
    facts[BATCH] = mean
    kept = int(facts[KEPT])
    room = min(n, terms.shape[0] - kept)
    for j in range(room):
        terms[kept + j] = factor * x[j]
    facts[KEPT] = kept + room


@jit(types.void(vector, i8, f8, f8, vector), borrow=True)
def sweep_terms(x, n, factor, before, facts):  # type: ignore[no-untyped-def]
    """Add ``n`` terms to the moments of a sweep that has seen ``before`` of them."""
    if n <= 0:
        return
    mean = 0.0
    for j in range(n):
        mean += factor * x[j]
    mean /= n
    second = 0.0
    largest = facts[SWEPT_LARGEST]
    for j in range(n):
        term = factor * x[j]
        second += (term - mean) * (term - mean)
        largest = max(largest, abs(term))
    total = before + n
    shift = mean - facts[SWEPT_MEAN]
    facts[SWEPT_M2] += second + shift * shift * before * n / total
    facts[SWEPT_MEAN] += shift * n / total
    facts[SWEPT_LARGEST] = largest
