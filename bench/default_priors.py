"""Default priors of coefficients: candidates, codings, contrasts, separated levels, real data.

Run as ``python bench/default_priors.py [PART ...] [--write]``; the parts are those of ``PARTS``.
Data of the last part: ``STREAMMC_TEST_DATA``, else ``../shared/data`` beside the repository. Ends
with status 1 where a bound is missed; ``--write`` puts the tables into
``docs/explanation/default-priors.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from page import machine, publish, short
from real_data_sets import REAL_DATA

import streammc
from streammc import models
from streammc.control_variates import compute, resolved
from streammc.likelihood.data_views import draw_subset
from streammc.priors import NamedPriors, normal
from streammc.priors.densities import JointNormal
from streammc.priors.scaled import WIDTH, shares, spread
from streammc.samplers import hmc

PAGE = "default-priors.md"
DATA = Path(os.environ.get("STREAMMC_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
FLAT = {"*": normal(1e5)}


def ingested(frame: pd.DataFrame, formula: str, **options: Any) -> Any:
    """Return a data frame in memory, rows in their order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return streammc.from_table(
            frame, formula=formula, dtype="float64", shuffle=False, seed=1, **options
        )


def independent(model: Any, store: Any) -> Any:
    """Return the model with the defaults of decision 16: a prior of its own for each column."""
    model = resolved(model, store)
    (joint,) = model.prior.joint
    rows = draw_subset(store, 2**24)
    share, found = shares(rows), [spread(x, shares(rows)) for x in rows.X.T]
    unit = joint_unit(model, rows)
    scale = np.array([WIDTH * unit / (ends or sd or 1.0) for _, sd, ends in found])
    mean = share @ rows.X
    at = [j for j, (_, sd, _) in enumerate(found) if sd == 0.0]
    if at:
        width = model.level(rows).width
        scale[at[0]] = math.hypot(width, *np.delete(scale * mean, at[0]))
    return with_joint(model, JointNormal(joint.labels, joint.location, np.diag(scale**2)))


def joint_unit(model: Any, rows: Any) -> float:
    """Return the unit of the predictor."""
    return float(model.level(rows).unit)


def unit_information(model: Any, store: Any) -> Any:
    """Return the model with as much information as one row has, at the mode of the likelihood."""
    flat = compute(store, type(model)(prior=FLAT))
    model = resolved(model, store)
    (joint,) = model.prior.joint
    q = len(joint.labels)
    information = -flat.hessian[:q, :q] / store.n_rows
    return with_joint(
        model, JointNormal(joint.labels, flat.theta_star[:q], np.linalg.inv(information))
    )


def with_joint(model: Any, joint: JointNormal) -> Any:
    """Return a model with another joint prior of its coefficients."""
    return replace(model, prior=NamedPriors(model.prior.priors, model.prior.scaled, (joint,)))


CANDIDATES: dict[str, Callable[[Any, Any], Any]] = {
    "flat": lambda model, store: type(model)(prior=FLAT),
    "independent (decision 16)": independent,
    "unit information": unit_information,
    "levels and covariance": resolved,
}


def quadratic(n: int, seed: int, logistic: bool) -> pd.DataFrame:
    """Return years 1990 to 2020 and a response that is quadratic in them."""
    rng = np.random.default_rng(seed)
    year = rng.integers(1990, 2021, n).astype(float)
    eta = 0.0045 * (year - 2005.0) ** 2 - (1.0 if logistic else 0.0)
    y = (rng.logistic(size=n) < eta).astype(float) if logistic else eta + rng.normal(size=n)
    return pd.DataFrame({"year": year, "y": y})


