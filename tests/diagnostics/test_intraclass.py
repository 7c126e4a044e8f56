"""The intraclass correlation of runs of mixed models, against its closed form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from command_line import streammc as command
from mixed_runs import draws_near, make_run

import streammc
from streammc import from_arrays, models
from streammc.diagnostics import intraclass_correlation
from streammc.diagnostics.derived import derived
from streammc.diagnostics.summary import draws_and_labels
from streammc.errors import ConfigError
from streammc.likelihood.data_views import by_group

LATENT = {"logistic": math.pi**2 / 3, "binomial": math.pi**2 / 3, "probit": 1.0}


def table(terms=("1",), y=None):
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(60), rng.normal(size=60)]
    y = rng.integers(0, 2, 60) if y is None else y
    labels = np.arange(60) // 6
    return from_arrays(X, y, groups=labels, terms=terms, feature_names=["Intercept", "x"])


def run_of(path, model, data):
    """A run with random draws, and these draws of theta (chain, draw, d)."""
    dim = by_group(data, model)[1].dim(2)
    theta = draws_near(np.zeros(dim), 0.5, (2, 50))
    return streammc.open_run(make_run(path, model, data, theta)), theta


@pytest.mark.parametrize("name", ["logistic", "binomial", "probit", "gaussian"])
def test_intraclass_correlation_is_its_closed_form(tmp_path, name):
    tree, theta = run_of(tmp_path / "r", getattr(models, name)(), table())
    rest = np.exp(2 * theta[..., 2]) if name == "gaussian" else LATENT[name]
    square = np.exp(2 * theta[..., -1])
    found = intraclass_correlation(tree)
    assert found.dims == ("chain", "draw")
    assert found.name == "icc"
    assert np.allclose(found, square / (square + rest), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "terms"), [("poisson", ("1",)), ("student_t", ("1",)), ("logistic", ("1", "x"))]
)
def test_without_a_standard_definition_there_is_none(tmp_path, name, terms):
    tree, _ = run_of(tmp_path / "r", getattr(models, name)(), table(terms))
    with pytest.raises(ConfigError, match=r"a run of a random intercept .* report tau"):
        intraclass_correlation(tree)
    described = json.loads(tree.attrs["streammc"])["identity"]["model"]
    assert derived(*draws_and_labels(tree), described)[1] == []


def test_what_is_no_run_of_a_mixed_model_is_refused():
    with pytest.raises(ConfigError, match="a tree with a group 'posterior', found dict"):
        intraclass_correlation({})


def test_summary_report_and_tree_have_it(tmp_path):
    rng = np.random.default_rng(2)
    y = rng.normal(size=10)[np.arange(60) // 6] + 0.5 * rng.normal(size=60)
    tree = streammc.sample(
        table(y=y), models.gaussian(), draws=50, warmup=50, chains=2, seed=1, path=tmp_path / "r",
        audit=False, sampler=streammc.samplers.hmc(),
    )  # fmt: skip
    icc = intraclass_correlation(tree)
    kept = tree["posterior_derived"]["icc"].sel(icc_dim="group", drop=True)
    assert np.array_equal(kept, icc)
    said = json.loads(tree.attrs["summary"])["derived"]
    assert said["icc[group]"]["mean"] == pytest.approx(float(icc.mean()))
    assert said["icc[group]"]["q95"] == pytest.approx(float(np.quantile(icc, 0.95)))
    tau, sigma = tree["posterior"]["tau"].values[..., 0], tree["posterior"]["sigma"].values
    assert np.allclose(icc, tau**2 / (tau**2 + sigma**2), rtol=1e-12)
    text = command("diagnose", tmp_path / "r").out
    assert "from the parameters:" in text
    assert "\nicc[group] " in text
    import arviz_stats

    assert arviz_stats.summary(tree, group="posterior_derived").index.tolist() == ["icc[group]"]
