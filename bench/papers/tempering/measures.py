"""How van de Meent et al. 2014 judge draws: eqs. (4) to (8), with the square that (6) lacks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bench.papers.measures import Array
from streammc.diagnostics.cost import inefficiency

CONVERGED = 1.1


class Judged(NamedTuple):
    """Of each parameter (d,), from draws (C, S, d)."""

    rhat: Array
    """Eq. (7); infinite where no chain moved and they differ."""
    ess: Array
    """Eq. (8), of all chains together."""


def judge(draws: Array) -> Judged:
    """Return potential scale reduction and effective sizes of draws (C, S, d)."""
    chains, s, _ = draws.shape
    means = draws.mean(axis=1)
    between = s * means.var(axis=0, ddof=1)
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    variance = (s - 1.0) / s * within + between / s
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.sqrt(variance / within)
        share = np.where(between > 0.0, variance / between, np.where(within > 0.0, 1.0, 0.0))
    return Judged(rhat, chains * s * np.minimum(1.0, share))


def second_halves(chains: list[Array]) -> Array:
    """Return the last halves (C, S, d) of chains (n, d) that may differ in length."""
    kept = min(len(chain) for chain in chains) // 2
    return np.stack([chain[len(chain) - kept :] for chain in chains])


def median_rhat(draws: Array) -> float:
    """Return the median over the parameters; infinite where chains stand still."""
    rhat = judge(draws).rhat
    return float(np.median(np.where(np.isnan(rhat), np.inf, rhat)))


def autocorrelated(draws: Array) -> float:
    """Return the median effective size (C, S, d) by autocorrelations; 0 where there is none."""
    sizes = []
    for j in range(draws.shape[2]):
        factor = inefficiency(draws[:, :, j])
        sizes.append(draws.shape[0] * draws.shape[1] / factor if factor else 0.0)
    return float(np.median(sizes))


def convergence(chains: list[Array], points: int = 40) -> tuple[Array, Array]:
    """Return lengths, and the median R-hat of the second halves of chains of that length."""
    longest = min(len(chain) for chain in chains)
    lengths = np.unique(np.geomspace(min(8, longest), longest, points).astype(int))
    found = [median_rhat(second_halves([chain[:n] for chain in chains])) for n in lengths]
    return lengths, np.array(found)