def levels(seed: int, n_levels: int = 300, each: int = 100, of_reference: int = 60) -> pd.DataFrame:
    """Return a response of 0 and 1 by a factor whose reference is rare and low."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0.0, 0.8, n_levels)
    logit[0] = -1.5
    g = np.repeat(np.arange(n_levels), [of_reference, *[each] * (n_levels - 1)])
    y = (rng.logistic(size=len(g)) < logit[g]).astype(float)
    return pd.DataFrame({"g": [f"l{k:03d}" for k in g], "y": y, "logit": logit[g]})


def separated(n: int, rare: int, seed: int) -> pd.DataFrame:
    """Return a response of 0 and 1 by a factor one level of which has no 1."""
    rng = np.random.default_rng(seed)
    g = rng.choice(list("abcd"), n, p=[0.6, 0.3, 0.07, 0.03])
    y = (rng.random(n) < 0.4).astype(float)
    g[:rare], y[:rare] = "e", 0.0
    return pd.DataFrame({"g": g, "y": y})


def products(seed: int) -> pd.DataFrame:
    """Return a product of two columns far from 0."""
    rng = np.random.default_rng(seed)
    a, k = rng.uniform(60, 70, 300), rng.uniform(290, 300, 300)
    return pd.DataFrame({"a": a, "k": k, "y": 0.03 * (a - 65) * (k - 295) + rng.normal(size=300)})


def correlated(seed: int) -> pd.DataFrame:
    """Return two columns with a correlation of 0.999."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=300)
    z = x + math.sqrt(1 / 0.999**2 - 1) * rng.normal(size=300)
    return pd.DataFrame({"x": x, "z": z, "y": x - z + rng.normal(size=300)})


TABLES = {
    "`year + I(year**2)`, gaussian, 300 rows": (
        quadratic(300, 1, False), "y ~ year + I(year**2)", models.gaussian, 2),
    "the same, logistic, 3,000 rows": (
        quadratic(3000, 1, True), "y ~ year + I(year**2)", models.logistic, 2),
    "`a * k`, gaussian, 300 rows": (products(1), "y ~ a * k", models.gaussian, 3),
    "correlation 0.999, gaussian, 300 rows": (correlated(1), "y ~ x + z", models.gaussian, 1),
    "300 levels, logistic, a contrast": (levels(1), "y ~ g", models.logistic, 1),
    "a level of 13 rows of 100,000, no 1": (separated(100_000, 13, 1), "y ~ g", models.logistic, 4),
}  # fmt: skip


def candidates() -> Iterator[tuple[str, bool]]:
    """Yield a row per table: mode and Laplace sd of a coefficient under each candidate."""
    yield "| table | " + " | ".join(CANDIDATES) + " |", True
    yield "|---|" + "---|" * len(CANDIDATES), True
    for name, (frame, formula, build, at) in TABLES.items():
        store = ingested(frame, formula)
        scale = (store.attributes["standardization"] or {"scale": np.ones(99)})["scale"][at]
        cells, found = [], {}
        for candidate, changed in CANDIDATES.items():
            try:
                cv = compute(store, changed(build(), store))
            except Exception as error:
                cells.append(f"none: {type(error).__name__}")
                continue
            found[candidate] = cv.theta_star[at] / scale, cv.posterior_sd()[at] / scale
            cells.append("{} ({})".format(*map(short, found[candidate])))
        good = True
        if "no 1" not in name:
            (flat, sd), (ours, width) = found["flat"], found["levels and covariance"]
            good = abs(ours - flat) < 0.25 * sd and 0.95 < width / sd < 1.02
        yield f"| {name} | " + " | ".join(cells) + " |", good


PAIRS = {
    "raw and centred power": ("year + I(year**2)", "late + I(late**2)"),
    "raw and orthogonal polynomial": ("year + I(year**2)", "poly(year, 2)"),
    "product of raw and of centred columns": ("a * k", "c * d"),
    "another reference": ("C(g)", "C(g, contr.treatment('f'))"),
    "levels without an intercept": ("C(g)", "0 + C(g)"),
    "slopes by level": ("g * year", "C(g, contr.treatment('e')) * late"),
    "references of two factors": (
        "g * h", "C(g, contr.treatment('f')) * C(h, contr.treatment('w'))"),
    "cells": ("g * h", "g:h"),
    "slopes of all levels": ("year + g:year", "g:year"),
    "0 and 1, 7 and 10": ("b * year", "coded * late"),
    "a number or a factor": ("b + g", "C(b) + g"),
    "sum contrasts": ("C(g)", "C(g, contr.sum)"),
    "Helmert contrasts and slopes": ("g * year", "C(g, contr.helmert) * late"),
    "contrasts of two factors": ("g * h", "C(g, contr.sum) * C(h, contr.poly)"),
    "other units": ("a + k", "I(a / 1000) + I(1000 * k)"),
}  # fmt: skip
FAMILIES = ("gaussian", "student-t", "logistic", "poisson", "gamma")


