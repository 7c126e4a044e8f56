"""A run records how its parameters go to the table's scale; nothing is read from their names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from streammc.errors import StoreError
from streammc.models import gaussian_mixture_tied, gaussian_process, logistic, user
from streammc.models.table_scale import COEFFICIENT, EFFECTS, ScaleBlock, describe_blocks
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.runs.record import TABLE_SCALE, blocks_of_run, label_references
from streammc.samplers import hmc
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import StoreWriter, open_store
from streammc.trace.run_directory import RunDirectory

SHARED = ("length_scale", "theta1", "theta2")


def own(name="own", predictors=("mu",)):
    """A linear model and three shared parameters that are pulled to 1, 2 and 3."""
    p = len(predictors) + 3
    at = np.array([1.0, 2.0, 3.0])[:, None]

    def log_lik(eta, y):
        return -0.5 * (y - eta[0]) ** 2 - 0.5 * ((eta[1:] - at) ** 2).sum(axis=0)

    def gradient(eta, y):
        return np.concatenate([(y - eta[0])[None], at - eta[1:]])

    def hessian(eta, y):
        return -np.repeat(np.eye(p)[:, :, None], len(y), axis=2)

    options = {"predictors": predictors, "locations": SHARED, "prior": normal(10.0)}
    return user(name, log_lik=log_lik, gradient=gradient, hessian=hessian, **options)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "s.zarr"
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    standard = {"mean": [0.0, 30.0], "scale": [1.0, 4.0]}
    with StoreWriter(path, features=["Intercept", "x"]) as writer:
        writer.append(X, X @ [1.0, 2.0] + rng.normal(size=400))
        writer.commit({"response": "y", "intercept": True, "standardization": standard})
    return open_store(path)


def test_a_users_parameters_are_not_rescaled_by_their_spelling(store, tmp_path):
    options = {"draws": 100, "warmup": 100, "chains": 1, "seed": 1, "path": tmp_path / "run"}
    found = run_job(RunRequest(store, own(), hmc(), **options)).summary
    for label in SHARED:
        assert found["parameters"][label] == found["parameters_original"][label]
    slope, moved = (found[part]["mu[x]"] for part in ("parameters", "parameters_original"))
    assert moved["mean"] == pytest.approx(slope["mean"] / 4.0)
    intercept = found["parameters"]["mu[Intercept]"]["mean"] - 30.0 / 4.0 * slope["mean"]
    assert found["parameters_original"]["mu[Intercept]"]["mean"] == pytest.approx(intercept)
    recorded = RunDirectory.open(tmp_path / "run").attributes[TABLE_SCALE]
    assert recorded == describe_blocks(own().table_scale(["Intercept", "x"]))


@pytest.mark.parametrize(
    ("model", "features"),
    [
        (logistic(), ["Intercept", "a"]),
        (logistic(), ["a", "b"]),
        (gaussian_process(), ["a", "b"]),
        (gaussian_mixture_tied(), ["a"]),
        (own(), ["a", "b"]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_run_of_an_earlier_version_has_the_blocks_of_its_model(model, features):
    old = SimpleNamespace(attributes={}, identity={"model": model.describe()})
    kept = [block._replace(exponential="") for block in blocks_of_run(old, features)]
    assert kept == [block._replace(exponential="") for block in model.table_scale(features)]


def test_a_run_of_an_earlier_version_and_another_package_is_told(store):
    old = SimpleNamespace(attributes={}, identity={"model": {"name": "theirs"}})
    with pytest.raises(StoreError, match="sample it again"):
        blocks_of_run(old, ["a"])


def test_as_many_scales_of_effects_as_columns_are_against_no_level() -> None:
    columns = ["Intercept", "age", "urban[T.Y]"]
    coefficients = ScaleBlock(COEFFICIENT, tuple(f"beta[{each}]" for each in columns))
    scales = ScaleBlock(EFFECTS, ("tau[g:Intercept]", "tau[g:age]", "rho[g]"), "age")
    known = {"urban[T.Y]": ["urban[N]"]}
    found = label_references(known, [coefficients, scales], columns)
    assert {"beta[urban[T.Y]]": ["urban[N]"]} == found
