"""Families on real tables, beside maximum likelihood by R.

Run as ``STREAMMC_TEST_DATA=FOLDER python bench/families_real.py [FAMILY ...] [--write]``, with R
and its packages MASS, nnet, survival, quantreg and glmmTMB (Debian has all). Each case is fitted by
R, which has its own code and its own optimiser, and sampled by ``streammc.sample`` at automatic
settings, with flat priors of coefficients and default priors of what all rows share. The figure of
a parameter is the distance between its posterior mean and R's estimate, in R's standard errors. A
posterior mean is not the mode: the rows are many, so that the difference is small. ``--write`` puts
the figures into ``docs/measurements/families.md``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from page import machine, publish

import streammc
from streammc import registry
from streammc.errors import SamplingWarning
from streammc.priors import flat

Table = dict[str, Any]
BOUND: Final = 0.15
"""Standard errors."""


def read(folder: Path, name: str) -> dict[str, list[str]]:
    with gzip.open(folder / name, "rt", newline="") as file:
        rows = list(csv.reader(file))
    return {key: [row[j] for row in rows[1:]] for j, key in enumerate(rows[0])}


def standard(x: Any) -> Any:
    x = np.asarray(x, np.float64)
    return (x - x.mean()) / x.std()


def diamonds(folder: Path) -> Table:
    read_table = read(folder, "diamonds/diamonds.csv.gz")
    columns = {name: standard(read_table[name]) for name in ("depth", "table")}
    columns["carat"] = standard(np.log(np.asarray(read_table["carat"], np.float64)))
    grades = ("Fair", "Good", "Very Good", "Premium", "Ideal")
    colours = {"D": 0, "E": 0, "F": 0, "G": 1, "H": 1, "I": 2, "J": 2}
    columns["cut"] = np.array([grades.index(each) for each in read_table["cut"]], np.float64)
    columns["colour"] = np.array([colours[each] for each in read_table["color"]], np.float64)
    columns["price"] = np.asarray(read_table["price"], np.float64) / 1000.0
    return columns


def bike(folder: Path) -> Table:
    read_table = read(folder, "bike_hour/bike_sharing_demand.csv.gz")
    angle = 2.0 * np.pi * np.asarray(read_table["hour"], np.float64) / 24.0
    columns = {name: standard(read_table[name]) for name in ("temp", "windspeed")}
    columns |= {"sin": np.sin(angle), "cos": np.cos(angle)}
    columns |= {
        name: np.asarray(read_table[name], np.float64) for name in ("casual", "count", "humidity")
    }
    return columns


def damp(folder: Path) -> Table:
    columns = bike(folder)
    inside = (columns["humidity"] > 0.0) & (columns["humidity"] < 1.0)
    return {name: values[inside] for name, values in columns.items()}


def claims(folder: Path) -> Table:
    with np.load(folder / "fretpl_claimnumber" / "data.npz") as file:
        every = slice(None, None, 10)
        age = standard(file["driver_age"][every])
        return {"age": age, "claims": file["claim_number"][every].astype(np.float64)}


def flights(folder: Path) -> Table:
    """Return minutes late, 0 if not, of every tenth flight."""
    with np.load(folder / "flights200k" / "data.npz") as file:
        every = slice(None, None, 10)
        columns = {name: standard(file[name][every]) for name in ("distance", "time")}
        return columns | {"late": np.maximum(file["delay"][every], 0).astype(np.float64)}


def chains(folder: Path) -> Table:
    """Return ages at death, or the last seen, of ``survival::flchain``."""
    code = (
        "library(survival); d <- flchain[flchain$futime > 0, ];"
        "write.csv(d[, c('futime', 'death', 'age', 'lambda')], 'table.csv', row.names = FALSE)"
    )
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["Rscript", "-e", code], cwd=place, check=True, capture_output=True)
        with open(Path(place) / "table.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    found = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    return {
        "time": found["futime"] / 365.25,
        "lost": 1.0 - found["death"],
        "age": standard(found["age"]),
        "chain": standard(np.log(found["lambda"])),
    }


@dataclass(frozen=True)
class Case:
    """A family on a table, and what R calls the same."""

    table: Callable[[Path], Table]
    formula: str
    r: str
    """R code that leaves estimates ``b`` and standard errors ``s``, both named as here."""
    family: str = ""
    """Empty: the name of the case."""
    options: dict[str, Any] = field(default_factory=dict)
    ingest: dict[str, Any] = field(default_factory=dict)


_TMB = """
library(glmmTMB)
m <- glmmTMB({call}, data = d)
v <- sqrt(diag(vcov(m, full = TRUE)))
f <- fixef(m)
b <- f$cond; names(b) <- paste0('beta[', names(b), ']')
s <- v[seq_along(b)]
"""
_ZI = "b <- c(b, {name} = unname(f$zi)); s <- c(s, v[length(f$cond) + 1])\n"
_DISP = """
k <- length(b); o <- grep('^d~|disp', names(v))
b <- c(b, {name} = sigma(m)); s <- c(s, sigma(m) * unname(v[o]))
"""
"""The dispersion is estimated as its logarithm."""
_SURVREG = """
library(survival)
m <- survreg(Surv(time, 1 - lost) ~ age + chain, data = d, dist = '{dist}')
v <- sqrt(diag(vcov(m)))
b <- coef(m); names(b) <- paste0('beta[', names(b), ']'); s <- v[seq_along(b)]
"""
BIKE = "temp + windspeed + sin + cos"
CASES: Final = {
    "ordinal": Case(
        diamonds,
        "cut ~ carat + depth + table",
        """
