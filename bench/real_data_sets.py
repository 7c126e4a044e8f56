"""The real data sets as designs: features, response and offset.

Columns are standardised with an intercept in front, as ``ingest`` does by default; those
of a9a and covtype93k stay as the files have them (0/1, or scaled to [0, 1]).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import streammc
from streammc.likelihood.blocks import allocate_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """What a regression needs; ``model`` names the likelihood, ``options`` are its own."""

    model: str
    X: Array
    y: Array
    offset: Array | None = None
    options: dict[str, Any] = field(default_factory=dict)


def with_intercept(X: Array, standardize: bool = True) -> Array:
    """Put a column of ones before ``X``, standardised or as it is."""
    if standardize:
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.column_stack([np.ones(len(X)), X])


def _table(path: Path) -> dict[str, list[str]]:
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.reader(file))
    return {name: [row[j] for row in rows[1:]] for j, name in enumerate(rows[0])}


def flights(folder: Path) -> Design:
    """Late by more than 15 minutes, by distance, time of day and its square."""
    with np.load(folder / "flights200k" / "data.npz") as file:
        time = file["time"].astype(float)
        X = np.column_stack([file["distance"].astype(float), time, time**2])
        return Design("logistic", with_intercept(X), (file["delay"] > 15).astype(float))


def bike(folder: Path) -> Design:
    """Bicycles hired in an hour, by two harmonics of the hour, weather and calendar."""
    table = _table(folder / "bike_hour" / "bike_sharing_demand.csv.gz")
    angle = np.array(table["hour"], float) * 2 * np.pi / 24
    names = ("temp", "humidity", "windspeed", "workingday", "year", "weather")
    waves = [wave(k * angle) for k in (1, 2) for wave in (np.cos, np.sin)]
    X = np.column_stack([*waves, *(np.array(table[name], float) for name in names)])
    return Design("poisson", with_intercept(X), np.array(table["count"], float))


def htru2(folder: Path) -> Design:
    """Pulsar or noise, by eight statistics of the profile."""
    with np.load(folder / "htru2" / "data.npz") as file:
        return Design("logistic", with_intercept(file["X"]), file["y"].astype(float))


def norauto(folder: Path) -> Design:
    """Claims of a policy, exposure as offset, by sex, age, distance limit and region."""
    table = _table(folder / "norauto" / "norauto.csv.gz")
    columns = []
    for name in ("Male", "Young", "DistLimit", "GeoRegion"):
        values = np.array(table[name])
        columns += [(values == level).astype(float) for level in np.unique(values)[1:]]
    offset = np.log(np.array(table["Expo"], float))
    X = with_intercept(np.column_stack(columns))
    return Design("poisson", X, np.array(table["NbClaim"], float), offset)


def a9a(folder: Path) -> Design:
    """Income above 50,000 dollars, by 123 indicators; training and test rows."""
    with np.load(folder / "a9a" / "data.npz") as file:
        parts = []
        for name in ("train", "test"):
            pointer = file[f"{name}_indptr"]
            part = np.zeros((len(pointer) - 1, 123))
            part[np.repeat(np.arange(len(part)), np.diff(pointer)), file[f"{name}_indices"]] = 1.0
            parts.append(part)
        y = np.concatenate([file["y_train"], file["y_test"]]).astype(float)
    return Design("logistic", with_intercept(np.concatenate(parts), False), y)


def covtype(folder: Path, standardize: bool = False) -> Design:
    """Cover type 2 against the rest, by all 54 columns: near separation."""
    with np.load(folder / "covtype93k" / "data.npz") as file:
        binary = np.unpackbits(file["binary"], axis=1)[:, : len(file["binary_names"])]
        X = np.column_stack([file["numeric"] * float(file["numeric_scale"]), binary])
        y = (file["cover_type"] == 2).astype(float)
    return Design("logistic", with_intercept(X, standardize), y)


def covtype_standardized(folder: Path) -> Design:
    """Return covtype with every column standardised: the prior is weaker, the tail longer."""
    return covtype(folder, standardize=True)


def mnist(folder: Path) -> Design:
    """One against seven, by 784 pixels in [0, 1]."""
    with np.load(folder / "mnist_1v7.npz") as file:
        X = file["X_train"].reshape(len(file["X_train"]), -1).astype(float)
        labels = file["y_train"]
    return Design(
        "logistic", with_intercept(X / X.max(), False), (labels == labels.max()).astype(float)
    )


def _by_formula(formula: str, columns: dict[str, Any], model: str) -> Design:
    """Return the design that a formula makes of a table, encoded as ``ingest`` does."""
    store = streammc.from_table(pa.table(columns), formula=formula, shuffle=False, dtype="float64")
    rows = allocate_rows(store.n_rows, store.n_features)
    store.rows().gather(np.arange(store.n_rows), 1, rows)
    return Design(model, rows.X, rows.y)


def flights_delay(folder: Path) -> Design:
    """Minutes of delay, by distance, time of day and its square."""
    with np.load(folder / "flights200k" / "data.npz") as file:
        return replace(flights(folder), model="gaussian", y=file["delay"].astype(float))


def flights_df_fixed(folder: Path) -> Design:
    """Return the delays for Student-t regression with 4 degrees of freedom."""
    return replace(flights_delay(folder), model="student_t", options={"df": 4.0})


def flights_df_sampled(folder: Path) -> Design:
    """Return the delays for Student-t regression, the degrees of freedom sampled."""
    return replace(flights_delay(folder), model="student_t")


def diamonds(folder: Path) -> Design:
    """Log price of a diamond, by factors and splines."""
    table = _table(folder / "diamonds" / "diamonds.csv.gz")
    names = ("carat", "depth", "table", "price")
    columns: dict[str, Any] = {name: np.array(table[name], float) for name in names}
    columns |= {name: table[name] for name in ("cut", "color", "clarity")}
    formula = "log(price) ~ bs(log(carat), df=6) + C(cut) + C(color) + C(clarity) + bs(depth, df=4)"
    return _by_formula(formula, columns, "gaussian")


def fretpl(folder: Path) -> Design:
    """Claims of a motor policy, by a spline of the driver's age."""
    with np.load(folder / "fretpl_claimnumber" / "data.npz") as file:
        claims, age = file["claim_number"].astype(int), file["driver_age"].astype(float)
    return _by_formula("claims ~ bs(age, df=6)", {"claims": claims, "age": age}, "poisson")


def bike_overdispersed(folder: Path) -> Design:
    """Bicycles hired in an hour, overdispersed."""
    return replace(bike(folder), model="negative_binomial")


REAL_DATA: dict[str, Callable[[Path], Design]] = {
    "flights200k": flights,
    "bike_hour": bike,
    "htru2": htru2,
    "norauto": norauto,
    "a9a": a9a,
    "covtype93k": covtype,
    "covtype93k, standardised": covtype_standardized,
    "mnist_1v7": mnist,
    "flights200k, gaussian": flights_delay,
    "flights200k, student-t, 4 df": flights_df_fixed,
    "flights200k, student-t": flights_df_sampled,
    "diamonds": diamonds,
    "fretpl_claimnumber": fretpl,
    "bike_hour, negative binomial": bike_overdispersed,
}
