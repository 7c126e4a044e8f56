"""Draws from a store with codes: those of the same columns dense."""

from __future__ import annotations

import numpy as np
import pytest
from coded_tables import NEVER, made, pair, table

import streammc
from streammc.control_variates.full_pass import block_pass
from streammc.control_variates.mode import newton
from streammc.control_variates.plan import unit_scores
from streammc.likelihood.data_views import by_group

MODEL = streammc.models.logistic(prior=streammc.priors.normal(scale=1.0))
FEW, ROWS = "late ~ x + C(tail) + z", 8_000
SHORT = {"draws": 60, "warmup": 60, "seed": 3}


def draws_of(data, *, sampler=None, model=MODEL, **options):
    sampler = streammc.samplers.hmc_ecs() if sampler is None else sampler
    run = streammc.sample(data, model, sampler=sampler, **SHORT, **options)
    return run, run["posterior"].to_dataset()


@pytest.fixture
def dense_passes(monkeypatch):
    """Passes, and rows in memory, with sums over all columns."""
    for module in (block_pass, newton, unit_scores):
        monkeypatch.setattr(module, "takes_codes", lambda model: False)


@pytest.mark.parametrize(
    "sampler",
    [
        streammc.samplers.hmc_ecs(),
        streammc.samplers.hmc_ecs(unit_rows=3),
        streammc.samplers.hmc(),
        streammc.samplers.mh_fixed(),
    ],
    ids=["hmc-ecs", "hmc-ecs-runs", "hmc", "mh-fixed"],
)
def test_draws_have_the_bits_of_those_from_dense_columns(dense_passes, sampler):
    dense, coded = pair(FEW, n=ROWS)
    assert coded.attributes["codes"]
    _, one = draws_of(dense, sampler=sampler, chains=2)
    _, other = draws_of(coded, sampler=sampler, chains=2)
    np.testing.assert_array_equal(one["beta"].values, other["beta"].values)


GROUPED = "late ~ x + tail + (1 + x | day)"


@pytest.fixture(scope="module")
def grouped_runs(tmp_path_factory):
    """The runs of a mixed model on the same groups with dense columns and with codes."""
    found, source = {}, table(600, tails=66, days=20)
    for name, above in (("dense", NEVER), ("coded", 64)):
        path = tmp_path_factory.mktemp(name)
        store = made(source, GROUPED, codes_above=above, path=path / "s.zarr")
        sampler = streammc.samplers.hmc()
        settings = {"draws": 60, "warmup": 20, "seed": 3, "chains": 2, "audit": False}
        streammc.sample(store, MODEL, sampler=sampler, path=path / "run", **settings)
        found[name] = store, path / "run"
    return found


def test_draws_of_a_mixed_model_have_the_bits_of_those_from_dense_columns(grouped_runs):
    (dense, one), (coded, other) = grouped_runs["dense"], grouped_runs["coded"]
    assert coded.attributes["codes"]
    assert "codes" not in dense.attributes
    draws = [streammc.open_run(path)["posterior"].to_dataset() for path in (one, other)]
    for name in ("beta", "tau"):
        assert draws[0][name].values.std() > 0.0
        np.testing.assert_array_equal(draws[0][name].values, draws[1][name].values)


def test_effects_scores_and_predictions_of_a_mixed_model_are_those_from_dense_columns(
    grouped_runs,
):
    found = []
    for store, run in grouped_runs.values():
        rows = made(table(300, tails=66, days=20, seed=2), None, like=store)
        effects = streammc.effects(run, store)
        predicted = streammc.predict(run, rows, draws=20, trained_on=store)
        score = streammc.score(run, store, draws=100)
        found.append(
            (effects["mean"].values, predicted["mean"].values, score["elpd_loo"]["estimate"])
        )
    for dense, coded in zip(*found, strict=True):
        np.testing.assert_array_equal(dense, coded)


def test_a_code_of_no_column_is_not_read_beyond_the_columns():
    _, coded = pair(GROUPED, n=2000)
    model = by_group(coded, MODEL)[1]
    link, places = model.link, np.array([[0.0, 500.0], [40.0, 30.0]])
    theta = np.zeros((model.dim(coded.n_features), 2))
    out = np.empty((1, 2))
    values = []
    for wrong in (0, 91, 65535):
        codes = coded.rows().codes.copy()
        codes[10, 0] = wrong
        spoiled = type(coded)(
            type(coded._arrays[0])(coded._arrays[0].dense, codes, coded._arrays[0].columns),
            *coded._arrays[1:], dict(coded.attributes), 4096, None, coded.groups,
        )  # fmt: skip
        own = by_group(spoiled, MODEL)[1]
        link(theta, places, np.zeros(2), own.constants, 0, out)
        values.append(out[0].copy())
    assert np.isfinite(values[0]).all()
    for value in values[1:]:
        assert not np.isfinite(value[0])
        assert value[1] == values[0][1]


def test_one_other_code_changes_the_draws(dense_passes):
    source = table(ROWS).to_pydict()
    dense = made(table(ROWS), FEW, codes_above=NEVER, shuffle=False)
    source["tail"][5] = "N000" if source["tail"][5] != "N000" else "N001"
    _, one = draws_of(dense, chains=1)
    _, other = draws_of(made(source, FEW, shuffle=False), chains=1)
    assert np.any(one["beta"].values != other["beta"].values)


def test_sums_by_level_change_draws_by_rounding_alone():
    dense, coded = pair(FEW, n=ROWS)
    _, one = draws_of(dense, chains=1)
    _, other = draws_of(coded, chains=1)
    np.testing.assert_allclose(other["beta"].values, one["beta"].values, rtol=0, atol=1e-9)


def test_draws_from_the_mapped_store_and_from_memory_agree_for_any_prefetch(tmp_path):
    path = tmp_path / "s.zarr"
    store, memory = made(table(ROWS), FEW, path=path), made(table(ROWS), FEW)
    _, one = draws_of(store, chains=2)
    _, other = draws_of(memory, chains=2)
    np.testing.assert_array_equal(one["beta"].values, other["beta"].values)


def test_audit_of_a_run_from_codes_is_that_from_dense_columns(dense_passes):
    dense, coded = pair(FEW, n=ROWS)
    found = []
    for data in (dense, coded):
        run, _ = draws_of(data, chains=1, audit=True)
        found.append(streammc.facts(run)["summary"]["audit"])
    one, other = found
    assert one["largest_correction"] == pytest.approx(other["largest_correction"], abs=1e-6)


def test_model_whose_link_sees_columns_gets_all_of_them():
    def link(eta, X, y, constants, order, out):
        """Gaussian, with a log-likelihood that the last column moves."""
        out[0] = -0.5 * (y - eta[0]) ** 2 + 0.1 * X[-1]
        if order >= 1:
            out[1] = y - eta[0]
        if order == 2:
            out[2] = -1.0

    model = streammc.models.user("shifted", link=link, prior=streammc.priors.normal(scale=1.0))
    assert not block_pass.takes_codes(model)
    dense, coded = pair("late ~ x + C(tail)")
    one, other = (streammc.control_variates(data, model) for data in (dense, coded))
    assert one.log_lik == other.log_lik
    np.testing.assert_array_equal(one.hessian, other.hessian)
