"""A store of HIGGS's size and shape, or of HIGGS itself.

The 28 covariates have the marginals of the 10,984 rows that streammc ships, standardised, and
their rank correlations, through a Gaussian copula; the response is logistic with theta from a
fit to those rows. Row ``i`` depends on the seed and ``i`` alone.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

import streammc
from streammc import demo_data
from streammc.stores.format.writer import StoreWriter

ROWS, TEST_ROWS = 10_500_000, 500_000
CHUNK = 65_536
PRIOR_SD = 10.0


def model() -> Any:
    """Return the logistic regression with its prior."""
    return streammc.models.logistic(prior=streammc.priors.normal(scale=PRIOR_SD))


class Copula:
    """The marginals of a table and the correlations of its normal scores."""

    def __init__(self, table: NDArray[np.float64]) -> None:
        n, d = table.shape
        centred = (table - table.mean(axis=0)) / table.std(axis=0)
        scores = ndtri((rankdata(centred, axis=0) - 0.5) / n)
        self.sorted = np.sort(centred, axis=0)
        self.grid = (np.arange(n) + 0.5) / n
        self.factor = np.linalg.cholesky(np.corrcoef(scores.T) + 1e-9 * np.eye(d))

    def draw(self, rng: np.random.Generator, rows: int) -> NDArray[np.float32]:
        """Return (rows, 1 + d): an intercept and the covariates."""
        normal = rng.standard_normal((rows, len(self.factor))) @ self.factor.T
        X = np.ones((rows, 1 + len(self.factor)), np.float32)
        for column in range(len(self.factor)):
            uniform = ndtr(normal[:, column])
            X[:, 1 + column] = np.interp(uniform, self.grid, self.sorted[:, column])
        return X


def shipped() -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Return the names, the covariates and the response of the rows that are shipped."""
    table = pd.read_csv(demo_data.path())
    y = table.pop(demo_data.RESPONSE).to_numpy(np.float64)
    return list(table.columns), table.to_numpy(np.float64), y


def fitted(table: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the posterior mode of the standardised rows."""
    X = np.c_[np.ones(len(y)), (table - table.mean(axis=0)) / table.std(axis=0)]
    cv = streammc.control_variates(streammc.from_arrays(X, y), model())
    return cv.theta_star


def simulated(folder: Path, rows: int, test_rows: int) -> tuple[Path, Path]:
    """Write the training and the test store that are missing; return their paths."""
    names, table, y = shipped()
    copula, theta = Copula(table), fitted(table, y)
    paths = []
    for number, (name, count) in enumerate((("train", rows), ("test", test_rows))):
        path = folder / f"higgs-{name}-{count}.zarr"
        paths.append(path)
        if path.exists():
            continue

        def chunk(index: int, number: int = number, count: int = count) -> Any:
            rng = np.random.default_rng([20190, number, index])
            X = copula.draw(rng, min(CHUNK, count - index * CHUNK))
            chance = 1.0 / (1.0 + np.exp(-(X.astype(np.float64) @ theta)))
            return X, rng.random(len(X)) < chance

        columns = ["intercept", *names]
        options: dict[str, Any] = {"features": columns, "y_dtype": "uint8", "n_rows": count}
        with StoreWriter(path, **options) as writer, ThreadPoolExecutor(2) as pool:
            chunks = -(-count // CHUNK)
            for low in range(0, chunks, 8):  # a few ahead, in order
                for X, response in pool.map(chunk, range(low, min(low + 8, chunks))):
                    writer.append(X, response)
            writer.commit({"response": "signal", "intercept": True, "truth": json.dumps([*theta])})
    return paths[0], paths[1]


def real(folder: Path, source: Path, test_rows: int) -> tuple[Path, Path]:
    """Write the stores of a HIGGS.csv or HIGGS.csv.gz: its last rows are for testing."""
    paths = folder / "higgs-file-train.zarr", folder / "higgs-file-test.zarr"
    if all(path.exists() for path in paths):
        return paths
    names = shipped()[0]
    read: dict[str, Any] = {"header": None, "names": ["signal", *names], "chunksize": 250_000}
    count, total, square = 0, np.zeros(len(names)), np.zeros(len(names))
    for part in pd.read_csv(source, **read):
        values = part[names].to_numpy(np.float64)
        count, total = count + len(values), total + values.sum(axis=0)
        square += (values**2).sum(axis=0)
    if count <= test_rows:
        raise SystemExit(f"expected more than {test_rows} rows in {source}, found {count}")
    mean = total / count
    sd = np.sqrt(square / count - mean**2)
    columns, limit, done = ["intercept", *names], count - test_rows, 0
    attributes = {"response": "signal", "intercept": True, "sources": [source.name]}
    with (
        StoreWriter(paths[0], features=columns, y_dtype="uint8", n_rows=limit) as train,
        StoreWriter(paths[1], features=columns, y_dtype="uint8", n_rows=test_rows) as test,
    ):
        for part in pd.read_csv(source, **read):
            values = (part[names].to_numpy(np.float64) - mean) / sd
            X, y = np.c_[np.ones(len(part)), values], part["signal"].to_numpy(np.float64)
            cut = min(max(limit - done, 0), len(X))
            for writer, piece in ((train, slice(0, cut)), (test, slice(cut, None))):
                if len(X[piece]):
                    writer.append(X[piece], y[piece])
            done += len(X)
        train.commit(attributes)
        test.commit(attributes)
    return paths
