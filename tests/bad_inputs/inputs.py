"""Small inputs that the cases share, made once in the current folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from bad_inputs.broken import break_copies
from bad_inputs.jobs import write_jobs
from bad_inputs.tables import OWN_MODEL, write_tables

MODEL_FILES: Final = {
    "empty": "",
    "large": "#" * 1_000_000,
    "code": "log_density = \"__import__('os').system('true')\"",
    "unknown": 'log_density = "y * eta - exp(eta)"\ncolour = "red"',
    "list": "log_density = ['eta']",
    "number": 'log_density = "eta - 1e200**2 * y"',
    "steps": 'log_density = "floor(eta)"',
    "nan": 'log_density = "log(y - 100) - eta**2"',
    "constant": 'log_density = "0"',
    "growing": 'log_density = "eta"',
    "mean": 'log_density = "y * eta - exp(eta)"\nmean = "y"',
}
"""Texts of files that state models."""
ROWS: Final = 400
FEW: Final = "--draws 20 --warmup 20 --chains 2 --seed 1 --quiet"


def command(line: str) -> None:
    """Run one command, which must succeed."""
    import io
    import shlex
    from contextlib import redirect_stderr, redirect_stdout

    from streammc.cli import main

    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        code = main(shlex.split(line))
    if code:
        raise RuntimeError(f"streammc {line}: {err.getvalue()}")


def make_inputs() -> None:
    """Make tables, stores, runs, control variates and predictions, whole and broken."""
    write_tables(ROWS)
    write_jobs()
    Path("own.py").write_text(OWN_MODEL)
    Path("faulty.py").write_text("1 / 0\n")
    for name, text in MODEL_FILES.items():
        Path(f"model-{name}.toml").write_text(text)
    columns = "--response late --features distance,hour"
    command(f"ingest flights.csv flights.zarr {columns} --quiet")
    command(f"ingest flights.csv raw.zarr {columns} --no-standardize --quiet")
    command("ingest flights.csv other.zarr --response late --features hour --quiet")
    command("ingest flights.csv plain.zarr --features distance,hour --quiet")
    command("ingest flights.csv formula.zarr --formula 'late ~ distance + C(carrier)' --quiet")
    coded = "--formula 'late ~ distance + C(carrier)' --codes-above 0"
    command(f"ingest flights.csv coded.zarr {coded} --quiet")
    command("ingest flights.csv counts.zarr --response delays --features distance --quiet")
    command("ingest flights.csv column.zarr --features distance --no-intercept --quiet")
    command(
        "ingest flights.csv weighted.zarr --response late --features distance --weight delays "
        "--no-intercept --quiet"
    )
    command("ingest flights.csv groups.zarr --formula 'late ~ hour + (1 | carrier)' --quiet")
    command("simulate logistic big.zarr --rows 20000 --dim 2 --seed 1 --quiet")
    command("simulate gaussian-process gp.zarr --rows 60 --dim 1 --seed 1 --quiet")
    command(f"sample flights.zarr -o run --model logistic --sampler hmc {FEW}")
    command(f"sample flights.zarr -o warm --model logistic --sampler hmc --temperature 2 {FEW}")
    command(f"sample other.zarr -o other-run --model logistic --sampler hmc {FEW}")
    command("summarize flights.zarr --model logistic -o cv.zarr --quiet")
    command("predict run flights.zarr -o predictions.zarr --quiet")
    command(f"ingest flights.csv offset.zarr {columns} --offset delays --quiet")
    command(f"ingest labels.csv labels.zarr {columns} --quiet")
    for table, name in (("flights.csv", "spline.zarr"), ("half.csv", "other-spline.zarr")):
        command(f"ingest {table} {name} --formula 'late ~ bs(hour, df=4)' --quiet")
    command(f"sample spline.zarr -o spline-run --model logistic --sampler hmc {FEW}")
    command(f"sample column.zarr -o mean-run --model gaussian-mean --sampler hmc {FEW}")
    command("ingest flights.csv groups.zarr --formula 'late ~ hour + (1 | carrier)' --quiet")
    for name, more in (("run", ""), ("warm", "--temperature 2")):
        command(f"sample groups.zarr -o groups-{name} --model logistic --sampler hmc {more} {FEW}")
    command(
        f"sample flights.zarr -o mh-run --model logistic --sampler mh --option control_variate=none --option covariance=identity {FEW}"
    )
    shutil.copytree("flights.zarr", "gone.zarr")
    command(f"sample gone.zarr -o gone-run --model logistic --sampler hmc {FEW}")
    shutil.rmtree("gone.zarr")
    make_runs()
    break_copies()


def make_runs() -> None:
    """Make a run that stopped in its warm-up, and one on arrays in memory."""
    from streammc import from_arrays, models, open_store, samplers
    from streammc.runs.job import run_job
    from streammc.samplers.common.sampler import RunRequest

    commits: list[str] = []
    run_job(RunRequest(
        open_store("big.zarr"), models.logistic(), samplers.hmc_ecs(), draws=500, warmup=500,
        chains=1, seed=1, path="warming", audit=False,
        progress=lambda phase, *_: commits.append(phase), interrupted=lambda: "warmup" in commits,
    ))  # fmt: skip
    rng = np.random.default_rng(2)
    data = from_arrays(rng.normal(size=(20_000, 2)), rng.integers(0, 2, 20_000))
    run_job(RunRequest(
        data, models.logistic(), samplers.hmc_ecs(), draws=20, warmup=20, chains=2, seed=1,
        path="memory-run", audit=False,
    ))  # fmt: skip


def _groups(*terms: str) -> Any:
    """Return groups with these terms, as far as a model needs them."""
    return SimpleNamespace(column="carrier", terms=terms, correlated=True)


def names() -> dict[str, Any]:
    """Return what Python cases find at hand."""
    import dask.array
    import pandas
    import pyarrow
    import xarray

    import streammc
    from streammc import models, priors, samplers
    from streammc.models.mixed.mixed_model import mixed

    frame = pandas.read_csv("flights.csv")
    X = frame[["distance", "hour"]].to_numpy(np.float64)
    y = frame["late"].to_numpy(np.float64)
    dataset = xarray.Dataset({"X": (("row", "feature"), X), "y": ("row", y)})
    return {
        "streammc": streammc, "models": models, "priors": priors, "samplers": samplers,
        "np": np, "da": dask.array, "pa": pyarrow, "pd": pandas, "xr": xarray,
        "frame": frame, "X": X, "y": y, "dataset": dataset, "shutil": shutil,
        "store": streammc.open_store("flights.zarr"), "grouped": streammc.open_store("groups.zarr"),
        "data": streammc.from_arrays(X, y),
        "logistic": models.logistic(), "mixed": mixed, "groups": _groups,
    }  # fmt: skip
