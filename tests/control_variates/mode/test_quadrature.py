"""Too few quadrature nodes are refused or warned of; enough are not."""

from __future__ import annotations

import numpy as np
import pytest

import streammc
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.data_views import by_group
from streammc.models import gaussian, logistic


def grouped(tau, n_groups=400, rows=5, seed=1):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_groups), rows)
    eta = tau * rng.normal(size=n_groups)[labels]
    y = (rng.random(len(labels)) < 1 / (1 + np.exp(-eta))).astype(float)
    return streammc.from_arrays(
        np.ones((len(labels), 1)), y, groups=labels, feature_names=["Intercept"]
    )


@pytest.mark.parametrize("nodes", [25, 61])
def test_enough_nodes_give_no_warning(nodes):
    data, model = by_group(grouped(3.0), logistic(), nodes)
    cv = streammc.control_variates(data, model)
    assert not [line for line in cv.certificate.warnings if "quadrature" in line]


def test_too_few_nodes_are_refused_with_the_remedy():
    data, model = by_group(grouped(3.0), logistic(), 5)
    with pytest.raises(ModelError, match=r"quadrature.* with 5 nodes: use as many as are needed"):
        streammc.control_variates(data, model)


def test_a_gaussian_response_has_no_quadrature_error():
    data = grouped(0.5, rows=6)
    cv = streammc.control_variates(*by_group(data, gaussian(), 3))
    assert not [line for line in cv.certificate.warnings if "quadrature" in line]


def test_nodes_without_groups_are_refused():
    data = streammc.from_arrays(np.ones((9, 1)), np.arange(9.0))
    with pytest.raises(ConfigError, match="option nodes with groups"):
        by_group(data, gaussian(), 9)
