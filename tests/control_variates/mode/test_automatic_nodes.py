"""The number of quadrature nodes follows from the data where none is given."""

from __future__ import annotations

import numpy as np
import pytest

import streammc
from streammc.control_variates.bound import as_recorded, resolved
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.mode import quadrature
from streammc.likelihood.data_views import by_group, tempered
from streammc.models import gaussian, logistic, poisson, student_t
from streammc.models.mixed import group_constants
from streammc.priors import normal


def counts(tau, n_groups=400):
    """Poisson counts of groups of 1 to 5 rows."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(n_groups), rng.integers(1, 6, n_groups))
    y = rng.poisson(np.exp(0.5 + tau * rng.normal(size=n_groups)[labels])).astype(float)
    ones = np.ones((len(y), 1))
    return streammc.from_arrays(ones, y, groups=labels, feature_names=["Intercept"])


def variation(data, model):
    """Return the variation of the error over the score draws, and the certificate."""
    cv = streammc.control_variates(data, model)
    groups, model = by_group(data, model)
    rows = quadrature.draw_subset(groups, 2**27)
    points = cv.theta_star + cv.score_draws[:8]
    used = quadrature.replace(resolved(model, groups), nodes=cv.certificate.nodes)
    found = quadrature.quadrature_variation(used, rows, points, groups.n_rows)[0]
    return found, cv.certificate


def test_data_that_need_more_nodes_get_them():
    found, certificate = variation(counts(3.0, 500), poisson())
    assert certificate.nodes in (21, 31, 41)
    assert found < quadrature.LARGEST_VARIATION
    assert certificate.warnings == ()


def test_data_that_do_not_keep_the_default():
    found, certificate = variation(counts(0.5), poisson())
    assert certificate.nodes == 15
    assert found < quadrature.LARGEST_VARIATION


def test_a_given_number_of_nodes_is_only_checked():
    cv = streammc.control_variates(*by_group(counts(3.0, 500), poisson(), 15))
    assert cv.certificate.nodes == 15
    assert (
        "with 15 nodes: use as many as are needed, --option nodes=0" in cv.certificate.warnings[0]
    )


def test_a_gaussian_response_keeps_the_default():
    _, model = by_group(counts(1.0), gaussian())
    assert not model.automatic


def test_the_number_is_the_same_at_every_temperature():
    groups, model = by_group(counts(3.0, 500), poisson())
    assert resolved(model, groups).nodes == resolved(model, tempered(groups, 10.0)).nodes > 15


def test_panels_are_taken_where_no_number_of_nodes_suffices(monkeypatch):
    monkeypatch.setattr(quadrature, "_CHOSEN_VARIATION", 0.0)
    found, certificate = variation(counts(1.0, 50), poisson())
    assert certificate.nodes == group_constants.PANELS
    assert found == 0.0
    assert certificate.warnings == ()


def test_a_mode_that_the_nodes_do_not_see_is_an_error_of_theirs():
    """Ten more nodes around the same mode would agree with these."""
    y = np.tile([30.0, 29.8, 30.0, 0.0, 29.9], 2)
    data = streammc.from_arrays(
        np.ones((10, 1)), y, groups=np.repeat([0, 1], 5), feature_names=["Intercept"]
    )
    groups, model = by_group(data, student_t(df=7.4), 15)
    rows = quadrature.draw_subset(groups, 2**27)
    points = np.array([[beta, -1.0, np.log(50.0)] for beta in (0.0, 20.0)])
    assert quadrature.quadrature_variation(model, rows, points, 2)[0] > 10.0
    for theta in points:
        few, more = (
            quadrature._log_lik(quadrature.replace(model, nodes=nodes), rows, theta)
            for nodes in (51, 61)
        )
        assert np.abs(few - more).max() < 1e-3


@pytest.mark.filterwarnings("ignore::streammc.errors.SamplingWarning")
def test_saved_control_variates_bring_their_number(tmp_path):
    data = counts(0.5)
    cv = streammc.control_variates(*by_group(data, poisson(), 21))
    cv.save(tmp_path / "cv.zarr")
    kept = ControlVariates.open(tmp_path / "cv.zarr", data, poisson())
    assert kept.certificate.nodes == 21
    path = tmp_path / "run"
    words = {"draws": 20, "warmup": 20, "chains": 1, "seed": 1, "path": path, "audit": False}
    streammc.sample(data, poisson(), control_variates=kept, **words)
    from streammc.trace.run_directory import RunDirectory

    assert RunDirectory.open(path).identity["model"]["nodes"] == 21
    again = streammc.sample(data, poisson(), control_variates=kept, **words)
    assert again.posterior.sizes["draw"] == 20


def test_a_run_keeps_the_number_it_was_made_with():
    groups, model = by_group(counts(0.5), logistic(prior=normal(scale=1.0)))
    assert as_recorded(model, {"nodes": 31}).nodes == 31
    fixed = by_group(counts(0.5), logistic(prior=normal(scale=1.0)), 9)[1]
    assert as_recorded(fixed, {"nodes": 31}).nodes == 9
    assert groups.n_rows == 400


def test_a_second_mode_of_two_effects_is_an_error_of_the_nodes():
    y = np.tile([30.0, 29.8, 30.0, 0.0, 29.9], 2)
    x = np.tile([0.1, -0.2, 0.0, 0.1, 0.05], 2)
    data = streammc.from_arrays(
        np.c_[np.ones(10), x], y, groups=np.repeat([0, 1], 5), feature_names=["Intercept", "x"]
    )
    data.groups = quadrature.replace(data.groups, terms=("1", "x"), correlated=False)
    groups, model = by_group(data, student_t(df=7.4), 15)
    rows = quadrature.draw_subset(groups, 2**27)
    points = np.array([[beta, 0.0, -1.0, np.log(50.0), 0.0] for beta in (0.0, 20.0)])
    assert quadrature.quadrature_variation(model, rows, points, 2)[0] > 10.0
    few, more = (
        quadrature._log_lik(quadrature.replace(model, nodes=nodes), rows, points[0])
        for nodes in (21, 31)
    )
    assert np.abs(few - more).max() < 0.01
