"""A data set and a model bound to each other, once, where a command or a public function begins.

Bound are the units of the model, the temperature, the number of categories, the scales of default
priors and the quadrature nodes: from rows in memory, or as recorded by a run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from streammc.control_variates.mode.quadrature import as_found, with_nodes
from streammc.docstrings import documented
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.data_views import by_group, counted_rows, draw_subset, tempered
from streammc.models.responses import needs_response, unexpected_offset
from streammc.priors import NamedPriors, ScaledPriors, from_description
from streammc.priors.scaled import with_defaults
from streammc.protocols import Dataset, Index, Matrix, Model, PassTask, RowBlock, Rows
from streammc.registry import MODELS, SAMPLERS

PASS_OPTIONS: Final = """
Parameters
----------
scheduler : None, 'sync', int, str or distributed.Client
    Where full passes run: ``None``, on all cores; ``"sync"``, in this thread; a number of
    threads; a Dask cluster by its address, ``"tls://host:port"``, ``"tcp://host:port"`` on this
    machine or the scheduler's ``"FILE.json"``, or by a client; ``"local:N"``, N processes.
progress : Callable[[int, int], None] | None
    Called as ``progress(done, total)`` after every block of a full pass, in blocks; ``done``
    starts again with every pass.
"""
"""Parameters of every function that makes a full pass; see ``Dataset.reduce``."""

_MARKS: Final = {
    "data set": ("fingerprint", "a data set, such as streammc.open_store(path)"),
    "model": ("prior_table", "a model, such as streammc.models.logistic()"),
    "sampler": ("describe", "a sampler, such as streammc.samplers.hmc(), or None"),
}
"""Per kind, an attribute that identifies it, and the expected argument in messages."""


def check_kinds(store: object, *model: object, sampler: object = None) -> None:
    """Raise ConfigError unless the arguments are a data set, models, and a sampler or None."""
    arguments = [("data set", store), *(("model", each) for each in model)]
    for kind, argument in arguments if sampler is None else [*arguments, ("sampler", sampler)]:
        mark, expected = _MARKS[kind]
        if hasattr(argument, mark) and not isinstance(argument, type):
            continue
        if isinstance(argument, str) and (builder := _named(kind, argument)):
            raise ConfigError(f"expected a {kind}, found the text {argument!r}: write {builder}")
        raise ConfigError(
            f"expected {expected}, found {type(argument).__name__}{_hint(kind, argument)}"
        )


def check_control_variates(argument: object) -> None:
    """Raise ConfigError unless it is control variates or ``None``, but a path, for example."""
    if argument is not None and not hasattr(argument, "theta_star"):
        raise ConfigError(
            f"expected control variates, found {type(argument).__name__}: pass what "
            "streammc.control_variates(store, model) returned"
        )


def check_progress(progress: object) -> None:
    """Raise ConfigError if ``progress`` is neither a function nor ``None``."""
    if progress is not None and not callable(progress):
        raise ConfigError(
            f"expected progress to be a function, called with counts as the work goes on, found "
            f"{progress!r}: leave it out, or give one, such as print"
        )


def _named(kind: str, name: str) -> str | None:
    """Return the call that builds the model or sampler with the closest name, or None."""
    builders = {"model": MODELS, "sampler": SAMPLERS}.get(kind, {})
    near = get_close_matches(name.lower().replace("_", "-"), builders, n=1)
    return f"streammc.{kind}s.{near[0].replace('-', '_')}()" if near else None


def _hint(kind: str, argument: object) -> str:
    if kind == "data set" and isinstance(argument, str | os.PathLike):
        return f": write streammc.open_store({os.fspath(argument)!r})"
    if kind == "data set" and hasattr(argument, "columns"):
        return ": call streammc.from_table(table, response=...), with like= for prediction"
    if callable(argument):
        return ": call it, name()"
    return ": pass one"


M = TypeVar("M")

_COUNTED: Final = dict[tuple[str, int], Index]()
"""Rows of each category of a table, by its fingerprint and the most categories."""
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
    """Return a model of these units with the scales of its default priors, levels and nodes."""
    untyped: Any = model
    if untyped.joint is not None and counted_rows(dataset) > dataset.table.n_rows:
        raise ModelError(
            f"expected rows that count once in {dataset.address!r}, found cells: a likelihood of "
            "all rows together has no place for them; leave out --cells"
        )
    regression, table = untyped.of_a_row, dataset.table
    if dataset.n_rows < 1 or (dataset.response is None and needs_response(untyped)):
        return model
    prior: Any = untyped.prior
    recorded = isinstance(prior, NamedPriors) and any(p.covariance is None for p in prior.joint)
    scaled = isinstance(prior, ScaledPriors) or recorded
    if scaled or regression.takes_levels:
        rows = draw_subset(
            table if dataset.unit_offset is not None else dataset.units, _SUBSET_BYTES
        )
    offset = table.attributes.get("offset")
    if not regression.takes_offset and (offset or rows.offset.any()):
        raise unexpected_offset(regression, f"{offset or 'offset'!r} in {dataset.address!r}")
    if regression.takes_levels:
        sized = with_levels(regression, table, rows)
        model = untyped = sized if regression is untyped else replace(untyped, inner=sized)
    if scaled:
        coding = table.coding()
        if recorded:
            named = tuple(pair for pair in prior.priors if pair[0] not in prior.scaled)
            unscaled = replace(untyped, prior=ScaledPriors(named))
            joint = with_defaults(unscaled, rows, table.feature_names, coding).prior.joint
            model = replace(untyped, prior=replace(prior, joint=joint))
        else:
            model = with_defaults(model, rows, table.feature_names, coding)
    return with_nodes(model, dataset)


def with_levels(model: M, table: Dataset, rows: Rows) -> M:
    """Return a model of categories with as many as the rows have, where their number is open.

    Of a large table ``rows`` are a sample, and all are counted where it misses a category. The
    full pass refuses a row of a higher category, and any other invalid response: a model of such
    rows is returned unchanged.

    Raises
    ------
    ModelError
        If all rows are of one category, or a category never occurs.
    """
    untyped: Any = model
    y = rows.y[rows.weight > 0.0]
    if not len(y) or untyped.response_fault(y) is not None:
        return model
    count = np.bincount(y.astype(np.int64), minlength=untyped.levels or 2)
    if len(rows.y) < table.n_rows and not count.all():
        key = table.fingerprint, untyped.most_levels
        if key not in _COUNTED:
            _COUNTED[key] = table.reduce(_Categories(untyped.most_levels))
        every = _COUNTED[key]
        highest = int(np.flatnonzero(every).max(initial=1))
        count = every[: untyped.levels or highest + 1]
    found, absent = np.flatnonzero(count), np.flatnonzero(count == 0)
    if len(found) == 1:
        raise ModelError(
            f"{untyped.name}: expected two categories or more in the column {table.response!r}, "
            f"found {found[0]} alone: there is nothing to fit; choose another response"
        )
    if len(absent):
        raise ModelError(
            f"{untyped.name}: expected each of the categories 0 to {len(count) - 1} in the column "
            f"{table.response!r}, found none of {', '.join(map(str, absent))}: recode those that "
            "occur from 0, without gaps" + ", and leave levels out" * (untyped.levels is not None)
        )
    return replace(untyped, levels=untyped.levels or len(count))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Categories(PassTask[Index]):
    """``PassTask`` that counts the rows (most,) of each category; others are left out."""

    most: int

    def map(self, block: RowBlock) -> Index:
        """Count the rows of a block."""
        y = block.y[block.weight > 0.0]
        of_a_category = (y >= 0.0) & (y < self.most) & (np.floor(y) == y)
        return np.bincount(y[of_a_category].astype(np.int64), minlength=self.most)

    def combine(self, left: Index, right: Index) -> Index:
        """Add the counts of two blocks."""
        return left + right


def as_recorded(model: M, described: Mapping[str, Any]) -> M:
    """Return the model with scales of default priors, levels and so on, as a run recorded them.

    ``described`` is ``Model.describe()`` of the run. Priors of the model that are given by name
    stay. If the run has no scaled defaults, or names other priors, the model is returned unchanged.
    """
    model = as_found(model, described.get("nodes"))
    untyped: Any = model
    regression = untyped.of_a_row
    if regression.takes_levels and regression.levels is None:
        sized = replace(regression, levels=described.get("inner", described).get("levels"))
        model = untyped = sized if regression is untyped else replace(untyped, inner=sized)
    if regression.takes_censored and described.get("censored"):
        model = untyped = replace(untyped, censored=True)
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
