"""Runs of times that are censored, against an exact posterior and a maximum of the likelihood."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from command_line import streammc as command
from scipy import optimize, special, stats

import streammc
from streammc import models
from streammc.errors import ModelError
from streammc.priors import normal
from streammc.runs.record import registered_model
from streammc.trace.run_directory import RunDirectory

SIZES: Any = {"draws": 1500, "warmup": 300, "chains": 2, "seed": 1}


def table(n: int = 3000, seed: int = 0) -> dict[str, Any]:
    """Times with shape 1.5 and half of them censored, later for large x."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    time = rng.weibull(1.5, n) * np.exp(1.0 + 0.5 * x)
    end = rng.uniform(0.0, 6.0, n)
    return {"t": np.minimum(time, end), "c": (time > end).astype(int), "x": x}


def error(draws: Any, exact: float) -> float:
    """Return the difference of a mean of draws (chains, m) from ``exact`` in standard errors."""
    batches = draws.reshape(-1, 30).mean(axis=1)
    return float(abs(batches.mean() - exact) / (batches.std(ddof=1) / math.sqrt(len(batches))))


@pytest.mark.parametrize("sampler", ["hmc", "smh"])
def test_rate_of_censored_times_has_its_gamma_posterior(sampler: str) -> None:
    """With d events in time T and a flat prior of log rate, the rate is Gamma(d, T)."""
    data = table(400)
    prior = {"beta[Intercept]": normal(0.0, 1e4)}
    tree = streammc.fit(
        data, "t ~ 1", "exponential", censored="c", prior=prior, sampler=sampler, **SIZES
    )
    log_rate = -tree["posterior"]["beta"].values[..., 0]
    total, d = data["t"].sum(), int((data["c"] == 0).sum())

    def exact(events: int) -> float:
        return float(special.digamma(events)) - math.log(total)

    assert error(log_rate, exact(d)) < 4.5
    assert error((log_rate - exact(d)) ** 2, float(special.polygamma(1, d))) < 4.5
    assert error(log_rate, exact(len(data["t"]))) > 50.0  # censored times taken for events


def largest_likelihood(data: dict[str, Any], family: str, censored: bool = True) -> Any:
    """Return the parameters of largest likelihood, by SciPy, and their standard errors."""
    time, x = np.log(data["t"]), data["x"]
    c = data["c"] if censored else np.zeros(len(x), int)
    kernel = stats.gumbel_l if family == "weibull" else stats.norm

    def loss(at: Any) -> float:
        scale = math.exp(at[2])
        z = (time - at[0] - at[1] * x) / scale
        return -float(np.where(c == 1, kernel.logsf(z), kernel.logpdf(z) - at[2]).sum())

    found = optimize.minimize(loss, [1.0, 0.0, 0.0], method="BFGS")
    at, sd = found.x, np.sqrt(np.diag(found.hess_inv))
    scale = math.exp(-at[2] if family == "weibull" else at[2])
    return np.array([*at[:2], scale]), np.array([*sd[:2], sd[2] * scale])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    """Folder with t.csv and a run of it of each family."""
    path = tmp_path_factory.mktemp("censored")
    data = table()
    pa.csv.write_csv(pa.table(data), path / "t.csv")
    for family in ("weibull", "lognormal"):
        streammc.fit(
            path / "t.csv", "t ~ x", family, censored="c", path=path / family, sampler="hmc",
            dtype="float64", **SIZES,
        )  # fmt: skip
    return path


@pytest.mark.parametrize("family", ["weibull", "lognormal"])
def test_posterior_is_where_the_likelihood_is_largest(folder: Any, family: str) -> None:
    posterior = streammc.open_run(folder / family)["posterior"]
    shared = "shape" if family == "weibull" else "sigma"
    found = np.array(
        [*posterior["beta"].mean(("chain", "draw")).values, float(posterior[shared].mean())]
    )
    at, sd = largest_likelihood(table(), family)
    assert np.abs((found - at) / sd).max() < 0.15
    wrong, _ = largest_likelihood(table(), family, censored=False)
    assert np.abs((found - wrong) / sd).max() > 10.0