library(MASS)
d$cut <- ordered(d$cut)
m <- polr(cut ~ carat + depth + table, data = d, Hess = TRUE, control = list(reltol = 1e-14))
v <- sqrt(diag(vcov(m)))
b <- c(coef(m), m$zeta); s <- v
names(b) <- c(paste0('beta[', names(coef(m)), ']'), paste0('zeta[', 0:3, ']'))
""",
    ),
    "multinomial": Case(
        diamonds,
        "colour ~ carat + depth + table",
        """
library(nnet)
m <- multinom(colour ~ carat + depth + table, data = d, maxit = 1000, reltol = 1e-14, trace = FALSE)
b <- as.vector(t(coef(m))); s <- as.vector(t(summary(m)$standard.errors))
names(b) <- paste0('beta[', rep(rownames(coef(m)), each = 4), ', ', rep(colnames(coef(m)), 2), ']')
""",
    ),
    "zero-inflated-poisson": Case(
        claims,
        "claims ~ age",
        _TMB.format(call="claims ~ age, ziformula = ~ 1, family = poisson")
        + _ZI.format(name="logit_zi"),
    ),
    "zero-inflated-poisson, zi varying": Case(
        claims,
        "claims ~ age",
        _TMB.format(call="claims ~ age, ziformula = ~ age, family = poisson")
        + "z <- f$zi; names(z) <- paste0('logit_zi[', names(z), ']')\n"
        "b <- c(b, z); s <- v[1:4]\n",
        "zero-inflated-poisson",
        {"varying": "logit_zi"},
    ),
    "zero-inflated-negative-binomial": Case(
        flights,
        "late ~ distance + time",
        _TMB.format(call="late ~ distance + time, ziformula = ~ 1, family = nbinom2")
        + _ZI.format(name="logit_zi")
        + _DISP.format(name="phi"),
    ),
    "negative-binomial, phi varying": Case(
        bike,
        f"casual ~ {BIKE}",
        _TMB.format(call=f"casual ~ {BIKE}, dispformula = ~ {BIKE}, family = nbinom2")
        + "z <- f$disp; names(z) <- paste0('phi[', names(z), ']')\n"
        "b <- c(b, z); s <- v[seq_along(b)]\n",
        "negative-binomial",
        {"varying": "phi"},
    ),
    "negative-binomial, phi ~ sin + cos": Case(
        bike,
        f"casual ~ {BIKE}",
        _TMB.format(call=f"casual ~ {BIKE}, dispformula = ~ sin + cos, family = nbinom2")
        + "z <- f$disp; names(z) <- paste0('phi[', names(z), ']')\n"
        "b <- c(b, z); s <- v[seq_along(b)]\n",
        "negative-binomial",
        ingest={"formula_for": "phi ~ sin + cos"},
    ),
    "hurdle-poisson": Case(
        claims,
        "claims ~ age",
        _TMB.format(call="claims ~ age, ziformula = ~ 1, family = truncated_poisson")
        + _ZI.format(name="logit_hu"),
    ),
    "beta": Case(
        damp,
        f"humidity ~ {BIKE}",
        _TMB.format(call=f"humidity ~ {BIKE}, family = beta_family") + _DISP.format(name="phi"),
    ),
    "beta-binomial": Case(
        bike,
        f"casual ~ {BIKE}",
        _TMB.format(call=f"cbind(casual, count - casual) ~ {BIKE}, family = betabinomial")
        + _DISP.format(name="phi"),
        ingest={"trials": "count"},
    ),
    "tweedie": Case(
        bike,
        f"casual ~ {BIKE}",
        _TMB.format(call=f"casual ~ {BIKE}, family = tweedie")
        + """
