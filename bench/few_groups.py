"""Whether runs of a few groups that are trusted have the sds of their posterior.

Run as ``python bench/few_groups.py [--tables N] [--seeds S] [--jobs J] [--write]``, by default 10
tables of each kind (a family, and 3 groups of 12 rows or 2 of 30) and 20 runs of each at automatic
settings. The reference of a table is quadrature or importance sampling of its own
(``silent_references.py``), which shares no code with streammc. A chain that misses the tail of
``tau`` looks well mixed, so that to run again until a run passes would select runs that are wrong:
of the trusted runs the mean of sd over reference sd has to be 0.97 to 1.03 for every parameter.
``--write`` puts the table into ``docs/measurements/few-groups.md``. Ends with status 1 otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

FAMILIES = ("gaussian", "poisson", "logistic")
SHAPES = ((3, 12), (2, 30))
PRIOR = {
    "x0": "normal(0, 5)",
    "x1": "normal(0, 2.5)",
    "sigma": "half_student_t(3, 2.5)",
    "tau[group]": "half_student_t(3, 2.5)",
}
DRAWS = 40_000
"""Draws of a reference."""
Data = dict[str, Any]


def table(family: str, groups: int, rows: int, seed: int) -> Data:
    """Return the arguments of ``from_arrays``: an intercept and a column of 0 and 1."""
    rng = np.random.default_rng([seed, groups])
    group = np.repeat(np.arange(groups), rows)
    x = (rng.random(len(group)) < 0.5).astype(float)
    eta = 0.3 + 0.5 * x + rng.standard_normal(groups)[group]
    y = {
        "gaussian": lambda: rng.normal(eta, 1.0),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "logistic": lambda: (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(float),
    }[family]()
    return {"X": np.column_stack([np.ones(len(eta)), x]), "y": y, "groups": group}


def reference(family: str, groups: int, rows: int, seed: int) -> dict[str, float]:
    """Return the sd of intercept, slope and tau of a table."""
    from silent_densities import posterior
    from silent_references import reference_of

    target = posterior(family, table(family, groups, rows, seed), PRIOR)
    found = reference_of(target, lambda theta: {"tau": np.exp(theta[:, -1])}, DRAWS)
    sds = dict(zip(found.labels, found.sd, strict=True))
    return {name: float(sds[name]) for name in ("beta[x0]", "beta[x1]", "tau")}


def run(family: str, groups: int, rows: int, seed: int, again: int) -> tuple[bool, list[float]]:
    """Return whether a run is trusted, and its sds of intercept, slope and tau."""
    import streammc
    from streammc import from_arrays, models, priors

    warnings.simplefilter("ignore")
    given = {name: priors.parse(text) for name, text in PRIOR.items()}
    if family != "gaussian":
        given.pop("sigma")
    model = getattr(models, family)(prior=given)
    tree = streammc.sample(from_arrays(**table(family, groups, rows, seed)), model, seed=again)
    beta, tau = (tree["posterior"][name].to_numpy() for name in ("beta", "tau"))
    sds = [float(beta[..., 0].std()), float(beta[..., 1].std()), float(tau.std())]
    return tree.attrs["verdict"].startswith("These draws can be trusted"), sds


def measured(case: tuple[str, tuple[int, int], int, int]) -> list[tuple[bool, list[float]]]:
    """Return of every run of a table whether it is trusted, and its sds over the reference."""
    family, shape, seed, seeds = case
    exact = np.array(list(reference(family, *shape, seed).values()))
    runs = [run(family, *shape, seed, again) for again in range(1, seeds + 1)]
    return [(trusted, list(np.array(sds) / exact)) for trusted, sds in runs]


def main() -> None:
    """Run the tables, print the ratios of the trusted runs, and judge them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the workers
    from page import machine, publish

    kinds = list(itertools.product(FAMILIES, SHAPES))
    cases = [(*kind, seed, options.seeds) for kind in kinds for seed in range(options.tables)]
    lines = [
        f"{machine()}, shared with other work; {options.tables} tables of each kind, "
        f"{options.seeds} runs of each:", "",
        "| family | groups | trusted | sd of the intercept | of the slope | of tau | its error | "
        "lowest, highest run |",
        "|---" * 8 + "|",
    ]  # fmt: skip
    wrong = False
    with ProcessPoolExecutor(options.jobs) as pool:
        found = dict(zip(cases, pool.map(measured, cases), strict=True))
    for family, (groups, rows) in kinds:
        of_kind = [each for case, each in found.items() if case[:2] == (family, (groups, rows))]
        every = [one for runs in of_kind for one in runs]
        kept = np.array([ratios for trusted, ratios in every if trusted])
        mean = kept.mean(axis=0)
        error = kept[:, 2].std(ddof=1) / np.sqrt(len(kept))
        wrong |= bool(np.abs(mean - 1.0).max() > 0.03)
        lines.append(
            f"| {family} | {groups} of {rows} rows | {len(kept)} of {len(every)} | "
            + " | ".join(f"{each:.3f}" for each in mean)
            + f" | {error:.3f} | {kept.min():.2f}, {kept.max():.2f} |"
        )
    print("\n".join(lines))
    if options.write:
        publish("few-groups.md", "few-groups", lines)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
