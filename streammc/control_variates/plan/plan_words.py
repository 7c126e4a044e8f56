"""Texts of a plan: the reasons of its choices, and its refusals."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.expansion import ControlVariates

ROW_ORDER_WARNING: Final = 2.0


def reasons(
    cv: ControlVariates,
    certain: int,
    k: int,
    b: int,
    predicted: dict[str, Any],
    given: int | None,
    target: float,
) -> list[str]:
    """Return one sentence for each choice of the plan."""
    unit = "row" if b == 1 else "run"
    lines = [
        f"{subsample_text(certain, k, b)}; the log-likelihood estimated from it is predicted to "
        f"have variance {predicted['variance']:.2g} (aim: at most {target:g}), and one random "
        f"{unit} to move it by at most {predicted['max_jump']:.2g}",
    ]
    if given is not None and not predicted["variance"] <= target:
        lines.append(
            f"subsample_size {given} was given and is too small for the target of {target:g}"
        )
    if certain:
        lines.append(
            f"without certainty rows {count(predicted['needed_without_certainty'])} random rows "
            "would be needed"
        )
    if not cv.certificate.converged:
        lines.append(
            f"theta_star is {cv.certificate.decrement:.2g} posterior sd from the mode; "
            "leave out passes to certify it"
        )
    return lines


def subsample_text(certain: int, k: int, b: int) -> str:
    """Return the composition of a subsample in plain words."""
    random = count_of(k, "random row") if b == 1 else f"{count_of(k, 'random run')} of {b} rows"
    if not certain:
        return f"a subsample is {random}"
    always = f"{count_of(certain, 'row')} of largest influence (certainty rows: always evaluated)"
    return f"a subsample is {always} and {random}"


def count_of(n: int, thing: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> count_of(1, "row"), count_of(18, "row")
    ('1 row', '18 rows')
    """
    return f"{n} {thing}{'' if n == 1 else 's'}"


def order(relative: NDArray[np.float32] | None, deff: float, deff_rows: int) -> list[str]:
    """Return the sentences on unequal probabilities and on ordered rows, where they apply."""
    lines = []
    if relative is not None:
        lines.append(
            "units drawn by their scores, from one more pass: the most likely "
            f"{relative.max():.3g} times as often as with equal probabilities, the least likely "
            f"{relative.min():.2g} times"
        )
    if deff > ROW_ORDER_WARNING:
        lines.append(
            f"rows are ordered: runs of {deff_rows} rows have design effect {deff:.1f}; "
            "for runs, ingest with --shuffle"
        )
    return lines


def refusal(certain: int, work: float, n_rows: int, order: int, name: str) -> str:
    """Return the refusal of ``work`` rows an iteration, more than half, and what to do."""
    message = (
        f"{name} needs at most half of the {n_rows} rows an iteration to be worth it, found "
        f"{count(work)} to be right here ({certain} certainty rows and "
        f"{count(work - certain)} sampled); use --sampler hmc"
    )
    if order == 2:
        return message
    message += f", or control variates of order 2 instead of {order} (--option order=2)"
    if name != "hmc-ecs":
        return message
    return (
        f"{message}; a given --subsample-size with --option allow_high_variance=true runs it "
        "biased as it is"
    )


def leaves(fault: str, given: bool) -> str:
    """Return the refusal of a perturbed target that leaves the posterior in its tails.

    ``fault`` is ``Tails.fault``; ``given`` whether the user has chosen the rows sampled.
    """
    remedy = ", or a larger --subsample-size, or leave it out" if given else ""
    return (
        f"expected hmc-ecs to sample the posterior, found a density that leaves the posterior "
        f"{fault}: the variance of the log-likelihood estimate is not small against its units "
        f"there; use --sampler hmc{remedy}"
    )


def unsigned(rows: int, mean_sign: float, least: float) -> str:
    """Return the refusal of a product whose mean sign is too small, and what to do."""
    return (
        f"hmc-ecs-signed needs a mean sign of at least {least:g}, found {mean_sign:.2g} predicted "
        f"with {rows} rows: its errors would be unbounded; use a larger --subsample-size, a "
        "smaller minibatch, or hmc"
    )


def count(rows: float) -> str:
    """Return a number of rows as text, ``unboundedly many`` if it is not finite."""
    if not math.isfinite(rows):
        return "unboundedly many"
    return f"{rows:.0f}" if rows < 1e9 else f"{rows:.1e}"
