"""The estimators of scikit-learn: its own checks, and fits that are those of ``streammc.fit``."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import streammc
from streammc.errors import ConfigError, DataError

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from streammc.sklearn import EXPECTED_FAILED_CHECKS, BayesianClassifier, BayesianRegressor

PAGE = Path(__file__).resolve().parents[1] / "docs/how-to/scikit-learn.md"
QUICK = {"draws": 40, "warmup": 40, "chains": 1, "sampler": "hmc"}


def flights(n=300, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"distance": rng.gamma(2.0, 1.0, n), "origin": rng.choice(["a", "b"], n)})
    chance = 0.2 + 0.6 * (frame["origin"] == "b")
    return frame, np.where(rng.random(n) < chance, "late", "early")


@pytest.mark.parametrize(
    "estimator",
    [pytest.param(BayesianRegressor(**QUICK), marks=pytest.mark.slow), BayesianClassifier(**QUICK)],
)
def test_the_checks_of_scikit_learn_hold_but_for_those_with_a_reason(estimator):
    known = EXPECTED_FAILED_CHECKS
    results = check_estimator(estimator, expected_failed_checks=known, on_fail=None, on_skip=None)
    failed = [each["check_name"] for each in results if each["status"] == "failed"]
    assert [] == failed
    assert {each["status"] for each in results} <= {"passed", "skipped", "xfail"}
    if isinstance(estimator, BayesianRegressor):
        expected = {each["check_name"] for each in results if each["status"] == "xfail"}
        assert set(known) == expected


def test_a_classifier_predicts_the_labels_of_a_frame_by_its_formula():
    frame, late = flights()
    model = BayesianClassifier("log(distance) + C(origin)", random_state=3, **QUICK)
    fitted = clone(model).fit(frame, late)
    assert ["early", "late"] == list(fitted.classes_)
    assert fitted.score(frame, late) > 0.7
    chances, sd = fitted.predict_proba(frame, return_std=True)
    np.testing.assert_allclose(1.0, chances.sum(axis=1))
    assert (sd > 0.0).all()
    assert (sd < 0.2).all()
    table = {**frame, "y": (late == "late").astype(int)}
    seed = np.random.RandomState(3).randint(2**31 - 1)
    run = streammc.fit(table, "y ~ log(distance) + C(origin)", "logistic", seed=int(seed), **QUICK)
    assert fitted.run_.posterior.equals(run.posterior)
    for again in (pickle.loads(pickle.dumps(fitted)), model.fit(pl.from_pandas(frame), late)):
        np.testing.assert_array_equal(chances, again.predict_proba(frame))
    with pytest.raises(DataError, match="levels that the model has seen in column 'origin'"):
        fitted.predict(frame.assign(origin="c"))
    with pytest.raises(ConfigError, match="right side of a formula, found 'y ~ distance'"):
        BayesianClassifier("y ~ distance").fit(frame, late)


def test_without_a_formula_text_is_a_factor():
    frame, late = flights()
    model = BayesianClassifier(random_state=3, **QUICK).fit(frame, late)
    features = ["distance", "origin[T.b]"]
    assert features == model.scorer_.facts["features"]
    assert model.score(frame, late) > 0.7


def test_the_deviation_of_a_regressor_is_that_of_its_mean():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 2))
    y = X @ [1.0, -2.0] + rng.normal(size=400)
    model = BayesianRegressor(draws=400, warmup=200, chains=2, random_state=1).fit(X, y)
    mean, sd = model.predict(X, return_std=True)
    design = np.c_[np.ones(400), X]
    exact = np.sqrt(np.einsum("ij,jk,ik->i", design, np.linalg.inv(design.T @ design), design))
    # 200 of 800 draws are kept: the sd of a sample of them has an error of 5 %.
    assert np.abs(sd / exact - 1.0).max() < 4.5 * 0.05
    least = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert np.abs((mean - least) / exact).max() < 4.5 / np.sqrt(200)
    with pytest.raises(AssertionError):  # the sd of a response, with its noise
        assert np.abs(np.hypot(sd, 1.0) / exact - 1.0).max() < 4.5 * 0.05


@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_columns_of_an_array_are_matched_by_their_place():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(100, 2))
    y = X @ [3.0, -1.0] + 0.1 * rng.normal(size=100)
    frame = pd.DataFrame(X, columns=["x1", "x0"])
    of_frame, of_array = (BayesianRegressor(**QUICK).fit(each, y) for each in (frame, X))
    for model in (of_frame, pickle.loads(pickle.dumps(of_array))):
        np.testing.assert_array_equal(model.predict(frame), model.predict(X))
        assert model.score(X, y) > 0.9
    of_polars = of_frame.predict(pl.from_pandas(frame))
    np.testing.assert_array_equal(of_frame.predict(frame), of_polars)


def test_tables_and_families_that_do_not_fit_are_refused():
    frame, late = flights()
    model = BayesianClassifier("distance", random_state=3, **QUICK)
    for family in ("gaussian", streammc.models.poisson()):
        with pytest.raises(ConfigError, match="'logistic', 'probit' or 'network', found"):
            clone(model).set_params(family=family).fit(frame, late)
    with pytest.raises(DataError, match="data frame or an array as X, found dict"):
        model.fit(frame.to_dict("list"), late)
    with pytest.raises(DataError, match="in memory, found LazyFrame"):
        model.fit(pl.from_pandas(frame).lazy(), late)


def test_a_fit_that_fails_leaves_the_fitted_model():
    frame, late = flights()
    model = BayesianClassifier("distance", random_state=3, **QUICK).fit(frame, late)
    labels = model.predict(frame)
    with pytest.raises(DataError):
        model.fit(frame.assign(distance=np.nan), np.where(late == "late", "b", "a"))
    np.testing.assert_array_equal(labels, model.predict(frame))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_python_of_the_page_runs(capfd):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    code = code.replace("random_state=1)", "random_state=1, draws=50, warmup=50)")
    space: dict = {}
    exec(code, space)
    assert (5, 2) == space["chances"].shape
    assert "" == capfd.readouterr().out


def test_streammc_needs_no_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import streammc\nstreammc.fit, streammc.scorer.load\n"
        "try:\n    import streammc.sklearn\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "streammc[sklearn]" in done.stdout