def test_a_run_says_that_its_times_are_censored(folder: Any) -> None:
    run = RunDirectory.open(folder / "weibull")
    assert run.identity["model"]["censored"] is True
    assert run.attributes["design"]["censored"] == "c"
    assert registered_model(run.identity["model"]).censored


def test_scores_are_of_survival_where_times_are_censored(folder: Any) -> None:
    data = table()
    predicted = streammc.predict(folder / "weibull", folder / "t.csv", folder / "p.zarr")
    at, _ = largest_likelihood(data, "weibull")
    z = at[2] * (np.log(data["t"]) - at[0] - at[1] * data["x"])
    event = np.log(at[2]) - np.log(data["t"]) + z - np.exp(z)
    plain = np.where(data["c"] == 1, -np.exp(z), event).mean()
    assert predicted.attrs["log_score"] == pytest.approx(plain, abs=2e-3)
    assert abs(event.mean() - plain) > 0.1
    score = streammc.score(folder / "weibull", folder / "t.csv")
    assert score["elpd_loo"]["estimate"] / 3000 == pytest.approx(plain, abs=2e-3)
    by = streammc.predict(folder / "weibull", folder / "t.csv", folder / "by.zarr", by="x")
    assert json.loads(by.attrs["by"])["groups"] > 2
    assert "group_mean" in by
    assert "group_realised" not in by
    mean = streammc.predict(folder / "weibull", {"x": data["x"][:5]})
    expected = np.exp(at[0] + at[1] * data["x"][:5]) * math.gamma(1.0 + 1.0 / at[2])
    np.testing.assert_allclose(np.asarray(mean["mean"]), expected, rtol=0.05)


def test_replicated_times_are_refused_beside_censored_ones(folder: Any) -> None:
    with pytest.raises(ModelError, match="found some that are censored by 'c'"):
        streammc.posterior_predictive(folder / "weibull", folder / "t.csv")
    new = streammc.posterior_predictive(folder / "weibull", {"x": np.zeros(20)}, draws=50)
    assert (new["predictions"]["y"].values > 0.0).all()


@pytest.mark.parametrize("family", ["gamma", "poisson"])
def test_another_family_is_refused_in_one_line(family: str) -> None:
    rows = streammc.from_table(table(50), formula="t ~ x", censored="c")
    message = f"{family}: expected a family of times for those that are censored by 'c'"
    with pytest.raises(ModelError, match=message):
        streammc.sample(rows, getattr(models, family)(), draws=2, warmup=2)


def test_a_time_below_zero_stays_a_fault_of_times_without_censoring() -> None:
    data = table(50)
    rows = streammc.from_table({**data, "t": data["t"] * (1 - 2 * data["c"])}, formula="t ~ x")
    with pytest.raises(ModelError, match="weibull: expected finite numbers above 0"):
        streammc.sample(rows, models.weibull(), draws=2, warmup=2)


def test_a_job_fits_and_goes_on_with_censored_times(folder: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    job = """[source]
files = ["t.csv"]
[ingest]
formula = "t ~ x"
censored = "c"
[model]
name = "weibull"
[sampler]
draws = 40
warmup = 60
chains = 2
seed = 1
[outputs]
store = "job.zarr"
run = "run"
predictions = "predictions.zarr"
summary = "summary.json"
"""
    (folder / "job.toml").write_text(job)
    assert command("run", "job.toml").code == 0
    (folder / "job.toml").write_text(job.replace("draws = 40", "draws = 50"))
    assert command("run", "job.toml").code == 0
    assert json.loads((folder / "summary.json").read_text())
    opened = RunDirectory.open(folder / "run")
    assert (opened.committed_draws, opened.identity["model"]["censored"]) == (50, True)


def test_all_times_censored_end_with_one_line(folder: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    pa.csv.write_csv(pa.table({**table(60), "c": np.ones(60, int)}), "all.csv")
    words = ("fit", "all.csv", "-o", "none", "--formula", "t ~ x", "--model", "weibull")
    done = command(*words, "--censored", "c")
    assert done.code == 65
    assert "with all times censored there is no event" in done.err
    assert not (folder / "none").exists()
