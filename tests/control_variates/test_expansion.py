from __future__ import annotations

import numpy as np
import pytest
from passes import table

from streammc.control_variates import ControlVariates, compute
from streammc.errors import IdentityError, StoreError
from streammc.models import logistic
from streammc.priors import normal


@pytest.fixture(scope="module")
def rows():
    return table("logistic", n=2000)


@pytest.fixture(scope="module")
def cv(rows):
    return compute(rows.store, rows.model)


def test_saved_control_variates_come_back_bit_for_bit(cv, rows, tmp_path):
    cv.save(tmp_path / "cv.zarr")
    again = ControlVariates.open(tmp_path / "cv.zarr", rows.store, rows.model)
    for (name, before), after in zip(
        cv.to_arrays()[0].items(), again.to_arrays()[0].values(), strict=True
    ):
        assert before.dtype == after.dtype, name
        np.testing.assert_array_equal(before, after)
    assert again.to_arrays()[1] == cv.to_arrays()[1]
    assert again.digest() == cv.digest()


def test_another_store_is_refused(cv, rows, tmp_path):
    cv.save(tmp_path / "cv.zarr")
    other = table("logistic", n=2000, seed=8).store
    with pytest.raises(IdentityError, match="fingerprint"):
        ControlVariates.open(tmp_path / "cv.zarr", other, rows.model)


def test_another_prior_is_refused(cv, rows, tmp_path):
    cv.save(tmp_path / "cv.zarr")
    with pytest.raises(IdentityError, match="model logistic"):
        ControlVariates.open(tmp_path / "cv.zarr", rows.store, logistic(prior=normal(scale=1.0)))


def test_another_kind_of_arrays_is_refused(cv):
    arrays, meta = cv.to_arrays()
    with pytest.raises(StoreError, match="format 1"):
        ControlVariates.from_arrays(arrays, {**meta, "format": 2})


@pytest.mark.parametrize("name", ["hessian", "candidates", "histogram_counts"])
def test_missing_or_short_arrays_are_refused(cv, name):
    arrays, meta = cv.to_arrays()
    with pytest.raises(StoreError, match="make them again"):
        ControlVariates.from_arrays({k: v for k, v in arrays.items() if k != name}, meta)
    with pytest.raises(StoreError, match="streammc summarize"):
        ControlVariates.from_arrays({**arrays, name: arrays[name][1:]}, meta)


def test_factor_inverts_the_posterior_precision(cv):
    precision = np.eye(4) / 100.0 - cv.hessian
    np.testing.assert_allclose(cv.factor @ cv.factor.T @ precision, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(
        cv.posterior_sd(), np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-10
    )