p <- family_params(m)
b <- c(b, phi = sigma(m), logit_power = unname(qlogis(p - 1)))
o <- length(v) - 1:0
s <- c(s, sigma(m) * v[o[1]], v[o[2]])
""",
    ),
    "inverse-gaussian": Case(
        diamonds,
        "price ~ carat + depth + table",
        """
m <- glm(price ~ carat + depth + table, data = d, family = inverse.gaussian('log'),
         control = list(epsilon = 1e-12))
n <- nrow(d); shape <- n / deviance(m)
b <- coef(m); names(b) <- paste0('beta[', names(b), ']')
s <- sqrt(diag(vcov(m)) / summary(m)$dispersion / shape)
b <- c(b, shape = shape); s <- c(s, shape * sqrt(2 / n))
""",
    ),
    "gaussian, sigma varying": Case(
        diamonds,
        "price ~ carat + depth + table",
        _TMB.format(
            call="price ~ carat + depth + table, dispformula = ~ carat + depth + table,"
            " family = gaussian"
        )
        + "z <- f$disp / HALVES; names(z) <- paste0('sigma[', names(z), ']')\n"
        "b <- c(b, z); s <- v[seq_along(b)] / rep(c(1, HALVES), each = 4)\n",
        "gaussian",
        {"varying": "sigma"},
    ),
    "gaussian, sigma ~ carat": Case(
        diamonds,
        "price ~ carat + depth + table",
        _TMB.format(call="price ~ carat + depth + table, dispformula = ~ carat, family = gaussian")
        + "z <- f$disp / HALVES; names(z) <- paste0('sigma[', names(z), ']')\n"
        "b <- c(b, z); s <- v[1:6] / rep(c(1, HALVES), c(4, 2))\n",
        "gaussian",
        ingest={"formula_for": "sigma ~ carat"},
    ),
    "weibull, censored": Case(
        chains,
        "time ~ age + chain",
        _SURVREG.format(dist="weibull")
        + "b <- c(b, shape = 1 / m$scale); s <- c(s, v[4] / m$scale)\n",
        "weibull",
        ingest={"censored": "lost"},
    ),
    "lognormal, censored": Case(
        chains,
        "time ~ age + chain",
        _SURVREG.format(dist="lognormal")
        + "b <- c(b, sigma = m$scale); s <- c(s, v[4] * m$scale)\n",
        "lognormal",
        ingest={"censored": "lost"},
    ),
    "exponential, censored": Case(
        chains,
        "time ~ age + chain",
        _SURVREG.format(dist="exponential"),
        "exponential",
        ingest={"censored": "lost"},
    ),
    "quantile": Case(
        diamonds,
        "price ~ carat + depth + table",
        """
