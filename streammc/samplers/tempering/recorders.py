"""Report of parallel tempering: rates per level, round trips, barrier, normalising constant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import percent
from streammc.samplers.common.ladder import Ladder
from streammc.samplers.tempering.loop import (
    ACCEPTANCE,
    COLDER,
    DIVERGED,
    EXCHANGES,
    ITERATIONS,
    PROPOSED,
    REJECTION,
    SWAPPED,
    WARMER,
)
from streammc.samplers.tempering.options import TEMPERED_STATISTICS
from streammc.samplers.tempering.restarts import restart_warnings

LACKING: Final = "the sum of weight x log C(n, k), since weights or a temperature hide the trials"
LEAST_SWAPS: Final = 0.1
"""A pair that exchanges less often holds up the whole ladder."""


def rejections(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (M,) mean rejection probabilities of swaps; NaN where none was proposed."""
    with np.errstate(invalid="ignore"):
        return np.asarray(counts[1:, REJECTION] / counts[1:, PROPOSED])


def condense(statistics: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the statistics of draws, of ``statistics`` (n, k, s) of their k iterations each.

    Of the state those of the last iteration, of what happened the mean, and the sum of rows.
    """
    out[:] = statistics[:, -1]
    for name, over in (
        ("acceptance_rate", np.mean),
        ("swap_accepted", np.mean),
        ("diverging", np.max),
        ("n_rows", np.sum),
    ):
        column = TEMPERED_STATISTICS.index(name)
        out[:, column] = over(statistics[:, :, column], axis=1)


def recorded(
    counts: NDArray[np.float64],
    ladder: Ladder,
    round_trips: NDArray[np.int64],
    proper: bool = True,
    log_constant: float | None = 0.0,
) -> dict[str, NDArray[Any]]:
    """Return the tallies of one chain by name; see ``Chain.tallies``.

    ``swap_rate`` is the mean probability of exchanging a level with the next, ``barrier`` the sum
    of what is missing to 1. ``log_ratio_warmer`` and ``log_ratio_colder`` estimate
    ``log Z_{m-1} / Z_m`` of powers of the likelihood by stepping stones (Xie et al. 2011), from
    the states of level m and of level m - 1; ``log_constant`` is what the likelihood leaves out,
    NaN where that is not known. Where the last level is the prior, ``round_trips`` are
    ``restarts``.
    """
    with np.errstate(invalid="ignore"):
        per_level = counts[:, [ACCEPTANCE, DIVERGED]] / counts[:, [ITERATIONS]]
    found: dict[str, NDArray[Any]] = {
        "beta": ladder.beta.copy(),
        "rows": ladder.hi - ladder.lo,
        "step_size": ladder.step.copy(),
        "acceptance_rate": per_level[:, 0],
        "divergences": per_level[:, 1],
    }
    if len(counts) == 1:
        return found
    restarts = bool(ladder.beta[-1] == 0.0)
    if restarts:
        found["step_size"][-1] = np.nan  # independent draws have no steps
    rejected = rejections(counts)
    found |= {
        "swaps_proposed": counts[1:, PROPOSED].astype(np.int64),
        "swaps_accepted": counts[1:, SWAPPED].astype(np.int64),
        "swap_rate": 1.0 - rejected,
        "barrier": np.asarray(rejected.sum()),
        "restarts" if restarts else "round_trips": np.asarray(round_trips.sum()),
        "prior_is_proper": np.asarray(int(proper)),
    }
    if counts[:, EXCHANGES].any():
        with np.errstate(invalid="ignore"):  # the prior has no rows to exchange
            found["exchanges_accepted"] = counts[1:, EXCHANGES + 1] / counts[1:, EXCHANGES]
    if not ladder.own:
        with np.errstate(divide="ignore", invalid="ignore"):  # before the first draw
            steps = np.log(counts[1:, ITERATIONS])
            found["log_ratio_warmer"] = counts[1:, WARMER] - steps
            found["log_ratio_colder"] = steps - counts[1:, COLDER]
        if restarts:
            found["log_constant"] = np.asarray(np.nan if log_constant is None else log_constant)
    return found


def _over_chains(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and its standard error where there are several."""
    mean = float(np.mean(values))
    if len(values) < 2 or not math.isfinite(mean):
        return mean, None
    return mean, float(np.std(values, ddof=1) / math.sqrt(len(values)))


def described(tallies: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
    """Return the summary of all chains' tallies, as JSON; see ``Chain.described``."""
    mean = {name: np.mean([tally[name] for tally in tallies], axis=0) for name in tallies[0]}
    shown = ("beta", "rows", "step_size", "acceptance_rate", "swap_rate")
    found: dict[str, Any] = {
        "levels": {
            name: [float(v) if math.isfinite(v) else None for v in mean[name]]
            for name in shown
            if name in mean
        }
    }
    if "swap_rate" not in mean:
        return found
    barrier, error = _over_chains([float(tally["barrier"]) for tally in tallies])
    kind = "restarts" if "restarts" in mean else "round_trips"
    trips = int(sum(int(tally[kind]) for tally in tallies))
    found |= {"barrier": _or_none(barrier), "barrier_error": error, kind: trips}
    if "log_ratio_warmer" in mean:
        totals = [float(tally["log_ratio_warmer"].sum()) for tally in tallies]
        value, error = _over_chains(totals)
        prior = float(mean["beta"][-1]) == 0.0
        name = "log_normalising_constant" if prior else "log_normalising_ratio"
        constant = float(mean["log_constant"]) if prior else 0.0
        if math.isnan(constant):
            found[f"{name}_lacks"] = LACKING
        else:
            value += constant
        found |= {name: _or_none(value), f"{name}_error": error}
    found["warnings"] = [*_warnings(mean, barrier, trips), *restart_warnings(tallies)]
    return found


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _warnings(mean: Mapping[str, NDArray[Any]], barrier: float, trips: int) -> list[str]:
    """Return warnings of the ladder, each with its remedy."""
    found = []
    rates = mean["swap_rate"]
    levels = len(rates) + 1
    lowest = int(np.nanargmin(rates)) if np.isfinite(rates).any() else 0
    wanted = max(math.ceil(2.0 * barrier + 1.0), levels + 1) if math.isfinite(barrier) else levels
    if rates[lowest] < LEAST_SWAPS and "exchanges_accepted" in mean:
        found.append(
            f"levels {lowest} and {lowest + 1} of the ladder exchanged states in "
            f"{percent(rates[lowest])} of the proposals, expected {percent(LEAST_SWAPS)} or "
            "more: subsets that are resampled come to hold the rows that are likely anyway; "
            "leave out resample"
        )
    elif rates[lowest] < LEAST_SWAPS:
        found.append(
            f"levels {lowest} and {lowest + 1} of the ladder exchanged states in "
            f"{percent(rates[lowest])} of the proposals, expected {percent(LEAST_SWAPS)} or "
            f"more; ask for n_levels={wanted} or more, for more warm-up, or for a larger beta_min"
        )
    if trips == 0 and "round_trips" in mean:
        found.append(
            "no state went from level 0 to the last level and back: a mode that is far away may "
            "have been missed; ask for more draws, or for other n_levels or beta_min"
        )
    return found
