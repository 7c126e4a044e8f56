"""Default priors get their numbers: from rows in memory, or from the run that began with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from streammc.control_variates.kinds import check_kinds
from streammc.control_variates.subset import draw_subset
from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.likelihood.tempered import Tempered
from streammc.priors import NamedPriors, ScaledPriors, from_description
from streammc.priors.scaled import with_defaults
from streammc.protocols import Dataset

M = TypeVar("M")

_SUBSET_BYTES: Final = 2**24
"""Up to 65,536 rows of 29 columns, fewer where they are wider."""


@documented()
def resolved(model: M, dataset: Dataset) -> M:
    """Return the model with the numbers of its default priors.

    They come from all rows, or a sample of up to 65,536 that is the same in every call.
    No temperature changes them. A model whose prior has its numbers is returned as it is;
    so is one that cannot be fitted to these data, since the full pass says why.

    Parameters
    ----------
    model
        A model.
    dataset
        The rows that it will be fitted to.

    Raises
    ------
    ConfigError
        If one of them is of another kind.
    """
    check_kinds(dataset, model)
    given: Any = model
    while isinstance(dataset, Tempered):
        dataset = dataset.dataset
    if not isinstance(getattr(model, "prior", None), ScaledPriors) or dataset.n_rows < 1:
        return model
    if dataset.response is None and (given.n_linear > 0 or given.joint is not None):
        return model
    return with_defaults(model, draw_subset(dataset, _SUBSET_BYTES), dataset.feature_names)


def as_recorded(model: M, described: Mapping[str, Any]) -> M:
    """Return the model with the numbers of the default priors that a run recorded.

    Parameters
    ----------
    model
        A model; what was given by name stays.
    described
        ``Model.describe()`` of the run. Where it has no scaled defaults, or priors of other
        names were given, the model is returned as it is.
    """
    given: Any = model
    prior = getattr(model, "prior", None)
    if not isinstance(prior, ScaledPriors):
        return model
    try:
        kept = from_description(described["prior"])
    except (ConfigError, KeyError, TypeError):
        return model  # the comparison of identities says what differs
    if not isinstance(kept, NamedPriors) or not kept.scaled:
        return model
    named = dict(kept.priors)
    defaults = {label: named.pop(label) for label in kept.scaled if label in named}
    if {*named} != {name for name, _ in prior.priors}:
        return model
    merged = defaults | dict(prior.priors)
    recorded = NamedPriors(tuple(sorted(merged.items())), kept.scaled)
    return replace(given, prior=recorded)  # type: ignore[no-any-return]
