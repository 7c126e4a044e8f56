"""The settings of the search for ``theta_star``, checked before any row is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from streammc.control_variates.forecast import Phases
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.grouped import ungrouped
from streammc.likelihood.invalid_responses import needs_response
from streammc.likelihood.tempered import split_fingerprint
from streammc.numerics.prior import FLAT, KIND, LOG_FLAT
from streammc.protocols import Dataset, Matrix, Model, Vector


@dataclass(frozen=True, kw_only=True)
class PassRequest:
    """Settings of the search for ``theta_star``; see ``certify.compute``.

    Attributes
    ----------
    dataset, model
        The rows with their temperature, and the likelihood with its priors resolved.
    theta_star
        (d,) given centre, or ``None``.
    table, labels
        Prior table (d, .) and names (d,) of the parameters.
    """

    dataset: Dataset
    model: Model
    order: int
    passes: int | None
    theta_star: Vector | None
    near: bool
    table: Matrix
    labels: tuple[str, ...]
    candidate_rows: int
    memory_limit: int
    scheduler: Any
    progress: Callable[[int, int], None] | None
    phases: Phases | None


def check_request(
    dataset: Dataset, model: Model, order: int, passes: int | None, theta_star: Vector | None
) -> tuple[Vector | None, Matrix, tuple[str, ...]]:
    """Return first centre, prior table and labels; raise if the request is not valid."""
    if isinstance(order, bool) or order not in (0, 1, 2):
        raise ConfigError(f"expected order 0, 1 or 2, found {order!r}; choose 2 if in doubt")
    if passes is not None and not _whole(passes, 1):
        raise ConfigError(
            f"expected a whole number of passes >= 1, found {passes!r}; leave it out to certify"
        )
    if dataset.n_rows < 1:
        raise ModelError(f"expected rows, found none in {dataset.address}; ingest a table first")
    if dataset.response is None and needs_response(model):
        raise ModelError(
            f"{model.name}: expected a response in the data, found none in {dataset.address!r}; "
            "name its column with 'streammc ingest --response'"
        )
    _refuse_centred(dataset, model)
    labels = tuple(model.labels(dataset.feature_names))
    table = np.ascontiguousarray(model.prior_table(labels), dtype=np.float64)
    free = int(np.count_nonzero(table[:, KIND] == FLAT))
    heat = split_fingerprint(dataset.fingerprint)[1]
    n_rows = ungrouped(dataset).n_rows
    if np.any(table[:, KIND] == LOG_FLAT) and n_rows / heat - free < 2:
        at = f" at temperature {heat:g}" if heat != 1.0 else ""
        raise ModelError(
            f"expected at least {math.ceil(heat * (free + 2))} rows for {free} coefficients and a "
            f"scale with flat priors{at}, found {n_rows}: the posterior is improper; give "
            "the scale a proper prior (--prior 'sigma=half_normal(10)')"
        )
    if theta_star is None:
        return None, table, labels
    try:
        theta = np.array(theta_star, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected theta_star of {len(labels)} finite numbers, found "
            f"{type(theta_star).__name__}; give one number for each parameter"
        ) from None
    if theta.shape != (len(labels),) or not np.all(np.isfinite(theta)):
        raise ConfigError(
            f"expected theta_star of {len(labels)} finite numbers, found shape {theta.shape}; "
            f"the parameters are {', '.join(labels[:6])}{', ...' if len(labels) > 6 else ''}"
            "; give one number for each"
        )
    return theta, table, labels


def _refuse_centred(dataset: Dataset, model: Model) -> None:
    """Raise ModelError for centred columns of a regression without intercept.

    Stores of earlier versions have such columns: their coefficients are those of another model.
    """
    attributes = ungrouped(dataset).attributes
    moved = any((attributes.get("standardization") or {}).get("mean", ()))
    if moved and not attributes.get("intercept") and model.n_linear > 0:
        raise ModelError(
            f"{model.name}: expected an intercept, or columns that are not centred, found centred "
            f"columns without intercept in {dataset.address!r}: ingest the table again, which then "
            "only scales them"
        )


def _whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_sizes(**sizes: object) -> None:
    """Raise ConfigError unless each size is a whole number of at least 1."""
    for name, value in sizes.items():
        if not _whole(value, 1):
            raise ConfigError(
                f"expected {name} as a whole number of at least 1, found {value!r}; leave it out "
                "for the default"
            )
