"""A data set and a model bound to each other, once, where a command or a public function begins.

Bound are the units of the model, the temperature, the scales of default priors and the quadrature
nodes: from rows in memory, or as recorded by a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from streammc.control_variates.kinds import check_kinds
from streammc.control_variates.mode.quadrature import as_found, with_nodes
from streammc.control_variates.subset import draw_subset
from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.likelihood.data_views import by_group, tempered
from streammc.likelihood.invalid_responses import needs_response
from streammc.priors import NamedPriors, ScaledPriors, from_description
from streammc.priors.scaled import with_defaults
from streammc.protocols import Dataset, Matrix, Model

M = TypeVar("M")

_SUBSET_BYTES: Final = 2**24
"""Memory for the rows that set the scales: 65,536 rows of 29 columns."""


@dataclass(frozen=True, eq=False)
class Bound:
    """A data set and a model that fit each other: what passes, plans and samplers work on."""

    dataset: Dataset
    """Rows or groups, whichever are the units of the model, at the temperature of the run."""
    model: Model
    """The model, mixed for groups, with scales of default priors and quadrature nodes."""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names (d,) of the parameters."""
        return tuple(self.model.labels(self.dataset.feature_names))

    @cached_property
    def prior_table(self) -> Matrix:
        """Prior (d, .) of the parameters; see ``protocols.Prior``."""
        return np.ascontiguousarray(self.model.prior_table(self.labels), dtype=np.float64)


def bind(
    dataset: Dataset,
    model: Model,
    *,
    temperature: float = 1.0,
    nodes: int | None = None,
) -> Bound:
    """Return a data set and a model as passes and samplers see them.

    Parameters
    ----------
    temperature
        A factor on that of the data set.
    nodes
        Quadrature nodes that were found for these data before; ``None``: as many as they need.

    Raises
    ------
    ConfigError
        If the model has no mixed model for the groups of the data set.
    """
    dataset, model = by_group(dataset, model)
    model = with_data(as_found(model, nodes), dataset)
    return Bound(tempered(dataset, temperature), model)


@documented()
def resolved(model: M, dataset: Dataset) -> M:
    """Return the model with the scales of its default priors computed from the data.

    The scales come from all rows, or from a sample of up to 65,536 rows, the same in every
    call; the temperature does not change them. A mixed model gets as many quadrature nodes as
    its groups need. A model that needs neither is returned unchanged. So is a model that cannot be
    fitted to these data: the full pass raises the error.

    Parameters
    ----------
    model
        A model.
    dataset
        The rows that it will be fitted to.

    Raises
    ------
    ConfigError
        If ``model`` is not a model, or ``dataset`` not a data set.
    """
    check_kinds(dataset, model)
    dataset, model = by_group(dataset, model)
    return with_data(model, dataset)


def with_data(model: M, dataset: Dataset) -> M:
    """Return a model of these units with the scales of its default priors, and its nodes."""
    untyped: Any = model
    if dataset.n_rows < 1 or (dataset.response is None and needs_response(untyped)):
        return model
    prior: Any = untyped.prior
    recorded = isinstance(prior, NamedPriors) and any(p.covariance is None for p in prior.joint)
    if isinstance(prior, ScaledPriors) or recorded:
        table = dataset.table
        rows = draw_subset(table, _SUBSET_BYTES)
        coding = table.coding()
        if recorded:
            named = tuple(pair for pair in prior.priors if pair[0] not in prior.scaled)
            unscaled = replace(untyped, prior=ScaledPriors(named))
            joint = with_defaults(unscaled, rows, table.feature_names, coding).prior.joint
            model = replace(untyped, prior=replace(prior, joint=joint))
        else:
            model = with_defaults(model, rows, table.feature_names, coding)
    return with_nodes(model, dataset)


def as_recorded(model: M, described: Mapping[str, Any]) -> M:
    """Return the model with scales of default priors, and quadrature nodes, as a run recorded them.

    ``described`` is ``Model.describe()`` of the run. Priors of the model that are given by name
    stay. If the run has no scaled defaults, or names other priors, the model is returned unchanged.
    """
    model = as_found(model, described.get("nodes"))
    untyped: Any = model
    prior = untyped.prior
    if not isinstance(prior, ScaledPriors):
        return model
    try:
        of_run = from_description(described["prior"])
    except (ConfigError, KeyError, TypeError):
        return model  # the identity check reports the difference
    if not isinstance(of_run, NamedPriors) or not of_run.scaled:
        return model
    named = dict(of_run.priors)
    defaults = {label: named.pop(label) for label in of_run.scaled if label in named}
    if {*named} != {name for name, _ in prior.priors}:
        return model
    merged = defaults | dict(prior.priors)
    recorded = NamedPriors(tuple(sorted(merged.items())), of_run.scaled, of_run.joint)
    return replace(untyped, prior=recorded)  # type: ignore[no-any-return]
