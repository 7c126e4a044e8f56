"""Runs of factors that cross: stopped and resumed, their effects, predictions and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crossed_tables import CROSSED, FORMULA, crossed_table, data_of, summary

import streammc
from streammc.errors import (
    ConfigError,
    DataError,
    IdentityError,
    MissingError,
    ModelError,
    OutOfMemoryError,
    RefusedError,
    StoreError,
)
from streammc.frames import data_set
from streammc.models.mixed.crossed_model import with_crossed
from streammc.prediction.predict import opened_run
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.crossed import kernel
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.filterwarnings("ignore::streammc.errors.SamplingWarning")
SIZES: Any = {"seed": 3, "draws": 400, "warmup": 150, "chains": 2}


def made(folder: Path, family: str = "gaussian", **options: Any) -> tuple[Any, Any]:
    table, u, v = crossed_table(family)
    store = streammc.from_table(
        table, path=folder / "t.zarr", formula=FORMULA, group_as=CROSSED, **options
    )
    return store, (table, u, v)


def sampled(store: Any, path: Path, family: str = "gaussian", **options: Any) -> Any:
    return streammc.sample(store, getattr(streammc.models, family)(), path=path, **SIZES | options)


def state_of(path: Path) -> Any:
    arrays, meta = RunDirectory.open(path).checkpoint() or ({}, {})
    return arrays, [(each["count"], each["stride"]) for each in meta["chains"]]


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_a_run_that_is_stopped_and_extended_has_the_draws_of_one_that_is_not(
    tmp_path: Path, family: str
) -> None:
    store, _ = made(tmp_path, family)
    sampled(store, tmp_path / "whole", family)
    for draws in (100, 250, 400):
        sampled(store, tmp_path / "parts", family, draws=draws)
    whole, parts = (RunDirectory.open(tmp_path / name) for name in ("whole", "parts"))
    np.testing.assert_array_equal(whole.draws_matrix(), parts.draws_matrix())
    (arrays, counts), (others, again) = (state_of(tmp_path / each) for each in ("whole", "parts"))
    assert [(400, 2)] * 2 == counts == again
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def test_a_state_that_another_version_has_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = made(tmp_path)
    sampled(store, tmp_path / "run", draws=100)
    arrays = kernel.SumsPosition.arrays
    more = {"stranger": np.zeros(1)}
    monkeypatch.setattr(kernel.SumsPosition, "arrays", lambda self: arrays(self) | more)
    with pytest.raises(StoreError, match=r"expected 'stranger' .* another version of streammc"):
        sampled(store, tmp_path / "run", draws=200)
    monkeypatch.undo()
    sampled(store, tmp_path / "run", draws=200)


def test_chains_are_the_same_on_any_number_of_threads(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    for threads in (1, 2):
        sampled(store, tmp_path / str(threads), threads=threads)
    digests = {RunDirectory.open(tmp_path / each).digest() for each in ("1", "2")}
    assert 1 == len(digests)


def test_effects_are_the_moments_of_all_draws(tmp_path: Path) -> None:
    store, (_, u, _) = made(tmp_path)
    run = tmp_path / "run"
    gibbs = streammc.samplers.gibbs(effect_draws=830)
    sampled(store, run, draws=830, sampler=gibbs)  # the last interval is a short one
    found = streammc.effects(run, store, factor="user")
    draws = streammc.effect_draws(
        run, store, [str(k) for k in range(40)], factor="user", draws=10_000
    )
    each = draws["u"].values[..., 0].reshape(40, -1)
    np.testing.assert_array_equal(np.arange(830), draws["draw"])
    np.testing.assert_allclose(found["mean"].values[:, 0], each.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(found["sd"].values[:, 0], each.std(axis=1), rtol=1e-5)
    ends = np.quantile(each, [0.05, 0.95], axis=1)
    spread = found["sd"].values[:, 0]
    for name, end in zip(("q5", "q95"), ends, strict=True):
        assert np.max(np.abs(found[name].values[:, 0] - end) / spread) < 0.25
    rows = np.bincount(np.asarray(crossed_table("gaussian")[0]["user"]))
    np.testing.assert_array_equal(rows, found["rows"])
    assert 1 == rows.min()
    inside = (found["q5"].values[:, 0] < u) & (u < found["q95"].values[:, 0])
    assert 29 <= inside.sum() <= 40
    assert np.corrcoef(found["mean"].values[:, 0], u)[0, 1] > 0.8
    assert 0.0 < found.attrs["mean_error"] < 0.3
    assert 2 * 830 == found.attrs["draws"]


def test_intraclass_correlations_have_the_variances_of_all(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    tree = sampled(store, tmp_path / "run")
    found = streammc.diagnostics.intraclass_correlation(tree)
    assert ["user", "item"] == found["factor"].values.tolist()
    tau, sigma = tree["posterior"]["tau"].values, tree["posterior"]["sigma"].values
    expected = tau**2 / ((tau**2).sum(axis=-1) + sigma**2)[..., None]
    np.testing.assert_allclose(expected, found.values)


def coverage(broken: bool) -> Any:
    """Return the shares of new means inside 80 % intervals, by what is known of a row."""
    inside: dict[str, list[bool]] = {}
    for seed in range(25):
        rng = np.random.default_rng(seed)
        users, items, n = 60, 40, 800
        tau_u, tau_v, sigma = 0.8, 0.5, 0.7
        u, v = tau_u * rng.normal(size=users + 1), tau_v * rng.normal(size=items + 1)
        user, item = rng.integers(0, users, n), rng.integers(0, items, n)
        y = 1.0 + u[user] + v[item] + sigma * rng.normal(size=n)
        rows = streammc.from_table(
            {"y": y, "user": user, "item": item}, formula="y ~ 1 + (1 | user) + (1 | item)",
            group_as=CROSSED,
        )  # fmt: skip
        tree = streammc.sample(
            rows, streammc.models.gaussian(), seed=seed, draws=100, warmup=50, chains=2
        )
        at_user = np.array([0, 1, users, 5, users, 7])
        at_item = np.array([0, items, 3, 2, items, items])
        new = {"user": at_user, "item": at_item}
        found = streammc.predict(tree, new, interval=0.8, trained_on=rows)
        low, high = found["eti80_lb"], found["eti80_ub"]
        mean = 1.0 + u[at_user] + v[at_item] + (1.0 if broken else 0.0)
        for a, b, here in zip(at_user, at_item, (low < mean) & (mean < high), strict=True):
            inside.setdefault(f"{a < users}, {b < items}", []).append(bool(here))
    return inside


@pytest.mark.parametrize("broken", [False, True])
def test_predictions_of_known_and_new_pairs_hold_the_truth(broken: bool) -> None:
    away = []
    for held in coverage(broken).values():
        away.append((np.mean(held) - 0.8) / np.sqrt(0.16 / len(held)))
    assert 4 == len(away)
    assert (np.abs(away).max() > 3.0) == broken


def test_new_levels_are_counted_or_refused(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    sampled(store, tmp_path / "run")
    new = streammc.from_table(
        {"y": [0.0, 0.0], "x": [0.0, 0.0], "user": [1, 77], "item": ["m1", "m1"]}, like=store
    )
    found = streammc.predict(tmp_path / "run", new, trained_on=store)
    assert 1 == found.attrs["new_group_rows"]
    from streammc.errors import DataError

    with pytest.raises(DataError, match="user '77' in row 2"):
        streammc.predict(tmp_path / "run", new, trained_on=store, new_groups="refuse")
    with pytest.raises(ConfigError, match="trained_on"):
        streammc.predict(tmp_path / "run", new)


def test_averages_and_checks_have_the_effects_of_known_levels(tmp_path: Path) -> None:
    """Against predictors made of the draws of all effects that the run keeps, row by row."""
    store, (table, *_) = made(tmp_path, "logistic", shuffle=False)
    run, x = tmp_path / "run", np.asarray(table["x"])
    sampled(store, run, "logistic")
    theta = streammc.open_run(run).posterior.dataset.isel(draw=slice(1, None, 2))
    eta = theta.beta.sel(feature="Intercept").values + x[:, None, None] * (
        theta.beta.sel(feature="x").values
    )
    own = dict[str, Any]()
    for factor in ("user", "item"):
        labels = np.unique(table[factor])
        drawn = streammc.effect_draws(
            run, store, list(map(str, labels)), factor=factor, path=tmp_path / factor, draws=400
        )
        assert drawn.draw.values.tolist() == theta.draw.values.tolist()
        own[factor] = drawn.u.values[np.searchsorted(labels, table[factor]), :, :, 0]

    def chance(eta: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-eta))

    step = theta.beta.sel(feature="x").values
    rows = chance(eta + own["user"] + own["item"])
    moved = chance(eta + step + own["user"] + own["item"]) - rows
    known: Any = {"groups": "known", "draws": 400, "keep_draws": True}
    found = streammc.predictions(run, store, **known)["draws"].to_pylist()[0]
    np.testing.assert_allclose(found, rows.mean(axis=0).ravel(), rtol=1e-5)
    of_x = streammc.comparisons(run, store, {"x": 1}, **known)["draws"].to_pylist()[0]
    np.testing.assert_allclose(of_x, moved.mean(axis=0).ravel(), rtol=1e-5)
    without = chance(eta + own["user"]).mean(axis=0).ravel()
    assert np.abs(without / np.array(found) - 1.0).max() > 1e-3
    tree = streammc.posterior_predictive(run, store, rows=300, draws=400)
    assert tree.posterior.draw.values.tolist() == theta.draw.values.tolist()
    at, y = tree.observed_data.row.values, np.asarray(table["y"])
    log_lik = np.log(np.where(y[:, None, None], rows, 1.0 - rows))[at]
    of_rows = tree.log_likelihood["y"].transpose("row", "chain", "draw").values
    np.testing.assert_allclose(of_rows, log_lik, rtol=1e-4)
    drawn = tree.posterior_predictive["y"].mean(("chain", "draw")).values
    mean = rows[at].mean(axis=(1, 2))
    z = (drawn - mean) / np.sqrt((rows * (1.0 - rows))[at].mean(axis=(1, 2)) / 400)
    assert abs((z**2).mean() - 1.0) < 4.5 * np.sqrt(2.0 / 300)
    of_row = streammc.residuals(run, store, draws=400)
    np.testing.assert_allclose(of_row["mean"], rows.mean(axis=(1, 2)), rtol=1e-5)
    of_row = streammc.calibration(run, store, draws=400)
    np.testing.assert_allclose(of_row["mean"], rows.mean(axis=(1, 2)), rtol=1e-5)
    few = streammc.residuals(run, store, draws=100)
    assert few.attrs["draws"] == 100
    np.testing.assert_allclose(few["mean"], rows[:, :, ::4].mean(axis=(1, 2)), rtol=1e-5)
    some = {name: np.asarray(each)[50:90] for name, each in table.items()}
    of_some = streammc.predictions(run, some, **known)["draws"].to_pylist()[0]
    np.testing.assert_allclose(of_some, rows[50:90].mean(axis=0).ravel(), rtol=1e-5)
    with pytest.raises(DataError, match="found item 'new' in row 40: leave such rows out, or ask"):
        streammc.predictions(run, some | {"item": [*some["item"][:-1], "new"]}, groups="known")
    del some["item"]
    with (
        pytest.warns(UserWarning, match="no column 'item'"),
        pytest.raises(ConfigError, match="expected rows with labels of 'item', found none"),
    ):
        streammc.predictions(run, some, groups="known")


def test_averages_of_a_run_in_memory_take_the_table_that_was_fitted(tmp_path: Path) -> None:
    table, *_ = crossed_table("logistic")
    options: Any = {"formula": FORMULA, "group_as": CROSSED}
    streammc.fit(table, family="logistic", path=tmp_path / "fitted", **options, **SIZES)
    rows = {name: each[:200] for name, each in table.items()}
    known: Any = {"groups": "known", "keep_draws": True}
    run = opened_run(tmp_path / "fitted")
    of_rows = data_set(run, table, fitted=True)
    assert of_rows.fingerprint == run.identity["store"]
    found, other = (streammc.predictions(run.path, each, **known) for each in (table, of_rows))
    np.testing.assert_allclose(found["draws"].to_pylist(), other["draws"].to_pylist(), rtol=1e-5)
    with pytest.raises(ConfigError, match="found another: give the table that was fitted"):
        streammc.predictions(tmp_path / "fitted", rows, **known)
    with pytest.raises(ConfigError, match="found 'item', whose levels"):
        streammc.comparisons(tmp_path / "fitted", table, "item")


def test_a_run_goes_on_being_of_the_rows_that_it_was_fitted_to(tmp_path: Path) -> None:
    table, *_ = crossed_table("gaussian")
    store, _ = made(tmp_path)
    for name in ("run", "part"):
        sampled(store, tmp_path / name, draws=400 if name == "run" else 100)
    rows = {"y": [0.0, 0.0], "x": [0.0, 1.0], "user": [1, 777], "item": ["m1", "zz"]}

    def answers(data: Any) -> Any:
        effects = streammc.effects(tmp_path / "run", data, factor="item")
        drawn = streammc.effect_draws(tmp_path / "run", data, ["m3"], factor="item")
        new = streammc.from_table(rows, like=data)
        predicted = streammc.predict(tmp_path / "run", new, trained_on=data)
        own = streammc.predict(tmp_path / "run", data)
        return [
            *(effects[each].values for each in ("group", "mean", "sd", "q5", "rows")),
            drawn["u"].values,
            *(each[name].values for each in (predicted, own) for name in ("mean", "q5")),
        ]

    before = answers(store)
    more = table | {"user": table["user"] + 30, "item": np.char.add("a", table["item"])}
    streammc.append({name: values[:50] for name, values in more.items()}, tmp_path / "t.zarr")
    grown = streammc.open_store(tmp_path / "t.zarr")
    assert grown.crossed[1].n_groups > store.crossed[1].n_groups
    after = answers(grown)
    own = [each[:600] for each in after[-2:]]  # of old rows: those of new levels follow
    for one, other in zip(before, [*after[:-2], *own], strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ConfigError, match="found 'am1'"):
        streammc.effect_draws(tmp_path / "run", grown, ["am1"], factor="item")
    with pytest.raises(IdentityError, match="give that run as --start-from, or continue it with"):
        sampled(grown, tmp_path / "part", draws=400)
    earlier = grown.earlier(store.fingerprint)
    sampled(earlier, tmp_path / "part", draws=400)
    whole, part = (RunDirectory.open(tmp_path / name) for name in ("run", "part"))
    assert whole.digest() == part.digest()


def away_from_whole(tmp_path: Path, family: str) -> tuple[float, float]:
    """Return the farthest parameter, and effect, of a store that grew from one made as a whole.

    In standard errors, and in standard deviations of the effect. 1 % of the rows are appended, of
    new users and items and of known ones; the store that grew starts from its earlier run, with a
    short warm-up.
    """
    rng = np.random.default_rng(17)
    n, users, items = 10_000, 300, 120
    user, item = rng.integers(0, users - 10, n), rng.integers(0, items - 6, n)
    late = slice(n - n // 100, n)
    user[late][::2] = rng.integers(users - 10, users, 50)
    item[late][::3] = rng.integers(items - 6, items, 34)
    x = rng.normal(size=n)
    eta = 0.4 + 0.5 * x + 1.5 * rng.normal(size=users)[user] + rng.normal(size=items)[item]
    y = eta + 0.3 * rng.normal(size=n)
    if family == "logistic":
        y = (rng.logistic(size=n) < eta).astype(int)
    names = np.array([f"item {(7 * k) % items}" for k in item])
    table = {"y": y, "x": x, "user": (11 * user) % users, "item": names}
    first = {name: values[: late.start] for name, values in table.items()}
    options = {"formula": FORMULA, "group_as": CROSSED, "standardize": False}
    before = streammc.from_table(first, path=tmp_path / "grown.zarr", **options)
    sampled(before, tmp_path / "before", family, draws=50, warmup=100)
    streammc.append({name: values[late] for name, values in table.items()}, tmp_path / "grown.zarr")
    grown = streammc.open_store(tmp_path / "grown.zarr")
    whole = streammc.from_table(table, path=tmp_path / "whole.zarr", **options)
    trees, effects = [], []
    started = {"warmup": 10, "sampler": streammc.samplers.gibbs(start_from=f"{tmp_path}/before")}
    for name, rows, start in (("grown", grown, started), ("whole", whole, {"warmup": 100})):
        trees.append(summary(sampled(rows, tmp_path / name, family, draws=1500, **start)))
        found = [streammc.effects(tmp_path / name, rows, factor=each) for each in CROSSED]
        effects.append([each.sortby("group") for each in found])
    one, other = trees
    assert {"beta[Intercept]", "beta[x]", "tau[user]", "tau[item]"} <= {*one} == {*other}
    parameters = [
        abs(row["mean"] - other[name]["mean"])
        / np.hypot(row["mcse_mean"], other[name]["mcse_mean"])
        for name, row in one.items()
    ]
    levels = [0.0]
    for a, b in zip(*effects, strict=True):
        np.testing.assert_array_equal(a["group"], b["group"])
        levels.append(np.max(np.abs(a["mean"].values - b["mean"].values) / b["sd"].values))
    return max(parameters), max(levels)


@pytest.mark.parametrize("family", ["gaussian", pytest.param("logistic", marks=pytest.mark.slow)])
def test_a_run_on_appended_rows_has_the_posterior_of_all_rows(tmp_path: Path, family: str) -> None:
    parameters, levels = away_from_whole(tmp_path, family)
    assert parameters < 4.5
    assert levels < 0.3


def test_appended_rows_of_other_levels_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.stores.ingest import prepare

    right = prepare.numbered_as

    def shifted(factor: Any, labels: Any) -> Any:
        levels, new = right(factor, labels)
        return (levels + 1) % (factor.n_groups + len(new)), new

    monkeypatch.setattr(prepare, "numbered_as", shifted)
    parameters, levels = away_from_whole(tmp_path, "gaussian")
    assert parameters > 4.5
    assert levels > 0.3


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_a_run_continues_an_earlier_one_of_fewer_levels(tmp_path: Path, family: str) -> None:
    store, (table, *_) = made(tmp_path, family)
    sampled(store, tmp_path / "run", family, chains=3)
    more = {name: values[:60] for name, values in table.items()} | {"user": np.arange(60) + 30}
    streammc.append(more, tmp_path / "t.zarr")
    grown, (arrays, _) = streammc.open_store(tmp_path / "t.zarr"), state_of(tmp_path / "run")
    before, now = store.crossed[0].n_groups, grown.crossed[0].n_groups
    assert now > before
    sizes = {"draws": 60, "warmup": 0, "chains": 4}
    first = {}
    for name, earlier in (("cold", None), ("warm", f"{tmp_path}/run")):
        sampler = streammc.samplers.gibbs(start_from=earlier)
        sampled(grown, tmp_path / name, family, sampler=sampler, **sizes)
        lp = RunDirectory.open(tmp_path / name).statistics("lp")["lp"]
        late = lp[:, 30:]
        first[name] = np.max(np.abs(lp[:, 0] - late.mean()) / late.std())
    assert first["warm"] < 4.0 < first["cold"], first
    model = with_crossed(getattr(streammc.models, family)(), grown)
    labels = RunDirectory.open(tmp_path / "run").labels
    states = kernel.earlier_states(f"{tmp_path}/run", RunRequest(grown, model), labels)
    assert 3 == len(states)
    for chain, state in enumerate(states):
        known = arrays[f"chain{chain}_effects"]
        np.testing.assert_array_equal(state["effects"][:before], known[:before])
        np.testing.assert_array_equal(state["effects"][before:now], 0.0)
        np.testing.assert_array_equal(state["effects"][now:], known[before:])


def test_what_a_run_cannot_start_from(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    model = streammc.models.gaussian()
    sampled(store, tmp_path / "run")
    (tmp_path / "other").mkdir()
    other, _ = made(tmp_path / "other", standardize=False)
    plain = streammc.from_table(crossed_table("gaussian")[0], formula="y ~ x")
    streammc.sample(plain, model, seed=1, draws=50, warmup=50, path=tmp_path / "hmc")

    def started(rows: Any, path: str, model: Any = model) -> None:
        sampler = streammc.samplers.gibbs(start_from=str(tmp_path / path))
        streammc.sample(rows, model, sampler=sampler, path=tmp_path / "new", **SIZES)

    with pytest.raises(IdentityError, match="found one of another store"):
        started(other, "run")
    with pytest.raises(IdentityError, match="found one of another store"):
        started(store, "hmc")
    with pytest.raises(ConfigError, match="found one of another at"):
        started(store, "run", streammc.models.student_t())
    with pytest.raises(MissingError, match="nowhere"):
        started(store, "nowhere")
    with pytest.raises(ConfigError, match="expected factors that cross for gibbs"):
        started(plain, "run")
    with pytest.raises(ConfigError, match="start_from must be the path of a run as text"):
        streammc.samplers.gibbs(start_from=3)
    with RunDirectory.open(tmp_path / "run").lock() as run:
        run.extend(500)
    with pytest.raises(ConfigError, match="found one that is not finished"):
        started(store, "run")
    assert not (tmp_path / "new").exists()


def test_r_hat_of_effects_is_that_of_their_draws(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    gibbs = streammc.samplers.gibbs(effect_draws=100)
    sampled(store, tmp_path / "run", sampler=gibbs, draws=100, chains=3)
    run = RunDirectory.open(tmp_path / "run")
    arrays, _ = state_of(tmp_path / "run")
    draws = np.array([arrays[f"chain{chain}_kept"] for chain in range(3)], np.float64)
    assert (3, 100, 65) == draws.shape
    within, between = draws.var(axis=1, ddof=1).mean(axis=0), draws.mean(axis=1).var(axis=0, ddof=1)
    known = np.sqrt(0.99 + between / within)
    np.testing.assert_allclose(kernel.effects_r_hat(run), known, rtol=1e-5)
    assert known.max() == pytest.approx(
        run.attributes["summary"]["sampling"]["effects_r_hat"], 1e-5
    )
    sampled(store, tmp_path / "one", draws=100, chains=1)
    one = RunDirectory.open(tmp_path / "one")
    assert kernel.effects_r_hat(one) is None
    (check,) = gibbs.checks({"sampling": one.attributes["summary"]["sampling"]})
    assert check.value.startswith("not known, of one chain or of more than 1,048,576 effects")


def test_more_levels_than_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = made(tmp_path)
    monkeypatch.setattr(kernel, "available_memory", lambda: 500_000)
    with pytest.raises(OutOfMemoryError, match=r"expected 0.82 MB .* 65 effects in 4 chains"):
        sampled(store, tmp_path / "run", chains=4)
    assert not (tmp_path / "run").exists()
    sampled(store, tmp_path / "run", chains=2)


def test_what_needs_a_likelihood_of_rows_is_refused(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    run = tmp_path / "run"
    sampled(store, run)
    for call in (
        lambda: streammc.score(run, store),
        lambda: streammc.prior_predictive(streammc.models.gaussian(), store),
        lambda: streammc.control_variates(store, streammc.models.gaussian()),
        lambda: streammc.export(run, tmp_path / "model.json"),
    ):
        with pytest.raises((ModelError, ConfigError, RefusedError), match=r"cross|without groups"):
            call()
    with pytest.raises(ConfigError, match="user, item"):
        streammc.effects(run, store)
    with pytest.raises(ConfigError, match="found 'carrier'"):
        streammc.effects(run, store, factor="carrier")
    with pytest.raises(ConfigError, match="those of all draws"):
        streammc.effects(run, store, factor="user", draws=50)
    with pytest.raises(ConfigError, match="found '40', which is"):
        streammc.effect_draws(run, store, ["40"], factor="user")


def table_of(**columns: Any) -> Any:
    rng = np.random.default_rng(4)
    table = {"y": rng.normal(size=200), "user": np.arange(200) % 20, "item": np.arange(200) // 10}
    table |= {"x": rng.normal(size=200)} | columns
    return table


@pytest.mark.parametrize(
    ("columns", "model", "sampler", "message"),
    [
        ({"y": np.arange(200) % 3}, "multinomial", None, "a family with one linear predictor"),
        ({}, "gaussian", "hmc", "expected gibbs"),
        ({}, "gaussian", "laplace", "expected gibbs"),
        ({"item": np.arange(200) % 20 + 5}, "gaussian", None, "'user' and 'item' with the same"),
        ({"y": np.ones(200)}, "gaussian", None, "its columns fit without error"),
        ({"y": np.arange(200.0) % 20}, "gaussian", None, "the levels of 'user' fit without error"),
        ({"item": np.arange(200)}, "gaussian", None, "200 levels of 'item' of one row each"),
        ({"item": np.arange(200)}, "logistic", None, "one trial a level says nothing"),
        ({"y": np.arange(200) % 3}, "logistic", None, "0 or 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused(
    columns: Any, model: str, sampler: str | None, message: str
) -> None:
    rows = data_of(table_of(**columns))
    chosen = None if sampler is None else getattr(streammc.samplers, sampler)()
    with pytest.raises((ModelError, ConfigError, RefusedError), match=message):
        streammc.sample(rows, getattr(streammc.models, model)(), sampler=chosen, **SIZES)


@pytest.mark.parametrize(
    ("model", "prior", "message"),
    [
        ("gaussian", {"beta[x]": streammc.priors.laplace(0.0, 1.0)}, "normal or flat priors"),
        (
            "logistic",
            {"beta[x]": streammc.priors.flat()},
            "proper priors of coefficients for 'logistic'",
        ),
        ("gaussian", {"tau[user]": streammc.priors.flat()}, "flat"),
    ],
)
def test_priors_that_a_sweep_cannot_draw_from_are_refused(
    model: str, prior: Any, message: str
) -> None:
    table = table_of(y=np.arange(200) % 7 % 2)
    with pytest.raises(ConfigError, match=message):
        streammc.sample(data_of(table), getattr(streammc.models, model)(prior=prior), **SIZES)


def test_gibbs_without_factors_that_cross_is_refused() -> None:
    rows = streammc.from_table(table_of(), formula="y ~ x")
    with pytest.raises(ConfigError, match="without: make the table with several terms"):
        streammc.sample(rows, streammc.models.gaussian(), sampler=streammc.samplers.gibbs())


def test_columns_that_add_up_to_others_are_said() -> None:
    table = table_of()
    rows = data_of(table | {"z": 2.0 * table["x"]})
    rows = streammc.from_table(
        table | {"z": 2.0 * table["x"]}, formula="y ~ x + z + (1 | user) + (1 | item)",
        group_as=CROSSED,
    )  # fmt: skip
    flat = {"beta[x]": streammc.priors.flat(), "beta[z]": streammc.priors.flat()}
    with pytest.raises(ModelError, match="columns that the rows tell apart"):
        streammc.sample(rows, streammc.models.gaussian(prior=flat), **SIZES)


def test_a_table_in_parts_is_said(tmp_path: Path) -> None:
    user, part = np.arange(200) % 20, np.arange(200) % 2
    rows = data_of(table_of(user=user, item=part + 2 * (np.arange(200) // 40)))
    with pytest.warns(streammc.errors.SamplingWarning, match="2 parts that share no level"):
        sampled(rows, tmp_path / "run")
    summary = RunDirectory.open(tmp_path / "run").attributes["summary"]
    assert 2 == summary["sampling"]["parts"]


def test_weights_and_offsets_are_those_of_repeated_rows() -> None:
    table, *_ = crossed_table("gaussian", n=200)
    weight = np.random.default_rng(6).integers(1, 4, 200)
    shift = np.random.default_rng(7).normal(size=200)
    once = table | {"w": weight, "o": shift}
    often = {name: np.repeat(values, weight) for name, values in once.items()}
    often["y"] = often["y"] - often["o"]
    own = data_of(once, weight="w", offset="o", standardize=False)
    other = data_of(often, standardize=False)
    prior = {
        "beta*": streammc.priors.normal(0.0, 2.0),
        "sigma": streammc.priors.half_normal(1.0),
        "tau*": streammc.priors.half_normal(1.0),
    }
    runs = [
        streammc.sample(rows, streammc.models.gaussian(prior=prior), **SIZES | {"seed": 8})
        for rows in (own, other)
    ]
    for name in ("beta", "sigma", "tau"):
        a, b = (run["posterior"][name].values for run in runs)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_answers_about_real_answers_are_those_of_another_sampler(data_folder: Path) -> None:
    """VerbAgg: 316 persons, integrated by quadrature there, and 24 items, columns there."""
    import gzip

    import pyarrow.csv as csv

    with gzip.open(data_folder / "grouped" / "VerbAgg.csv.gz") as file:
        table = csv.read_csv(file)
    formula = 'I(r2 == "Y") ~ Anger + C(btype) + (1 | id) + (1 | item)'
    found = []
    for ways, sampler in ((None, None), (dict.fromkeys(("id", "item"), "crossed"), None)):
        rows = streammc.from_table(table, formula=formula, group_as=ways)
        draws = 1000 if ways else 250
        tree = streammc.sample(
            rows, streammc.models.logistic(), sampler=sampler, seed=2, draws=draws, warmup=200,
            chains=2,
        )  # fmt: skip
        found.append(summary(tree))
    known, own = found
    assert "tau[id]" in own
    assert {*own} <= {*known}
    for name, row in own.items():
        error = np.hypot(row["mcse_mean"], known[name]["mcse_mean"])
        assert abs(row["mean"] - known[name]["mean"]) < 4.5 * error, name
        assert abs(row["sd"] / known[name]["sd"] - 1.0) < 0.15, name
