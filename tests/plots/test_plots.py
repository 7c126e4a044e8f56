"""Plots of what only streammc records, and those of ArviZ on a run as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

import streammc  # noqa: E402
from streammc import models, plots, samplers  # noqa: E402
from streammc.errors import ConfigError  # noqa: E402
from streammc.plots.prediction_plots import what_is_predicted  # noqa: E402

WORDS: dict[str, Any] = {"draws": 60, "warmup": 60, "chains": 2, "seed": 1}


@pytest.fixture(autouse=True)
def closed_figures():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def store() -> Any:
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(2000), rng.normal(size=2000)]
    y = (rng.random(2000) < 1 / (1 + np.exp(-X[:, 1]))).astype(np.uint8)
    return streammc.from_arrays(X, y, feature_names=["Intercept", "x"])


@pytest.fixture(scope="module")
def run(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("run") / "run"
    sampler = samplers.hmc_ecs(subsample_size=30)
    return streammc.sample(
        store, models.logistic(), sampler=sampler, audit=True, path=path, **WORDS
    )


@pytest.fixture(scope="module")
def tempered(store: Any) -> Any:
    words = {**WORDS, "draws": 10, "warmup": 20}
    return streammc.sample(store, models.logistic(), sampler=samplers.pt(n_levels=4), **words)


@pytest.fixture(scope="module")
def predictions(run: Any, store: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("predictions") / "p.zarr"
    return streammc.predict(run, store, path, by="x", bins=8, draws=40)


def test_a_statistic_is_drawn_as_a_line_of_means_for_each_chain(run: Any) -> None:
    ax = plots.plot_statistic(run, limit=1.0)
    values = run["sample_stats"]["log_lik_variance"].to_numpy()
    first, second, limit = ax.lines
    np.testing.assert_allclose(first.get_ydata(), values[0])  # 60 draws are not averaged
    np.testing.assert_allclose(second.get_ydata(), values[1])
    assert [1.0, 1.0] == list(limit.get_ydata())
    assert "log lik variance" == ax.get_ylabel()


def test_long_chains_are_averaged_in_groups() -> None:
    from matplotlib.figure import Figure

    from streammc.plots.run_plots import draw_statistic

    values = np.arange(1000.0)[None, :]
    (line,) = draw_statistic(Figure().subplots(), values, "lp", None).lines
    assert 100 == len(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), line.get_xdata())


def test_audit_weights_are_relative_to_their_mean(run: Any) -> None:
    ax = plots.plot_audit_weights(run)
    counted = sum(bar.get_height() for bar in ax.patches)
    assert counted == run["audit"]["log_weight"].size
    low, high = ax.patches[0].get_x(), ax.patches[-1].get_x() + ax.patches[-1].get_width()
    assert low < 1.0 < high


def test_ladder_shows_beta_and_swap_rates_of_the_summary(tempered: Any) -> None:
    upper, lower = plots.plot_ladder(tempered)
    levels = streammc.facts(tempered)["summary"]["tempering"]["levels"]
    positive = [beta for beta in levels["beta"] if beta]
    np.testing.assert_allclose(upper.lines[0].get_ydata(), positive)
    np.testing.assert_allclose([bar.get_height() for bar in lower.patches], levels["swap_rate"])
    assert 0.5 == pytest.approx(lower.patches[0].get_x() + lower.patches[0].get_width() / 2)


def test_predictions_by_a_covariate_show_predicted_and_realised(predictions: Any) -> None:
    ax = plots.plot_by_covariate(predictions)
    predicted, realised = ax.lines
    np.testing.assert_allclose(predicted.get_ydata(), predictions["group_mean"])
    np.testing.assert_allclose(realised.get_ydata(), predictions["group_realised"])
    np.testing.assert_allclose(realised.get_xdata(), predictions["group_covariate"])
    assert "x" == ax.get_xlabel()


def test_roc_curve_goes_through_that_of_the_predictions(predictions: Any) -> None:
    curve = plots.plot_roc(predictions).lines[0]
    expected = np.interp(
        curve.get_xdata(), predictions["fpr_grid"].to_numpy(), predictions["roc"].to_numpy()
    )
    np.testing.assert_allclose(curve.get_ydata(), expected)


def test_given_axes_are_used(run: Any) -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert plots.plot_statistic(run, "lp", ax=ax) is ax


def test_what_a_run_does_not_have_is_refused(run: Any, tempered: Any, predictions: Any) -> None:
    with pytest.raises(ConfigError, match="expected a statistic of the draws, found 'sign'"):
        plots.plot_statistic(run, "sign")
    with pytest.raises(ConfigError, match="expected an audited run"):
        plots.plot_audit_weights(tempered)
    with pytest.raises(ConfigError, match="temperature levels"):
        plots.plot_ladder(run)
    alone = predictions[["mean", "q5", "q95"]]
    with pytest.raises(ConfigError, match="by groups of a column"):
        plots.plot_by_covariate(alone)
    with pytest.raises(ConfigError, match="ROC curve"):
        plots.plot_roc(alone)


def test_a_missing_matplotlib_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from streammc.plots import axes

    monkeypatch.setattr(axes, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'streammc\[plots\]'"):
        plots.plot_statistic(run)


@pytest.mark.parametrize(
    "name", ["plot_forest", "plot_rank", "plot_trace", "plot_pair", "plot_ess", "plot_energy"]
)
def test_plots_of_arviz_work_on_a_run_as_it_is(run: Any, name: str) -> None:
    arviz_plots = pytest.importorskip("arviz_plots")
    drawn = getattr(arviz_plots, name)(run, backend="matplotlib")
    assert drawn.viz["figure"].item().axes


def test_bands_say_what_they_are_of() -> None:
    means = xr.Dataset({"mean": ("row", np.zeros(2))})
    assert what_is_predicted(means) == "mean response"
    chances = xr.Dataset(
        {"mean": (("row", "category"), np.zeros((2, 3)))}, {"category": ["a", "b", "c"]}
    )
    assert what_is_predicted(chances) == "chance of the category c"
