"""Tests with Barker's function: the correction's errors, and decisions against the function.

Run as ``python bench/acceptance_errors.py [--write] [DECISIONS]`` from a checkout; 400,000
decisions for a line by default, six minutes. ``--write`` puts the tables into
``docs/measurements/barker-tests.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from barker import DELTAS, SIZE, Curve, Z, curve, terms
from page import machine, publish

from streammc.samplers import mh_fixed, mh_minibatch
from streammc.samplers.metropolis.correction import PAPER, correction
from streammc.samplers.metropolis.mh_fixed import spread_errors

PAGE = "barker-tests.md"
KINDS = ("normal", "skewed", "heavy", "rare")


def optimal() -> Iterator[str]:
    """Yield the errors of both corrections, as they are drawn."""
    sigmas = (0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    yield "| σ | " + " | ".join(f"{sigma}" for sigma in sigmas) + " |"
    yield "|---|" + "---|" * len(sigmas)
    for name, kind in (("optimal", "optimal"), ("paper, N = 4000, λ = 10", PAPER)):
        errors = (f"{correction(sigma, kind).error:.1e}" for sigma in sigmas)
        yield f"| {name} | " + " | ".join(errors) + " |"


def spread() -> Iterator[str]:
    """Yield the error from taking the standard deviation from K minibatches."""
    sds = (0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)
    yield "| K | " + " | ".join(f"{sd}" for sd in sds) + " |"
    yield "|---|" + "---|" * len(sds)
    for batches in (2, 3, 5, 10, 20, 50):
        grid, errors = spread_errors(correction(1.2), batches)
        row = (f"{np.interp(sd, grid, errors):.4f}" for sd in sds)
        yield f"| {batches} | " + " | ".join(row) + " |"


def _line(label: str, found: Curve) -> str:
    largest = np.abs(found.deviation)
    at = int(largest.argmax())
    said = "cannot tell" if np.isnan(found.claimed) else f"{found.claimed:.4f}"
    return (
        f"| {label} | {largest[at]:.4f} ± {found.mcse[at]:.4f} | {DELTAS[at]:g} | {said} | "
        f"{found.used.mean():,.0f} | {100 * found.forced.mean():.0f} % |"
    )


HEAD = "| largest error | at Δ | error claimed | rows | forced |\n|---|---|---|---|---|---|---|---|"


def minibatches(n: int) -> Iterator[str]:
    """Yield decisions of ``mh-minibatch`` with m = 100."""
    yield "| terms | sd at m | test " + HEAD
    options = {"default": {}, "skew_corrected": {"skew_corrected": True}}
    for kind in KINDS:
        for sd in (0.95, 1.7):
            for name, given in options.items():
                sampler = mh_minibatch(delta=None, **given)
                test = sampler.acceptance_test(SIZE, 100)
                found = curve(sampler.decide, test, terms(kind, sd, 100), n=n)
                yield _line(f"{kind} | {sd} | {name}", found)


def fixeds(n: int) -> Iterator[str]:
    """Yield decisions of ``mh-fixed`` with minibatches of 50."""
    yield "| terms | sd at m | K " + HEAD
    for kind in KINDS:
        for sd in (0.5, 0.9, 1.1):
            sampler = mh_fixed(batches=10)
            test = sampler.acceptance_test(SIZE, 50)
            found = curve(sampler.decide, test, terms(kind, sd, 50), n=n, skips=True)
            yield _line(f"{kind} | {sd} | 10", found)


def main() -> None:
    """Print every table; write them into the page if asked."""
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    n = int(arguments[0] if arguments else 400_000) // len(DELTAS)
    print(machine(), f"{n * len(DELTAS):,} decisions a line, noise {Z} standard errors")
    sections = {
        "barker corrections": optimal(),
        "barker spread": spread(),
        "barker minibatches": minibatches(n),
        "barker fixed": fixeds(n),
    }
    for name, lines in sections.items():
        print(f"\n{name}")
        kept = []
        for line in lines:
            print(line, flush=True)
            kept += line.split("\n")
        if "--write" in sys.argv:
            publish(PAGE, name, kept)


if __name__ == "__main__":
    main()
