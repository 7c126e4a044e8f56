"""Error of the quadrature over group effects: how much it varies over the posterior.

A constant error of the log-likelihood cancels in every ratio of densities. What biases a posterior
is its variation with theta, summed over all groups.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from streammc.control_variates.coordinates import covering_draws
from streammc.control_variates.mode.exact_fit import improper_scale
from streammc.control_variates.mode.factor_scales import softened
from streammc.control_variates.mode.newton import in_memory, maximise
from streammc.errors import ModelError
from streammc.likelihood.data_views import draw_subset
from streammc.likelihood.pass_cost import SUBSET_BYTES
from streammc.models.mixed.effect_terms import is_table_model
from streammc.models.mixed.group_constants import MOST_NODES, PANELS
from streammc.models.responses import invalid_responses
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Dataset, Matrix, Model, Rows, Vector

if TYPE_CHECKING:
    from streammc.models.mixed.mixed_model import TableModel

M = TypeVar("M")

LARGEST_VARIATION: Final = 0.01
"""Of the log-likelihood; above it a warning."""
REFUSED_VARIATION: Final = 0.1
_CHOSEN_VARIATION: Final = 0.005
"""Largest variation of an automatic choice: below the limit of the check at ``theta_star``."""
_NODES: Final = (15, 21, 31, 41, MOST_NODES, PANELS)
"""Nodes of a random intercept to choose from."""
_NODES_OF_TWO: Final = (9, 13, 17, 21, 31)
"""Nodes for each of intercept and slope."""
_MORE_NODES: Final = 10
_POINTS: Final = 8
_WIDER: Final = 1.5
"""How much wider than the posterior the draws of a choice are than those of the check."""
_COMPARED_ROWS: Final = 2**13
"""Rows of the groups that are integrated on panels, for comparison."""
_FEWEST_GROUPS: Final = 16


def quadrature_variation(
    model: TableModel, rows: Rows, theta: Matrix, n_groups: int
) -> tuple[float, int]:
    """Return the largest change of the error over points ``theta`` (S, d), and the nodes used.

    The error is the difference to panels, which see every mode of the effects; with a slope to ten
    more nodes per effect, around every mode of a Student t. ``rows`` are a sample of the groups;
    their sum is scaled to ``n_groups``. A Gaussian response and panels have no error.
    """
    inner: Any = model.inner
    if model.nodes == PANELS or inner.name == "gaussian":
        return 0.0, model.nodes
    size = max(float(np.mean(rows.X[:, 1])), 1.0) if len(rows.y) else 1.0
    compared = min(len(rows.y), max(int(_COMPARED_ROWS / size), _FEWEST_GROUPS))
    if model.slope is None or inner.heavy_tailed:
        places = np.linspace(0.0, len(rows.y) - 1.0, compared).astype(np.int64)
        rows = Rows(*(np.ascontiguousarray(part[places]) for part in rows))
    finer = replace(model, nodes=PANELS if model.slope is None else model.nodes + _MORE_NODES)
    exact = _of_modes if model.slope is not None and inner.heavy_tailed else _log_lik
    errors = [exact(finer, rows, each) - _log_lik(model, rows, each) for each in theta]
    with np.errstate(invalid="ignore"):
        sums = np.array([float(np.sum(rows.weight * error)) for error in errors])
    scale = n_groups / max(len(rows.y), 1)
    return float(np.max(np.abs(sums - sums.mean())) * scale), model.nodes


def quadrature_warnings(
    model: Model, rows: Rows, theta_star: Vector, deltas: Matrix, n_groups: int
) -> list[str]:
    """Return a warning if the error varies by more than 0.01; see :func:`quadrature_variation`.

    ModelError if it varies by more than 0.1, or is not finite.
    """
    if not is_table_model(model):
        return []
    points = theta_star + np.concatenate([np.zeros((1, len(theta_star))), deltas[:_POINTS]])
    variation, nodes = quadrature_variation(model, rows, points, n_groups)
    if variation <= LARGEST_VARIATION:
        return []
    remedy = f"use more, --option nodes={min(2 * nodes + 1, MOST_NODES)}"
    if model.slope is None:
        remedy = f"use as many as are needed, --option nodes={PANELS}"
    elif nodes >= MOST_NODES:
        remedy = (
            f"draw the effects in place of integrating them out, with --group-as "
            f"{model.column}=crossed at the ingest"
        )
    text = (
        f"expected an error of the quadrature over the effects of {model.column} that varies by "
        f"less than {LARGEST_VARIATION} over the posterior, found {variation:.2g} with {nodes} "
        f"nodes: {remedy}"
    )
    if not variation <= REFUSED_VARIATION:
        raise ModelError(text)
    return [text]


def _log_lik(model: TableModel, rows: Rows, theta: Vector) -> Vector:
    """Return the log-likelihoods (m,) of the groups ``rows`` at ``theta``."""
    m = len(rows.y)
    out = np.empty((1, m))
    eta = np.repeat(theta[:, None], m, axis=1)
    model.link(eta, rows.X.T, np.ascontiguousarray(rows.y), model.constants, 0, out)
    values: Vector = out[0]
    return values


def _of_modes(model: TableModel, rows: Rows, theta: Vector) -> Vector:
    """Return the same summed over the modes of the effects of each group."""
    from streammc.models.mixed.group_link import sum_of_modes
    from streammc.models.mixed.mixed_model import MixedModel

    table, group = model.rows_of(rows.X)
    constants = vars(MixedModel)["constants"].fget(model)
    values = np.empty(len(rows.y))
    for g in range(len(values)):
        own = group == g
        X = np.vstack([table.X[own].T, table.offset[own], table.weight[own]])
        values[g] = sum_of_modes(theta, X, np.ascontiguousarray(table.y[own]), constants)
    return values


def with_nodes(model: M, dataset: Dataset) -> M:
    """Return a mixed model with enough quadrature nodes for these data, the same in every call.

    The nodes are the fewest of a list whose error varies by less than 0.005 over draws around
    the mode of a sample of the groups, as wide as the posterior of all; the last of the list,
    panels or 31 x 31, if no other suffices. A given number of nodes is kept. Where the sample has
    no mode the full pass raises the error.
    """
    untyped: Any = model
    groups = dataset.units
    if groups.unit_offset is None or not is_table_model(model) or not model.automatic:
        return model
    labels = untyped.labels(groups.feature_names)
    rows = draw_subset(groups, SUBSET_BYTES)
    if invalid_responses(untyped, rows.X, rows.y) is not None:
        return model
    table = np.ascontiguousarray(untyped.prior_table(labels), dtype=np.float64)
    if len(rows.y) < groups.n_rows:
        table = softened(table)
    if improper_scale(untyped, rows, table, labels)[1]:
        return model
    scale = groups.n_rows / len(rows.y)
    deltas = np.concatenate(
        [np.zeros((1, len(labels))), covering_draws(2 * _POINTS, len(labels), 0)]
    )
    start = untyped.start(rows)
    for nodes in _NODES if untyped.slope is None else _NODES_OF_TWO:
        untyped = replace(untyped, nodes=nodes, automatic=False)
        with single_threaded(), np.errstate(all="ignore"):
            try:
                point = maximise(in_memory(untyped, rows, scale), start, table)
            except ModelError:
                continue  # with too few nodes there may be no mode, or none that is one
        start, points = point.theta, point.theta + _WIDER * (deltas @ point.factor.T)
        if quadrature_variation(untyped, rows, points, groups.n_rows)[0] <= _CHOSEN_VARIATION:
            break
    return untyped  # type: ignore[no-any-return]


def as_found(model: M, nodes: int | None) -> M:
    """Return a mixed model whose nodes are open with those that were found for it before."""
    untyped: Any = model
    if nodes is None or not untyped.automatic:
        return model
    return replace(untyped, nodes=int(nodes), automatic=False)  # type: ignore[no-any-return]
