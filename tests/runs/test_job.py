"""The contract of ``run_job``, and of every sampler with every model."""

import math
import threading

import arviz_stats
import numpy as np
import pytest
from crossed_tables import SAMPLERS_OF_ROWS
from quick import diagonal

from streammc import models, registry
from streammc.errors import BusyError, ConfigError, IdentityError, RefusedError
from streammc.models.responses import shares_of_trials
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.datatree import open_run
from streammc.trace.run_directory import RunDirectory

FEATURES = ["Intercept", "x 1", "x2"]
LABELS = [f"beta[{name}]" for name in FEATURES]
OF_COLUMNS = {name for name in registry.MODELS if name.startswith("gaussian-m")}
SEVERAL = {"network", "multinomial"}
"""Models whose coefficients are of several linear predictors."""
REGRESSIONS = sorted(set(registry.MODELS) - OF_COLUMNS - SEVERAL - {"gaussian-process"})
SCALES = {"sigma": 0.5, "nu": 5.0, "phi": 2.0, "shape": 2.0}
DRAWS, WARMUP, CHAINS = 120, 100, 3
SHORT = {name: {"n_levels": 3, "n_steps": 4} for name in ("pt", "spt", "stt", "tt")}
SHORT["mint"] = {"control_variate": 2, "alpha": 0.99}
"""Levels and leapfrog steps, of which the defaults have many; a temperature near 1."""


@pytest.fixture(scope="module")
def datasets():
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(3000), rng.normal(size=(3000, 2))]
    eta = X @ np.array([-0.3, 0.4, -0.2])
    responses = {
        "logistic": rng.random(3000) < 1 / (1 + np.exp(-eta)),
        "poisson": rng.poisson(np.exp(eta)),
    }
    for name in REGRESSIONS:
        model = registry.model(name)()
        shared = [each for each in model.parameters if not each.n_linear]
        at = [math.log(SCALES.get(each.name, 1.0)) for each in shared for _ in range(each.size(0))]
        scales = np.array(at)[:, None] + np.zeros(3000)
        responses.setdefault(name, model.simulate(np.vstack([eta, *scales]), rng))
    shares, trials = shares_of_trials(responses.pop("beta-binomial"))
    found = {name: from_arrays(X, y, feature_names=FEATURES) for name, y in responses.items()}
    counted = from_arrays(X, np.rint(shares * trials), trials=trials, feature_names=FEATURES)
    return found | {"beta-binomial": counted}


def start(datasets, path, model="logistic", **options):
    settings = {"draws": DRAWS, "warmup": WARMUP, "chains": CHAINS, "seed": 1, "audit": False}
    built = registry.model(model)(prior=normal(scale=2.5))
    return run_job(RunRequest(datasets[model], built, path=path, **{**settings, **options}))


