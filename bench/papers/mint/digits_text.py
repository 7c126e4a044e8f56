"""The section on the digits of Li and Wong 2017, beside the published figures."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from bench.papers.markdown import number, table
from bench.papers.mint.digits import ACCEPTANCE, BATCHES, DIMENSION, LEVELS, MINT, PLAIN, TEMPERED

STEPS = {MINT: 1.71, TEMPERED: 1.50, PLAIN: 0.05}
"""Mean length of the accepted steps, section 4.2."""


def smallest_step(square: float, rows: int) -> float:
    """Return the smallest length that is accepted ``ACCEPTANCE`` times at T = 1.

    A random walk on a normal target with Hessian H is accepted 2 Phi(-sqrt(s^2 tr H) / 2) of the
    time; ``tr H`` is at most a quarter of ``rows`` times the mean squared length of a row.
    """
    return float(-2.0 * norm.ppf(0.5 * ACCEPTANCE) * DIMENSION**0.5 / (0.25 * rows * square) ** 0.5)


def steps(found: dict[str, Any]) -> list[str]:
    """Return what the lengths of accepted steps say, beside what is published."""
    moves = ", ".join(
        f"{name} {number(found['methods'][name]['move'])} (paper {number(STEPS[name])})"
        for name in (MINT, TEMPERED, PLAIN)
    )
    least = [smallest_step(found[key], found["rows"]) for key in ("square", "standardised_square")]
    return [
        f"Mean accepted steps: {moves}. Were the target normal, no random walk on all rows at T "
        "= 1 "
        f"would be accepted {100 * ACCEPTANCE:.0f} % of the time with steps below "
        f"{number(least[0], 2)}, with standardised pixels {number(least[1], 2)}: the published "
        "0.05 "
        "points to other pixels than [0, 1], or to another acceptance.",
        "",
    ]


def speed(found: dict[str, Any], key: str) -> list[str]:
    """Return rows and seconds until an accuracy, and their ratios to those of mint."""
    methods = found["methods"]
    rows = []
    for level in (LEVELS[0], LEVELS[1], LEVELS[-1]):
        mine = methods[MINT][key][str(level)]
        cells = []
        for name in (MINT, TEMPERED, PLAIN):
            at = methods[name][key][str(level)]
            cells += [number(at[0]) if at else "–", number(at[1]) if at else "–"]
            if name != MINT:
                cells.append(
                    f"{at[0] / mine[0]:.0f}, {at[1] / mine[1]:.1f}" if at and mine else "–"
                )
        rows.append([f"{level}", *cells])
    columns = ["accuracy", "mint: rows", "seconds"]
    for name in (TEMPERED, PLAIN):
        columns += [f"{name}: rows", "seconds", "times those of mint"]
    return [*table(columns, rows), ""]


def accuracies(line: dict[str, Any]) -> list[str]:
    """Return the accuracies of a line, of single draws and of means."""
    names = ("accuracy", "predicted", "predicted_all")
    return [f"{line[name]:.4f}" for name in names]


ACCURACIES = ("accuracy of single draws", "of a run's mean prediction", "of that of all runs")


def alphas(found: dict[str, Any]) -> list[str]:
    """Return what alpha does."""
    rows = [
        [
            name, number(line["temperature"], 4),
            number(line["variance"]) if line["variance"] > 0.0 else "–",
            f"{line['runs']} × {line['draws']:,}", number(line["late_acceptance"]),
            *accuracies(line),
        ]
        for name, line in found["alphas"].items()
    ]  # fmt: skip
    head = ("", "T", "v", "runs × draws", "accepted", *ACCURACIES)
    return [
        "**Does α matter?** Short runs, each with its step in proportion to √T; v is the "
        "variance of "
        "an estimate:",
        "",
        *table(head, rows),
        "",
    ]


def verdict(found: dict[str, Any]) -> list[str]:
    """Return what the tables say of the 99 % of the paper."""
    ours = [line for name, line in found["alphas"].items() if name.startswith(MINT)]
    methods = found["methods"]
    words = {
        "plain": methods[PLAIN]["accuracy"],
        "tempered": methods[TEMPERED]["accuracy"],
        "tempered_all": methods[TEMPERED]["predicted_all"],
        "single": max(line["accuracy"] for line in ours),
        "run": max(line[key] for line in ours for key in ("of_mean", "predicted")),
        "all": max(line[key] for line in ours for key in ("of_mean_all", "predicted_all")),
        "least": found["rows"] / found["m"],
        "m": found["m"],
        "d": DIMENSION,
        "cost": -found["m"] * np.log(0.95),
    }
    return VERDICT.format(**words).strip().splitlines()


def digits(found: dict[str, Any]) -> list[str]:
    """Return the section on figures 2 and 4."""
    rows = [
        [
            name, f"{line['runs']} × {line['draws']:,}", number(line["late_acceptance"]),
            number(line["rows"]), number(line["milliseconds"]), *accuracies(line),
            f"{found['standardised'][name]['accuracy']:.4f}",
        ]
        for name, line in found["methods"].items()
    ]  # fmt: skip
    head = (
        "", "runs × draws", "accepted", "rows an iteration", "ms an iteration", *ACCURACIES,
        "single draws, standardised pixels",
    )  # fmt: skip
    normal = found["normality"]
    return [
        "## Logistic regression, MNIST 1 against 7 (section 4.2, figures 2 and 4)",
        "",
        f"{found['rows']:,} images, m = {found['m']}; pixels divided by 255, no intercept, a flat "
        "prior. The paper prints neither α, nor the prior, nor how pixels are scaled. Here α = "
        f"{found['alpha']:g}, T = {number(found['temperature'], 4)}, steps tuned to an acceptance "
        f"of {ACCEPTANCE:.2f}. A hyperplane separates the training images: a fit gets "
        f"{found['wrong']} of them wrong, the posterior is improper at every temperature, and "
        "chains drift away for ever.",
        "",
        "![normality, accuracy by passes and by seconds](mint/digits.png)",
        "",
        "Accuracy on the test set. `mh` evaluates both ends of a step; a chain that carries its "
        "log-likelihood would take half the rows and seconds of those on all rows:",
        "",
        *table(head, rows),
        "",
        *steps(found),
        "Rows and seconds (one thread) until a draw first has an accuracy, medians over the runs; "
        "'times': how many times as many as `mint` (paper: a 100-fold speed-up in seconds over "
        "MCMC):",
        "",
        *speed(found, "reached"),
        *alphas(found),
        *verdict(found),
        "",
        f"**Is t normal?** Over {BATCHES:,} minibatches its skewness is {number(normal['skew'])}, "
        f"and its distribution function at most {number(normal['distance'])} from normal; the "
        "first "
        f"Edgeworth term says {number(normal['predicted'])}.",
        "",
    ]


VERDICT = """
Single draws of MCMC get {plain:.4f} of the test images right, of tempered MCMC {tempered:.4f}. No α
gives 99 % to `mint`: single draws have at most {single:.4f}, means over a run at most {run:.4f},
over all runs at most {all:.4f}. At the same T all rows do better. An argument, not a measurement:
`mint` leaves invariant the power mean ((1/n) Σ p_i^s)^m of the likelihoods p_i, s = m^(α − 1), and
no row can take the sum below that of the others. Far out it is (share of the images that are
right)^m: an error rate of 5 % costs {cost:.1f} nats with m = {m}, whatever α is.
"""