def simulated(n: int, family: str, seed: int) -> pd.DataFrame:
    """Return columns of all kinds and a response that depends on most of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "year": rng.integers(1990, 2021, n).astype(float),
            "a": rng.uniform(60, 70, n),
            "k": rng.uniform(290, 300, n),
            "g": rng.choice(list("abcdef"), n, p=[0.35, 0.25, 0.15, 0.1, 0.1, 0.05]),
            "h": rng.choice(["u", "v", "w"], n),
            "b": rng.integers(0, 2, n).astype(float),
        }
    )
    frame.loc[: len("abcdef") - 1, "g"] = list("abcdef")
    late, c, d = frame.year - 2005.0, frame.a - 65.0, frame.k - 295.0
    frame = frame.assign(late=late, c=c, d=d, coded=3.0 * frame.b + 7.0)
    eta = 0.03 * late + 0.002 * late**2 + 0.03 * c * d + 0.3 * frame.b + 0.4 * (frame.g == "b")
    if family == "logistic":
        y = rng.logistic(size=n) < eta
    elif family == "poisson":
        y = rng.poisson(np.exp(0.5 * eta))
    elif family == "gamma":
        y = rng.gamma(3.0, np.exp(eta) / 3.0)
    else:
        y = eta + (rng.normal(size=n) if family == "gaussian" else rng.standard_t(5, n))
    return frame.assign(y=np.asarray(y, float))


def sampled(run: Any) -> Any:
    """Return the draws of a run on the scale of its store."""
    return run.get("sampled_posterior", run["posterior"])


def fitted(frame: pd.DataFrame, formula: str, family: str, standardize: bool, seed: int) -> Any:
    """Return mean and sd of the linear predictor of up to 200 rows, by a run."""
    store = ingested(frame, f"y ~ {formula}", standardize=standardize)
    model = streammc.registry.model(family)()
    draws = 10_000 if len(frame) < 10_000 else 3000  # errors of sds are a fifth of the bound
    run = streammc.sample(store, model, draws=draws, chains=4, seed=seed, audit=False)
    rows = draw_subset(store, 2**24)
    beta = sampled(run)["beta"].values.reshape(-1, store.n_features)
    eta = beta @ rows.X[:200].T
    return eta.mean(axis=0), eta.std(axis=0)


def codings() -> Iterator[tuple[str, bool]]:
    """Yield a row per pair of codings: differences of fitted values, over families and sizes."""
    yield "| codings | runs | largest difference of a mean, sd | sds, ratio |", True
    yield "|---|---|---|---|", True
    for place, (name, formulas) in enumerate(PAIRS.items()):
        away, ratios, runs = 0.0, [1.0], 0
        for family in FAMILIES:
            big = 100_000 if FAMILIES.index(family) == place % len(FAMILIES) else 2000
            for n in (50, big):
                frame = simulated(n, family, place)
                (mean, sd), (other, width) = (
                    fitted(frame, formula, family, standardize, 10 + k)
                    for k, (formula, standardize) in enumerate(
                        zip(formulas, (True, False), strict=True)
                    )
                )
                away = max(away, float(np.abs((mean - other) / width).max()))
                ratios += [float((sd / width).min()), float((sd / width).max())]
                runs += 2
        good = away < 0.1 and min(ratios) > 0.95 and max(ratios) < 1.05
        row = f"| {name}: `{formulas[0]}`, `{formulas[1]}` | {runs} | {away:.3f} "
        yield f"{row}| {min(ratios):.3f} to {max(ratios):.3f} |", good


def contrasts(tables: int = 50) -> Iterator[tuple[str, bool]]:
    """Yield how often intervals of 90 % hold contrasts with the reference, and all others."""
    inside: dict[str, list[float]] = {"with the reference": [], "between neighbours": []}
    for seed in range(tables):
        frame = levels(seed)
        logit = frame.groupby("g").logit.first().to_numpy()
        store = ingested(frame, "y ~ g")
        run = streammc.sample(store, models.logistic(), draws=500, chains=2, seed=seed, audit=False)
        beta = run["posterior"]["beta"].values.reshape(-1, 300)[:, 1:]
        for name, drawn, true in (
            ("with the reference", beta, logit[1:] - logit[0]),
            ("between neighbours", np.diff(beta, axis=1), np.diff(logit[1:])),
        ):
            low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
            inside[name].append(float(((low < true) & (true < high)).mean()))
        print(f"{seed}: {inside['with the reference'][-1]:.3f}", file=sys.stderr, flush=True)
    yield "| contrasts of 300 levels | tables | inside 90 % intervals | standard error |", True
    yield "|---|---|---|---|", True
    for name, found in inside.items():
        error = np.std(found, ddof=1) / math.sqrt(len(found))
        good = abs(np.mean(found) - 0.9) <= 0.03
        yield f"| {name} | {len(found)} | {np.mean(found):.3f} | {error:.3f} |", good


def rare() -> Iterator[tuple[str, bool]]:
    """Yield posteriors of separated levels: proper, of a sensible size, and warned of."""
    yield "| rows | rows of the level | model | median | q5 to q95 | warned |", True
    yield "|---|---|---|---|---|---|", True
    for n, few in ((60, 3), (200, 13), (2000, 1), (100_000, 13), (100_000, 1000)):
        frame = separated(n, few, 1)
        for build in (models.logistic, models.probit, models.poisson):
            store = ingested(frame, "y ~ g")
            run = streammc.sample(store, build(), seed=1, sampler=hmc() if n < 5000 else None)
            drawn = sampled(run)["beta"].sel(feature="g[T.e]").values
            low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
            said = json.loads(run.attrs["summary"])["warnings"]
            lines = [line for line in said if "g[T.e]" in line]
            good = abs(middle) < 10.0 and np.isfinite(drawn).all() and bool(lines)
            row = f"| {n:,} | {few:,} | {build().name} | {middle:.2f} | {low:.2f} to {high:.2f} "
            yield f"{row}| {'yes' if lines else 'NO'} |", good


def moved() -> Iterator[tuple[str, bool]]:
    """Yield by how much the modes of the real data sets moved, in posterior sd."""
    yield (
        "| data | rows | columns | largest shift of a mode, sd | of which parameter | sds, ratio |",
        True,
    )
    yield "|---|---|---|---|---|---|", True
    for name, load in REAL_DATA.items():
        design = load(DATA)
        options = {k: v for k, v in design.options.items() if k != "prior"}
        store = streammc.from_arrays(design.X, design.y, offset=design.offset)
        model = getattr(models, design.model)(**options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before, now = compute(store, independent(model, store)), compute(store, model)
        shift = np.abs(now.theta_star - before.theta_star) / before.posterior_sd()
        ratio = now.posterior_sd() / before.posterior_sd()
        worst = int(np.argmax(shift))
        yield (
            (
                f"| {name} | {store.n_rows:,} | {store.n_features} | {shift[worst]:.3f} | "
                f"{now.labels[worst]} | {ratio.min():.3f} to {ratio.max():.3f} |"
            ),
            True,
        )


PARTS: dict[str, Callable[[], Iterator[tuple[str, bool]]]] = {
    "candidates": candidates,
    "codings": codings,
    "contrasts": contrasts,
    "separated": rare,
    "moved": moved,
}


def main() -> int:
    """Print the tables, write them if asked to, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    missed = False
    for part in given.part or PARTS:
        lines = []
        for line, good in PARTS[part]():
            print(line + ("" if good else "  <-- missed"), flush=True)
            lines.append(line)
            missed |= not good
        if given.write:
            publish(PAGE, part, [*lines, "", f"{machine()}."])
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