@pytest.fixture(scope="module")
def finished(datasets, tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    return path, start(datasets, path)


def contents(path):
    return {
        str(file.relative_to(path)): (file.stat().st_mtime_ns, file.read_bytes())
        for file in path.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize(("sampler", "model"), diagonal(sorted(SAMPLERS_OF_ROWS), REGRESSIONS))
def test_every_sampler_with_every_model(datasets, tmp_path, sampler, model):
    built = registry.sampler(sampler)(**SHORT.get(sampler, {}))
    built_model = registry.model(model)()
    if sampler == "smh" and built_model.third_derivative is None:
        with pytest.raises(ConfigError, match="one linear predictor"):
            start(datasets, tmp_path / "run", model, sampler=built)
        return
    report = start(datasets, tmp_path / "run", model, sampler=built)
    tree = open_run(tmp_path / "run")
    posterior, stats = tree["posterior"], tree["sample_stats"]
    assert {"chain": CHAINS, "draw": DRAWS, "feature": 3} == dict(posterior["beta"].sizes)
    assert ("chain", "draw", "feature") == posterior["beta"].dims
    assert FEATURES == list(posterior["feature"].values)
    assert WARMUP == tree["warmup_posterior"].sizes["draw"]
    assert set(built.statistics) == set(stats.data_vars)
    for name in built.statistics:
        assert ("chain", "draw") == stats[name].dims
        known = stats[name].values == stats[name].values
        assert np.isfinite(stats[name].values[known]).all()
        # An acceptance test may be unable to tell its error: then the run says so.
        told = any("could not tell the error" in line for line in report.warnings)
        assert known.all() or (name == "decision_error" and known.any() and told)
    whole = {name: stats[name].dtype for name in ("n_steps", "n_rows") if name in stats}
    assert {np.dtype(np.int64)} == set(whole.values())
    assert "diverging" not in stats or stats["diverging"].dtype == bool
    scales = [each.name for each in built_model.parameters if not each.n_linear]
    assert [*LABELS, *scales] == list(report.summary["parameters"])
    assert sampler == report.summary["sampling"]["sampler"]
    assert built.target == report.summary["sampling"]["target"]
    assert CHAINS * DRAWS == report.summary["sampling"]["iterations"]
    table = arviz_stats.summary(tree, round_to="none")
    assert {*LABELS, *scales} == set(table.index)
    means = [*posterior["beta"].mean(("chain", "draw")).values]
    means += [float(posterior[name].mean()) for name in scales]
    found = [float(table["mean"][label]) for label in (*LABELS, *scales)]
    np.testing.assert_allclose(means, found, rtol=1e-12)
    recorded = [report.summary["parameters"][label]["mean"] for label in (*LABELS, *scales)]
    np.testing.assert_allclose(means, recorded, rtol=1e-12)


@pytest.mark.parametrize("model", ["gamma", "gaussian", "negative-binomial", "student-t"])
def test_scale_parameters_are_found_on_their_own_scale(datasets, tmp_path, model):
    report = start(datasets, tmp_path / "run", model, sampler=registry.sampler("hmc-ecs")())
    for name in registry.model(model)().scales:
        row = report.summary["parameters"][name]
        assert abs(row["mean"] - SCALES[name]) < 4.5 * row["sd"], name
        assert row["sd"] < 0.3 * SCALES[name], name


@pytest.mark.parametrize("sampler", sorted(SAMPLERS_OF_ROWS))
def test_draws_cover_the_simulated_truth(datasets, tmp_path, sampler):
    built = registry.sampler(sampler)(**SHORT.get(sampler, {}))
    report = start(datasets, tmp_path / "run", "poisson", sampler=built)
    draws = RunDirectory.open(tmp_path / "run").draws_matrix().reshape(-1, 3)
    z = (draws.mean(axis=0) - [-0.3, 0.4, -0.2]) / draws.std(axis=0)
    assert np.abs(z).max() < 4.5
    hot = report.summary["sampling"].get("mint", {}).get("temperature", 1.0)
    assert (draws.std(axis=0) < 0.05 * hot**0.5).all()


def test_finished_run_again_changes_nothing(datasets, finished):
    path, report = finished
    before = contents(path)
    again = start(datasets, path)
    assert (True, False) == (again.finished, again.changed)
    assert report.summary == again.summary
    assert report.warnings == again.warnings
    assert before == contents(path)


def test_fewer_draws_than_there_are_change_nothing(datasets, finished):
    path, report = finished
    before = contents(path)
    assert report.summary == start(datasets, path, draws=10).summary
    assert before == contents(path)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": 2}, "seed"),
        ({"chains": 2}, "chains"),
        ({"warmup": 50}, "warmup"),
        ({"sampler": hmc()}, "sampler"),
        ({"sampler": hmc(step_size=0.5)}, "sampler"),
    ],
)
def test_another_job_is_refused(datasets, finished, options, named):
    path, _ = finished
    before = contents(path)
    with pytest.raises(IdentityError, match=named):
        start(datasets, path, **options)
    assert before == contents(path)


def test_other_data_or_another_prior_are_refused(datasets, finished):
    path, _ = finished
    with pytest.raises(IdentityError, match="store"):
        start(datasets, path, "poisson")
    wider = models.logistic(prior=normal(scale=10.0))
    with pytest.raises(IdentityError, match=r"prior"):
        options = {"draws": DRAWS, "warmup": WARMUP, "chains": CHAINS, "seed": 1}
        run_job(RunRequest(datasets["logistic"], wider, path=path, **options))


def test_run_that_another_writer_holds_is_busy(datasets, finished):
    path, _ = finished
    with RunDirectory.open(path).lock():
        result = []

        def other():
            try:
                start(datasets, path, draws=2 * DRAWS)
            except BusyError as error:
                result.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert 1 == len(result)
    assert DRAWS == RunDirectory.open(path).draws


