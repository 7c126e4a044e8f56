"""Ordinal and multinomial regression of many rows, and NumPyro's NUTS on fewer.

Run as ``python bench/families.py FOLDER [--rows 1e7] [--peer PYTHON] [--write]``: a Parquet file of
ten columns and a response of five ordered categories, and one of four classes, is ingested and
sampled by ``streammc.sample`` at automatic settings; then 1e5 of its rows are, and by NumPyro's
NUTS with ``--peer``, the Python of an environment with ``requirements.txt``. Means of both are
compared. FOLDER takes 1.5 GB for 1e7 rows. ``--write`` puts the figures into
``docs/measurements/families.md``.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np

COLUMNS: Final = 10
BLOCK: Final = 500_000
CUTS: Final = np.array([-2.0, -0.5, 0.5, 1.5])
CLASSES: Final = 4
FORMULA: Final = "y ~ " + " + ".join(f"x{j}" for j in range(COLUMNS))
FEW: Final = 100_000


def responses(name: str, X: Any, rng: np.random.Generator) -> Any:
    """Return the categories (m,) of rows (m, 10)."""
    m = len(X)
    slopes = np.random.default_rng(5).normal(0.0, 0.3, (CLASSES - 1, COLUMNS))
    if name == "ordinal":
        latent = X @ slopes[0] + rng.logistic(size=m)
        return (latent[:, None] > CUTS).sum(axis=1).astype(np.int8)
    eta = np.c_[np.zeros(m), X @ slopes.T + np.array([0.5, 0.0, -1.0])]
    return (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(np.int8)


def write_table(path: Path, name: str, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(6)
    writer = None
    for start in range(0, rows, BLOCK):
        X = rng.standard_normal((min(BLOCK, rows - start), COLUMNS), dtype=np.float32)
        columns = {f"x{j}": X[:, j] for j in range(COLUMNS)} | {"y": responses(name, X, rng)}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def child(job: dict[str, Any]) -> dict[str, Any]:
    """Run one part in a process of its own, whose memory is its own."""
    done = subprocess.run(
        [job["python"], __file__, "--job", json.dumps(job)], check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def part(job: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one part."""
    if job["part"] == "numpyro":
        return numpyro_draws(job)
    import streammc
    from streammc import models
    from streammc.errors import SamplingWarning
    from streammc.priors import normal

    began = time.perf_counter()
    if job["part"] == "ingest":
        streammc.ingest(job["table"], job["store"], formula=FORMULA, overwrite=True)
        return {"seconds": time.perf_counter() - began}
    build = getattr(models, job["model"])
    levels = len(CUTS) + 1 if job["model"] == "ordinal" else CLASSES
    model = build(prior={"beta*": normal(10.0)}, levels=levels)
    data = streammc.open_store(job["store"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        run = streammc.sample(data, model, seed=1)
    seconds = time.perf_counter() - began
    summary = streammc.diagnostics.summarize(run)
    beta = run["posterior"]["beta"].values
    return {
        "seconds": seconds,
        "sampler": json.loads(run.attrs["sampler"])["name"],
        "ess": min(float(each["ess_bulk"]) for each in summary.values()),
        "verdict": str(run.attrs["verdict"]),
        "mean": beta.reshape(-1, *beta.shape[2:]).mean(axis=0).ravel().tolist(),
        "sd": beta.reshape(-1, *beta.shape[2:]).std(axis=0).ravel().tolist(),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def numpyro_draws(job: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of NUTS on the rows of an npz file."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    began = time.perf_counter()
    with np.load(job["rows"]) as file:
        X, y = jnp.asarray(file["X"]), jnp.asarray(file["y"])
    q, k = X.shape[1], int(y.max())

    def ordinal() -> None:
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(q - 1), 10.0).to_event(1))
        spread = dist.Normal(jnp.zeros(k), 10.0).to_event(1)
        ordered = dist.transforms.OrderedTransform()
        cuts = numpyro.sample("cuts", dist.TransformedDistribution(spread, ordered))
        numpyro.sample("y", dist.OrderedLogistic(X[:, 1:] @ beta, cuts), obs=y)

    def multinomial() -> None:
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros((k, q)), 10.0).to_event(2))
        logits = jnp.concatenate([jnp.zeros((len(y), 1)), X @ beta.T], axis=1)
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)

    model = ordinal if job["model"] == "ordinal" else multinomial
    sampler = MCMC(
        NUTS(model, dense_mass=True), num_warmup=500, num_samples=500, progress_bar=False
    )
    sampler.run(jax.random.PRNGKey(1))
    draws = sampler.get_samples(group_by_chain=True)
    entries = summary(draws).values()
    beta = np.asarray(draws["beta"])[0]
    return {
        "seconds": time.perf_counter() - began,
        "ess": float(min(np.min(each["n_eff"]) for each in entries)),
        "mean": beta.mean(axis=0).ravel().tolist(),
        "sd": beta.std(axis=0).ravel().tolist(),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def agreement(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return the largest |z| between the means of both, by their Monte Carlo errors."""
    mean, sd = np.array(ours["mean"]), np.array(ours["sd"])
    if name == "ordinal":  # NumPyro has cut points in place of the intercept
        mean, sd = mean[1:], sd[1:]
    error = sd * np.sqrt(1.0 / ours["ess"] + 1.0 / theirs["ess"])
    return float(np.max(np.abs(mean - np.array(theirs["mean"])) / error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--peer")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--job", type=json.loads)
    asked = parser.parse_args()
    if asked.job:
        print(json.dumps(part(asked.job)))
        return
    import pyarrow.parquet as pq
    from page import machine, publish

    lines = [
        f"{machine()}.", "",
        "| family | rows | | ingest, s | to the posterior, s | effective draws | a second | MB |"
        " means, z |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    work = asked.folder / "families"
    work.mkdir(parents=True, exist_ok=True)
    for name in ("ordinal", "multinomial"):
        found = {}
        for rows in (int(asked.rows), FEW):
            table, store = work / f"{name}.parquet", work / f"{name}.zarr"
            write_table(table, name, rows)
            job = {"python": sys.executable, "model": name, "table": str(table),
                   "store": str(store)}  # fmt: skip
            ingest = child(job | {"part": "ingest"})
            found[rows] = child(job | {"part": "sample"})
            lines.append(line(name, rows, found[rows]["sampler"], found[rows], ingest["seconds"]))
            print(lines[-1], found[rows]["verdict"], sep="\n", flush=True)
        if asked.peer:
            read = pq.read_table(table).to_pydict()
            X = np.column_stack([np.asarray(read[f"x{j}"], np.float64) for j in range(COLUMNS)])
            path = work / "rows.npz"
            np.savez(path, X=np.c_[np.ones(len(X)), X], y=np.asarray(read["y"], np.int64))
            job = {"python": asked.peer, "model": name, "rows": str(path), "part": "numpyro"}
            theirs = child(job)
            z = agreement(name, found[FEW], theirs)
            lines.append(line(name, FEW, "NumPyro, NUTS", theirs, None, z))
            print(lines[-1], flush=True)
    shutil.rmtree(work)
    if asked.write:
        publish("families.md", "families-speed", lines)


def line(
    name: str,
    rows: int,
    what: str,
    one: dict[str, Any],
    ingest: float | None,
    z: float | None = None,
) -> str:
    from page import short

    shown = [
        name,
        f"{rows:,}",
        what,
        "" if ingest is None else short(ingest),
        short(one["seconds"]),
        f"{one['ess']:,.0f}",
        short(one["ess"] / one["seconds"]),
        f"{one['memory']:,.0f}",
        "" if z is None else f"{z:.1f}",
    ]
    return f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
