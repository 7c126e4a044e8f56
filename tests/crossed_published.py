"""Published tables whose factors cross, and the REML fits of lme4 1.1-31 (``lmer``, defaults).

Penicillin and Pastes: Davies and Goldsmith (1972), Statistical Methods in Research and Production,
tables 6.6 and 6.5. InstEval and sleepstudy are read from the folder of real data sets.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crossed_exact import Exact, exact_of

DIAMETERS = """
272326232321 272326232321 252125242420 262325232320 252226222320 242225232219 242023212219
262226242421 242124222220 242124232219 262326242421 252226242420 262426242522 262326232320
262325242422 252225232320 252124232320 252224232319 242123212119 262326242421 252124222218
252225222220 242124222419 242124222118
"""
"""Zones of inhibition in mm, of each of 24 plates those of the samples A to F."""
STRENGTHS = """
62.8 62.6 60.1 62.3 62.7 63.1  60.0 61.4 57.5 56.9 61.1 58.9  58.7 57.5 63.9 63.1 65.4 63.7
57.1 56.4 56.9 58.6 64.7 64.5  55.1 55.1 54.7 54.2 58.8 57.5  63.4 64.9 59.3 58.1 60.5 60.0
62.5 62.6 61.0 58.7 56.9 57.7  59.2 59.4 65.2 66.0 64.8 64.1  54.8 54.8 64.0 64.0 57.7 56.8
58.3 59.3 59.2 59.2 58.9 56.6
"""
"""Of each of 10 batches of paste, two assays of each of three casks."""


class Published(NamedTuple):
    """A model of a table."""

    table: str
    formula: str
    factors: tuple[str, ...]
    """``a:b`` is a factor of the labels of both."""
    column: str | None
    priors: tuple[float, float, float]
    """Mean and sd of the intercept, and the scale of the half-Student-t(3) scales."""
    reml: dict[str, float]


INTERCEPT, PLATE, SAMPLE = "beta[Intercept]", "tau[plate]", "tau[sample]"
PUBLISHED = {
    "Penicillin": Published(
        "Penicillin", "diameter ~ 1 + (1 | plate) + (1 | sample)", ("plate", "sample"), None,
        (22.97, 5.06, 5.06),
        {INTERCEPT: 22.9722, PLATE: 0.846703, SAMPLE: 1.931614, "sigma": 0.549923},
    ),
    "Pastes": Published(
        "Pastes", "strength ~ 1 + (1 | batch/cask)", ("batch", "batch:cask"), None,
        (60.05, 8.03, 8.03),
        {INTERCEPT: 60.0533, "tau[batch]": 1.287366, "tau[batch:cask]": 2.904077,
         "sigma": 0.823408},
    ),
    "sleepstudy": Published(
        "sleepstudy", "Reaction ~ Days + (1 | Subject)", ("Subject",), "Days",
        (250.0, 200.0, 150.0),
        {INTERCEPT: 251.4051, "beta[Days]": 10.4673, "tau[Subject]": 37.1238, "sigma": 30.9912},
    ),
    "InstEval, dept:service": Published(
        "InstEval", "y ~ 1 + (1 | s) + (1 | d) + (1 | dept:service)", ("s", "d", "dept:service"),
        None, (3.21, 3.33, 3.33),
        {INTERCEPT: 3.25525, "tau[s]": 0.324680, "tau[d]": 0.512474, "tau[dept:service]": 0.112027,
         "sigma": 1.176839},
    ),
    "InstEval, dept": Published(
        "InstEval", "y ~ 1 + (1 | s) + (1 | d) + (1 | dept)", ("s", "d", "dept"), None,
        (3.21, 3.33, 3.33),
        {INTERCEPT: 3.25187, "tau[s]": 0.3264559, "tau[d]": 0.5172739, "tau[dept]": 0.0819735,
         "sigma": 1.1777398},
    ),
}  # fmt: skip
"""The priors are the defaults of streammc, but for sleepstudy: rows are not standardised here."""
LARGE = {
    "InstEval, dept:service": (
        [3.25534, 0.324849, 0.513079, 0.118467, 1.176851],
        [0.02974, 0.006838, 0.012820, 0.021603, 0.003165],
    ),
    "InstEval, dept": (
        [3.25189, 0.326642, 0.518049, 0.091581, 1.177740],
        [0.03194, 0.006854, 0.012944, 0.031229, 0.003164],
    ),
}
"""Exact means and sds, in the order of ``reml``: ``bench/crossed_real.py``, 1,024 points, of which
880 and 873 effective, so that a mean is known to 0.03 sd."""


def published_table(name: str, folder: Path | None = None) -> Any:
    """Return the columns of a table; of some, from the folder of real data sets."""
    if name == "Penicillin":
        pairs = [each[i : i + 2] for each in DIAMETERS.split() for i in range(0, 12, 2)]
        plate, sample = np.repeat(np.arange(24), 6), np.tile(list("ABCDEF"), 24)
        return {"diameter": np.array(pairs, float), "plate": plate, "sample": sample}
    if name == "Pastes":
        batch, cask = np.repeat(list("ABCDEFGHIJ"), 6), np.tile(list("aabbcc"), 10)
        return {"strength": np.array(STRENGTHS.split(), float), "batch": batch, "cask": cask}
    import pyarrow.csv as csv

    assert folder is not None
    with gzip.open(folder / "grouped" / f"{name}.csv.gz") as file:
        table = csv.read_csv(file)
    return {column: table[column].to_numpy() for column in table.column_names}


def labels(table: Any, factor: str) -> Any:
    """Return the labels of the rows in a factor."""
    parts = [np.unique(table[name], return_inverse=True)[1] for name in factor.split(":")]
    return parts[0] if len(parts) == 1 else parts[0] * (parts[1].max() + 1) + parts[1]


def sampled(case: Published, table: Any, formula: str | None = None, **options: Any) -> Any:
    """Return a run, whose factors are all drawn."""
    import streammc
    from streammc.priors import half_student_t, normal

    mean, sd, scale = case.priors
    prior = {INTERCEPT: normal(mean, sd), "sigma": half_student_t(3.0, scale)}
    prior["tau*"] = half_student_t(3.0, scale)
    if case.column:
        prior["beta[*Days]"] = normal(0.0, sd)
    ways = {name: "crossed" for name in case.factors if ":" not in name}
    rows = streammc.from_table(
        table, formula=formula or case.formula, group_as=ways, standardize=False
    )
    return streammc.sample(rows, streammc.models.gaussian(prior=prior), chains=2, **options)


def exact(case: Published, table: Any, flat: bool = False) -> Exact:
    """Return the sums of the table for the exact posterior; ``flat``: that of a flat intercept."""
    mean, sd, _ = case.priors
    y = table[case.formula.split()[0]].astype(float)
    X = np.ones((len(y), 1)) if case.column is None else np.c_[np.ones(len(y)), table[case.column]]
    q = X.shape[1]
    precision = np.eye(q) * (0.0 if flat else sd**-2.0)
    at = np.r_[mean, np.zeros(q - 1)]
    return exact_of(X, y, [labels(table, each) for each in case.factors], at, precision)