def test_stop_before_anything_leaves_nothing(datasets, tmp_path):
    report = start(datasets, tmp_path / "run", interrupted=lambda: True)
    assert (False, False, {}) == (report.finished, report.changed, report.summary)
    assert not (tmp_path / "run").exists()


def test_stop_keeps_whole_intervals_and_the_next_call_finishes(datasets, finished, tmp_path):
    seen = []

    def progress(phase, done, total, facts):
        seen.append((phase, done, total))

    options = {"interrupted": lambda: ("draws", 50, DRAWS) in seen, "progress": progress}
    report = start(datasets, tmp_path / "run", **options)
    assert (False, True) == (report.finished, report.changed)
    run = RunDirectory.open(tmp_path / "run")
    assert (WARMUP, 50) == (run.committed_warmup, run.committed_draws)
    assert open_run(tmp_path / "run")["posterior"].sizes["draw"] == 50
    assert start(datasets, tmp_path / "run").finished
    assert RunDirectory.open(finished[0]).digest() == RunDirectory.open(tmp_path / "run").digest()


@pytest.mark.parametrize(
    "options",
    [
        {"draws": 0},
        {"draws": -5},
        {"draws": 10**10},
        {"draws": 10.0},
        {"draws": True},
        {"warmup": -1},
        {"chains": 0},
        {"chains": "4"},
        {"seed": -1},
        {"seed": 2**63},
        {"seed": 1.5},
        {"threads": 0},
        {"threads": 1.5},
    ],
)
def test_bad_counts_are_refused_before_any_work(tmp_path, options):
    name = next(iter(options))
    with pytest.raises(ConfigError, match=name) as error:
        run_job(RunRequest(None, None, path=tmp_path / "run", **options))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_seed_that_was_not_given_is_recorded_and_taken_again(datasets, tmp_path):
    first = start(datasets, tmp_path / "a", seed=None)
    start(datasets, tmp_path / "b", seed=None)
    seeds = [RunDirectory.open(tmp_path / name).identity["seed"] for name in "ab"]
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**63 for seed in seeds)
    again = start(datasets, tmp_path / "a", seed=None)
    assert (False, first.summary) == (again.changed, again.summary)
    start(datasets, tmp_path / "c", seed=seeds[0])
    assert RunDirectory.open(tmp_path / "a").digest() == RunDirectory.open(tmp_path / "c").digest()


def test_no_warmup_and_one_chain(datasets, tmp_path):
    options = {"sampler": hmc(step_size=0.8), "warmup": 0, "chains": 1, "draws": 60}
    report = start(datasets, tmp_path / "run", **options)
    assert report.finished
    assert (1, 60, 3) == RunDirectory.open(tmp_path / "run").draws_matrix().shape


def test_run_without_a_path_is_new_each_time(datasets):
    one, two = (start(datasets, None, draws=10, warmup=10, chains=1) for _ in range(2))
    assert one.path != two.path
    assert RunDirectory.open(one.path).digest() == RunDirectory.open(two.path).digest()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subsample_size": 1}, "more than one unit of 1 row, .* found 1: use 2 rows or more"),
        ({"subsample_size": 8, "unit_rows": 8}, "more than one unit of 8 rows, .* use 16 rows"),
    ],
)
def test_a_subsample_of_one_unit_is_a_usage_error(options, text):
    with pytest.raises(ConfigError, match=text):
        hmc_ecs(**options)
    assert 2 == ConfigError.exit_code
    hmc_ecs(subsample_size=2)


@pytest.mark.parametrize("allow", [False, True])
def test_a_unit_of_all_rows_is_refused(allow, tmp_path):
    rng = np.random.default_rng(1)
    data = from_arrays(np.c_[np.ones(150), rng.normal(size=150)], rng.random(150) < 0.5)
    sampler = hmc_ecs(unit_rows=150, allow_high_variance=allow)
    options = {"draws": 10, "warmup": 10, "chains": 1, "seed": 1, "path": tmp_path / "run"}
    with pytest.raises(RefusedError, match=r"use .*hmc") as caught:
        run_job(RunRequest(data, registry.model("logistic")(), sampler, **options))
    assert 65 == caught.value.exit_code
    assert [] == list(tmp_path.iterdir())
