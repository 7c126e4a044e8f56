"""What sequential acceptance tests promise, and what they do: searches, errors, rows.

Run as ``python bench/sequential_errors.py [--write] [DECISIONS]`` from a checkout; 200,000
decisions by default, two minutes. ``--write`` puts the tables into
``docs/measurements/sequential-tests.md``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from decisions import Decisions, decisions
from page import machine, publish, short
from term_populations import population

from streammc.errors import ConfigError
from streammc.numerics.jit import jit
from streammc.samplers import mh_austere, mh_sublhd
from streammc.samplers.metropolis.acceptance import TEST_SIGNATURE, UNIFORM
from streammc.samplers.metropolis.mh_austere import conservative_pair, sequential_test
from streammc.samplers.metropolis.mh_austere import decide as decide_austere
from streammc.samplers.metropolis.mh_sublhd import INEQUALITIES
from streammc.samplers.metropolis.mh_sublhd import decide as decide_sublhd

PAGE = "sequential-tests.md"
SIZE = 2000
KINDS = ("normal", "skewed", "heavy", "rare")


@jit(TEST_SIGNATURE)
def austere_at(settings, facts, terms, draws, memory, carried, reply, table):
    draws[UNIFORM] = settings[settings.shape[0] - 1]
    return decide_austere(settings, facts, terms, draws, memory, carried, reply, table)


@jit(TEST_SIGNATURE)
def sublhd_at(settings, facts, terms, draws, memory, carried, reply, table):
    draws[UNIFORM] = settings[settings.shape[0] - 1]
    return decide_sublhd(settings, facts, terms, draws, memory, carried, reply, table)


def searches() -> Iterator[str]:
    """Yield what the conservative search takes."""
    yield "| N | bound | m | ε | error in the worst case | expected rows there | of N |"
    yield "|---|---|---|---|---|---|---|"
    for size in (13_007, 100_000, 100_000_000):
        for bound in (0.05, 0.1, 0.2):
            try:
                m, epsilon = conservative_pair(size, None, None, bound)
            except ConfigError:
                yield f"| {size:,} | {bound} | none | | | | |"
                continue
            test = sequential_test(size, m, epsilon, np.zeros(1))
            rows = test.rows[0]
            yield (
                f"| {size:,} | {bound} | {m} | {epsilon:g} | {test.error[0]:.4f} "
                f"| {rows:,.0f} | {100.0 * rows / size:.1f} % |"
            )


def at(test: object, prepared: object, kind: str, mu: float, n: int) -> tuple[float, Decisions]:
    """Return the share of wrong decisions at ``mu_std``, and all of them."""
    found = decisions(
        test, np.append(prepared.settings, 0.5), population(kind, SIZE), n=n, seed=1,
        delta=math.log(0.5) + mu / math.sqrt(SIZE - 1.0), replace=False, table=prepared.table,
    )  # fmt: skip
    return (1.0 - found.accepted if mu > 0.0 else found.accepted), found


def sequences(n: int) -> Iterator[str]:
    """Yield wrong decisions of t-tests, expected, measured and claimed."""
    yield (
        "| terms | m | ε | μ_std | wrong by the recursion | wrong | claimed | rows by the "
        "recursion | rows | forced |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for m, epsilon in ((50, 0.005), (200, 0.1)):
        prepared = mh_austere(epsilon=epsilon).acceptance_test(SIZE, m)
        for kind in KINDS:
            for mu in (0.001, 2.0):
                wrong, found = at(austere_at, prepared, kind, mu, n)
                test = sequential_test(SIZE, m, epsilon, np.array([mu]))
                yield (
                    f"| {kind} | {m} | {epsilon:g} | {mu:.0f} | {test.error[0]:.4f} | {wrong:.4f} "
                    f"| {found.error.mean():.3f} | {test.rows[0]:,.0f} "
                    f"| {found.used.mean():,.0f} | {100.0 * found.forced.mean():.1f} % |"
                )


def bounds(n: int) -> Iterator[str]:
    """Yield wrong decisions and rows of the concentration bounds."""
    yield "| terms | inequality | δ | μ_std | wrong | rows | forced |"
    yield "|---|---|---|---|---|---|---|"
    for kind in KINDS:
        for inequality in INEQUALITIES:
            prepared = mh_sublhd(delta=0.1, inequality=inequality).acceptance_test(SIZE, 50)
            wrong, found = at(sublhd_at, prepared, kind, 20.0, n)
            yield (
                f"| {kind} | {inequality} | 0.1 | 20 | {short(wrong)} "
                f"| {found.used.mean():,.0f} | {100.0 * found.forced.mean():.1f} % |"
            )


def main() -> None:
    """Print the tables, and put them into the page with ``--write``."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    n = numbers[0] if numbers else 200_000
    head = f"{machine()}, shared with other work; {n:,} decisions a line."
    tables = {
        "searches": list(searches()),
        "sequences": [head, "", *sequences(n)],
        "bounds": [head, "", *bounds(n)],
    }
    for name, lines in tables.items():
        print("\n".join([f"{name}:", *lines, ""]))
        if "--write" in sys.argv:
            publish(PAGE, f"sequential {name}", lines)


if __name__ == "__main__":
    main()