library(quantreg)
m <- rq(price ~ carat + depth + table, tau = 0.9, data = d, method = 'fn')
b <- coef(m); names(b) <- paste0('beta[', names(b), ']')
s <- summary(m, se = 'nid')$coefficients[, 2]
""",
        options={"tau": 0.9},
    ),
}


def by_r(case: Case, table: Table) -> dict[str, tuple[float, float]]:
    """Return R's estimates and standard errors by the names of the parameters here."""
    with tempfile.TemporaryDirectory() as place:
        with open(Path(place) / "table.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*(map(repr, map(float, x)) for x in table.values()), strict=True))
        # glmmTMB before 1.1.6 models the logarithm of the variance of a Gaussian, later of the sd.
        halves = "HALVES <- if (packageVersion('glmmTMB') < '1.1.6') 2 else 1\n"
        code = (
            "d <- read.csv('table.csv', check.names = FALSE)\n"
            + halves * ("HALVES" in case.r)
            + case.r
            + "cat(sprintf('%s\\t%.17g\\t%.17g\\n', names(b), b, s), sep = '')\n"
        )
        done = subprocess.run(
            ["Rscript", "-e", code], cwd=place, check=False, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 2]
    return {name.replace("(Intercept)", "Intercept"): (float(b), float(s)) for name, b, s in lines}


def by_streammc(case: Case, name: str, table: Table) -> tuple[dict[str, float], str]:
    """Return the posterior means by name, and the sampler."""
    build = registry.model(case.family or name)
    model = build(prior={"beta*": flat()}, **case.options)
    data = streammc.from_table(table, formula=case.formula, standardize=False, **case.ingest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        run = streammc.sample(data, model, seed=1, draws=2000)
    means = {}
    for key, values in run["posterior"].data_vars.items():
        mean = values.mean(("chain", "draw"))
        dims = list(mean.dims)
        if not dims:
            means[str(key)] = float(mean)
        else:
            for label, value in zip(mean[dims[0]].values, mean.values, strict=True):
                means[f"{key}[{label}]"] = float(value)
    if (case.family or name) == "ordinal":
        gaps = run["posterior"]["gap"].values.reshape(-1, run["posterior"]["gap"].shape[-1])
        beta = run["posterior"]["beta"].sel(feature="Intercept").values.ravel()
        cuts = np.concatenate([np.zeros((len(gaps), 1)), np.cumsum(gaps, axis=1)], axis=1)
        zeta = (cuts - beta[:, None]).mean(axis=0)
        means |= {f"zeta[{k}]": float(each) for k, each in enumerate(zeta)}
    return means, json.loads(run.attrs["sampler"])["name"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(CASES))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    folder = Path(os.environ["STREAMMC_TEST_DATA"])
    lines = [
        f"{machine()}; R {version()}.", "",
        "| family | table | rows | sampler | largest distance, standard errors | of |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    failed = []
    for name in asked.families:
        case = CASES[name]
        table = case.table(folder)
        estimates = by_r(case, table)
        means, sampler = by_streammc(case, name, table)
        away = {key: abs(means[key] - b) / s for key, (b, s) in estimates.items()}
        worst = max(away, key=away.__getitem__)
        rows = len(next(iter(table.values())))
        shown = f"| {name} | {case.table.__name__} | {rows:,} | {sampler} | {away[worst]:.3f} "
        lines.append(f"{shown}| {worst} |")
        print(lines[-1], flush=True)
        if not away[worst] <= BOUND:
            failed.append(name)
            for key, (b, s) in estimates.items():
                print(f"    {key}: {b:.5f} +- {s:.5f}, here {means[key]:.5f}", flush=True)
    if asked.write:
        publish("families.md", "families-real", lines)
    if failed:
        raise SystemExit(f"above {BOUND} standard errors: {', '.join(failed)}")


def version() -> str:
    shown = subprocess.run(["Rscript", "--version"], check=True, capture_output=True, text=True)
    return (shown.stdout + shown.stderr).split("version")[1].split()[0]


if __name__ == "__main__":
    main()
