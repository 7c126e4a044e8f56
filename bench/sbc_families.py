"""Simulation-based calibration: families stated as text, ordinal and multinomial regression.

Run as ``python bench/sbc_families.py [TABLES] [--minutes M] [--families NAME ...] [--write]``, by
default 500 tables of 200 rows for each family and sampler, or as many as ``--minutes`` allow
(Talts et al. 2018): parameters from their priors, responses from the simulator of the model, a run
of ``streammc.sample``, and the rank of each true parameter among 99 thinned draws. Ranks are
uniform if prior, simulator, likelihood and sampler agree; their p-values are of a chi-square test
of 10 bins. The partner, of half as many tables, gives every row the weight 25. ``smh`` has no
bounds for these families, and a table that ``hmc-ecs`` refuses is sampled by ``hmc``. ``--write``
puts the figures of all families into ``docs/measurements/calibration.md``.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

import numpy as np
from page import machine, publish
from scipy import stats

import streammc
from streammc import registry, samplers
from streammc.errors import RefusedError, SamplingWarning
from streammc.priors import lognormal, normal

ROWS, RANKS, THIN, BINS, WRONG = 200, 99, 20, 10, 25.0
BETA: Final = ((1.0, 0.5), (0.0, 0.5))
"""Means and standard deviations of the normal priors of the intercept and of the slope."""
SHARED: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "inverse-gaussian": {"shape": (0.7, 0.3)},
    "lognormal": {"sigma": (-0.3, 0.3)},
    "weibull": {"shape": (0.3, 0.3)},
    "beta": {"phi": (1.5, 0.3)},
    "zero-inflated-poisson": {"logit_zi": (-0.5, 0.5)},
    "zero-inflated-negative-binomial": {"phi": (0.7, 0.3), "logit_zi": (-0.5, 0.5)},
    "hurdle-poisson": {"logit_hu": (-0.5, 0.5)},
    "beta-binomial": {"phi": (1.0, 0.3)},
    "tweedie": {"phi": (0.0, 0.3), "logit_power": (0.0, 0.5)},
    "quantile": {"sigma": (-0.3, 0.3)},
    "multinomial": {},
    "ordinal": {"gap[1]": (0.0, 0.3), "gap[2]": (0.0, 0.3)},
}
"""Means and standard deviations of shared parameters as they are sampled: logarithms and log
odds."""
LEVELS: Final = {"ordinal": 4, "multinomial": 3}
BETAS: Final = {"multinomial": tuple(f"beta[{k}, {x}]" for k in "12" for x in ("x0", "x1"))}
"""Names of the coefficients, of families with several predictors."""
SAMPLERS: Final = {"hmc": samplers.hmc, "hmc-ecs": samplers.hmc_ecs}

_TOGETHER: Final = 10
"""Tables that are sampled before the time is looked at."""

Found = list[tuple[list[int], bool]]
"""Ranks of each table, and whether the sampler refused it."""


def ranks(name: str, sampler: str, weight: float, seed: int) -> tuple[list[int], bool]:
    """Return the ranks of all parameters of one table, and whether the sampler refused it."""
    rng = np.random.default_rng([seed, 79])
    shared = SHARED[name]
    names = BETAS.get(name, ("beta[x0]", "beta[x1]"))
    normals = [BETA[j % 2] for j in range(len(names))]
    beta = [rng.normal(*each) for each in normals]
    sampled = [rng.normal(*each) for each in shared.values()]
    own = {key: (normal if key.startswith("logit") else lognormal)(*each)
           for key, each in shared.items()}  # fmt: skip
    prior = dict(zip(names, (normal(*each) for each in normals), strict=True))
    options: dict[str, Any] = {"levels": LEVELS[name]} if name in LEVELS else {}
    model = registry.model(name)(prior=prior | own, **options)
    X = np.column_stack([np.ones(ROWS), rng.normal(size=ROWS)])
    linear = np.reshape(beta, (-1, 2)) @ X.T
    eta = np.vstack([linear, *(np.full((1, ROWS), each) for each in sampled)])
    if name == "beta-binomial":  # its rows have no weights: they are repeated
        trials = rng.integers(1, 20, ROWS).astype(np.float64)
        successes = np.rint(model.simulate_trials(eta, trials, rng) * trials)
        X, successes, trials = (each.repeat(int(weight), 0) for each in (X, successes, trials))
        data = streammc.from_arrays(X, successes, trials=trials)
    else:
        data = streammc.from_arrays(X, model.simulate(eta, rng), weight=np.full(ROWS, weight))
    asked: dict[str, Any] = {"seed": seed, "chains": 1, "warmup": 300, "draws": THIN * RANKS}
    refused = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        try:
            run = streammc.sample(data, model, sampler=SAMPLERS[sampler](), audit=False, **asked)
        except RefusedError:  # left out, it would be missing among the ranks
            refused = True
            run = streammc.sample(data, model, sampler=samplers.hmc(), audit=False, **asked)
    posterior = run["posterior"]
    names = dict.fromkeys(["beta", *(key.partition("[")[0] for key in shared)])
    draws = np.vstack([posterior[key].to_numpy()[0].reshape(THIN * RANKS, -1).T for key in names])
    truth = [*beta, *(value if key.startswith("logit") else np.exp(value)
                      for key, value in zip(shared, sampled, strict=True))]  # fmt: skip
    return [
        int((one[::THIN] < each).sum()) for one, each in zip(draws, truth, strict=True)
    ], refused


def p_values(found: list[list[int]]) -> list[float]:
    """Return the p-value of the chi-square test of each parameter."""
    counts = (np.bincount(each * BINS // (RANKS + 1), minlength=BINS) for each in np.array(found).T)
    return [float(stats.chisquare(each).pvalue) for each in counts]


def line(name: str, sampler: str, right: Found, wrong: Found) -> tuple[str, list[float], float]:
    """Return a line of the table, the p-values and the largest of the partner."""
    good, bad = (p_values([each for each, _ in found]) for found in (right, wrong))
    labels = [*BETAS.get(name, ("beta[x0]", "beta[x1]")), *SHARED[name]]
    each = ", ".join(f"{key} {p:.2g}" for key, p in zip(labels, good, strict=True))
    refused = sum(no for _, no in right)
    return f"| {name} | {sampler} | {each} | {refused} | {max(bad):.0e} |", good, max(bad)


def main() -> None:
    """Sample all tables, and print or publish the p-values."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="?", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--families", choices=SHARED, nargs="+")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write and options.families:
        parser.error("expected --write for all families, found some: leave out --families")
    names = options.families or [*SHARED]
    cases = [(name, sampler) for name in names for sampler in SAMPLERS]
    right: dict[tuple[str, str], Found] = {case: [] for case in cases}
    wrong: dict[tuple[str, str], Found] = {case: [] for case in cases}
    start, tables = time.monotonic(), 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        while tables < options.tables and time.monotonic() - start < 60.0 * options.minutes:
            together = range(tables, min(tables + _TOGETHER, options.tables))
            asked = {
                (case, weight, table): pool.submit(ranks, *case, weight, table)
                for table in together
                for case in cases
                for weight in (1.0, WRONG)
                if weight == 1.0 or table % 2 == 0
            }
            for (case, weight, _), found in asked.items():
                (right if weight == 1.0 else wrong)[case].append(found.result())
            tables = together.stop
    lines, p, partners = zip(
        *(line(*case, right[case], wrong[case]) for case in cases), strict=True
    )
    every = [each for found in p for each in found]
    head = [
        f"{machine()}; {tables} tables of {ROWS} rows each, {len(every)} p-values, the least "
        f"{min(every):.2g}, {min(every) * len(every):.2g} with Bonferroni's correction; tables "
        "that hmc-ecs refuses are sampled by hmc.", "",
        "| family | sampler | p-value of each parameter | refused | largest p of the partner |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    print("\n".join([*head, *lines]))
    if options.write:
        publish("calibration.md", "families", [*head, *lines])
    if min(every) * len(every) < 1e-2 or max(partners) > 1e-6:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
