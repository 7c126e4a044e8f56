"""Firm-years with rare failures: eight covariates, each with an effect that is not linear.

Six skewed financial ratios, drawn through a Gaussian copula and cut at their quantiles 0.01
and 0.99 as such ratios are, and two macroeconomic series by month of 1991 to 2008. The table is
written as Parquet and ingested with a formula: an intercept and ten B-splines a covariate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from scipy.stats import beta, lognorm, t

import streammc

ROWS = 4_748_089
EVENTS = 0.01
MONTHS = 216
CHUNK = 250_000
RATIOS = ("earnings", "interest", "leverage", "cash", "turnover", "payables")
MACRO = ("output_gap", "interest_rate")
COVARIATES = (*RATIOS, *MACRO)
FORMULA = "bankrupt ~ " + " + ".join(f"bs({name}, df=10)" for name in COVARIATES)
PRIOR_SD = 1.0
_LINK = np.array(  # correlations of the normal scores
    [
        [1.0, -0.3, -0.4, 0.3, 0.2, -0.2],
        [-0.3, 1.0, 0.3, -0.3, 0.0, 0.2],
        [-0.4, 0.3, 1.0, -0.4, 0.1, 0.5],
        [0.3, -0.3, -0.4, 1.0, 0.0, -0.2],
        [0.2, 0.0, 0.1, 0.0, 1.0, 0.3],
        [-0.2, 0.2, 0.5, -0.2, 0.3, 1.0],
    ]
)
_MARGINALS = (
    t(3, loc=0.06, scale=0.12),
    lognorm(1.0, scale=0.05),
    beta(2.5, 1.5),
    beta(0.7, 4.0),
    lognorm(0.7, scale=1.4),
    beta(1.5, 6.0),
)


def model() -> Any:
    """Return the logistic regression with its prior."""
    return streammc.models.logistic(prior=streammc.priors.normal(scale=PRIOR_SD))


def macro() -> NDArray[np.float64]:
    """Return (MONTHS, 2): two series that swing slowly, the same in every table."""
    rng = np.random.default_rng(1991)
    series = np.zeros((MONTHS, 2))
    level, slope = np.array([-1.0, 6.0]), np.zeros(2)
    for month in range(MONTHS):
        target = np.array([0.0, 8.0 - 5.0 * month / MONTHS])
        slope = 0.85 * slope + 0.02 * (target - level) + 0.12 * rng.standard_normal(2)
        level = level + slope
        series[month] = level + 0.15 * rng.standard_normal(2)
    return series


def covariates(rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Return (rows, 8)."""
    uniform = ndtr(rng.standard_normal((rows, len(RATIOS))) @ np.linalg.cholesky(_LINK).T)
    clipped = np.clip(uniform, 0.01, 0.99)
    ratios = [law.ppf(clipped[:, j]) for j, law in enumerate(_MARGINALS)]
    month = rng.integers(MONTHS, size=rows)
    return np.column_stack([*ratios, macro()[month]])


def log_odds(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of the effects, without the intercept."""
    earnings, interest, leverage, cash, turnover, payables, gap, rate = table.T
    total = -1.3 * np.tanh(3.0 * (earnings - 0.02)) + 0.4 * np.exp(-((earnings + 0.3) ** 2) / 0.02)
    total += 0.5 * np.log1p(8.0 * interest) + 2.0 * leverage**3
    total += -1.6 * (1.0 - np.exp(-6.0 * cash))
    total += 0.35 * np.log(turnover) ** 2 + 1.2 * np.sqrt(payables)
    effect: NDArray[np.float64] = total - 0.2 * gap + 0.03 * gap**2 + 0.08 * (rate - 4.0)
    return effect


def intercept() -> float:
    """Return the intercept with which ``EVENTS`` of the firm-years fail."""
    effect = log_odds(covariates(np.random.default_rng(2008), 200_000))
    low, high = -20.0, 5.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expit(middle + effect).mean() < EVENTS else (low, middle)
    return 0.5 * (low + high)


def write_table(path: Path, rows: int) -> None:
    """Write the firm-years as Parquet."""
    constant = intercept()
    names = ["bankrupt", *COVARIATES]
    schema = pa.schema(
        [(name, pa.float64() if name in COVARIATES else pa.uint8()) for name in names]
    )
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, schema) as writer:
        for index, start in enumerate(range(0, rows, CHUNK)):
            rng = np.random.default_rng([2014, index])
            table = covariates(rng, min(CHUNK, rows - start))
            failed = rng.random(len(table)) < expit(constant + log_odds(table))
            columns = [failed.astype(np.uint8), *np.ascontiguousarray(table.T)]
            writer.write_table(pa.table(dict(zip(names, columns, strict=True)), schema=schema))
    partial.rename(path)


def simulated(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write the table and the store that are missing; return the paths of both."""
    table, store = folder / f"bankruptcy-{rows}.parquet", folder / f"bankruptcy-{rows}.zarr"
    if not table.exists():
        write_table(table, rows)
    if not store.exists():
        streammc.ingest(table, store, formula=FORMULA, shuffle=False)
    return table, store
