"""Quantities derived from draws: odds or rate ratios, intraclass correlation, cut points.

Intraclass correlation: the share of the variance between rows that is between groups.

For a random intercept with standard deviation tau it is ``tau^2 / (tau^2 + v)``, on the scale of
the linear predictor. v is the variance of a row given its group: sigma^2 of a Gaussian response,
and of a binary or ordinal one that of the latent variable behind it, pi^2 / 3 of a logistic and
1 of a probit regression (Goldstein, Browne and Rasbash 2002). Counts have no such v.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.summary import draws_and_labels, summarize_draws, written_by
from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.models.table_scale import FACTOR, INTERCEPT, ScaleBlock

if TYPE_CHECKING:
    import xarray as xr


_BASIS: Final = re.compile(r"(?:^|:)(?:bs|cc|cr|poly)\(")
_BRACKETS: Final = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]")


def as_variables(
    theta: NDArray[np.float64], labels: Sequence[str], features: Sequence[str]
) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    """Return draws (chain, draw, d) as variables ``name -> (dims, values)``.

    A variable with one entry per feature, with or without an intercept, has the dimension
    ``feature``; any other has its own dimension ``<name>_dim``. Coordinates are included.
    """
    columns: dict[str, list[int]] = {}
    for column, label in enumerate(labels):
        columns.setdefault(label.partition("[")[0], []).append(column)
    out: dict[str, tuple[tuple[str, ...], NDArray[Any]]] = {
        "chain": (("chain",), np.arange(theta.shape[0])),
        "draw": (("draw",), np.arange(theta.shape[1])),
    }
    for variable, place in columns.items():
        inside = [labels[column].partition("[")[2].removesuffix("]") for column in place]
        if not any(inside):
            out[variable] = (("chain", "draw"), np.ascontiguousarray(theta[:, :, place[0]]))
            continue
        by_feature = {*features} <= {*inside} <= {*features, INTERCEPT}
        dim = "feature" if by_feature else f"{variable}_dim"
        out[variable] = (("chain", "draw", dim), np.ascontiguousarray(theta[:, :, place]))
        out[dim] = ((dim,), np.array(inside))
    return out


def ratios(
    theta: NDArray[np.float64],
    labels: Sequence[str],
    blocks: Sequence[ScaleBlock],
    features: Sequence[str],
    sign: NDArray[np.float64] | None = None,
    *,
    formula: bool = False,
    together: Sequence[str] | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any] | None:
    """Return statistics of the exponentials of the coefficients; ``None`` if they mean nothing.

    ``theta`` (chain, draw, d) are draws on the table's scale, ``sign`` (chain, draw) the signs of a
    signed run, ``blocks`` those of the model, with the meaning of their exponentials. ``together``
    are the columns that cannot change alone, from the fitted formula; ``None``: those whose names
    show it, if a ``formula`` made them. ``references`` are the reference levels of the columns that
    compare a level with them.

    The result has ``kind``; ``parameters``, feature (of several linear predictors: label) ->
    statistics, without intercepts: the factor on the odds or the rate if the column increases by
    one unit; ``only_together``, the columns that cannot change while all others stay fixed: of
    bases, of interactions, and of terms that share a table column; and the ``references`` of the
    others.
    """
    kind = next((block.exponential for block in blocks if block.exponential), None)
    if kind is None:
        return None
    pairs = exponentials(blocks, features)
    if together is None:
        together = [name for name in features if formula and _only_together(name)]
    fixed = set(together)
    place = {label: column for column, label in enumerate(labels)}
    with np.errstate(over="ignore"):
        values = np.exp(theta[:, :, [place[label] for _, label, _ in pairs]])
    return {
        "kind": kind,
        "parameters": summarize_draws(values, [shown for shown, _, _ in pairs], sign),
        "only_together": [shown for shown, _, name in pairs if name in fixed],
        "references": {
            shown: list((references or {})[name])
            for shown, _, name in pairs
            if name in (references or {})
        },
    }


def exponentials(
    blocks: Sequence[ScaleBlock], features: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return the coefficients whose exponentials mean something: name, label and column of each.

    The name is the column, or the label where several linear predictors have such coefficients.
    All have the meaning of the first: where a scale or a chance varies beside the mean, its
    coefficients are left out.
    """
    kind = next((block.exponential for block in blocks if block.exponential), None)
    known = [block for block in blocks if kind and block.exponential == kind]
    effects = {label for block in blocks if block.rule == FACTOR for label in block.labels}
    return [
        (name if len(known) == 1 else label, label, name)
        for block in known
        for name, label in zip(block.features(features), block.labels, strict=True)
        if name != INTERCEPT and label not in effects
    ]


def _only_together(column: str) -> bool:
    """Return whether a column of a formula belongs to a basis or an interaction."""
    if _BASIS.search(column):
        return True
    bare = None
    while bare != column:  # innermost brackets first
        bare, column = column, _BRACKETS.sub("", column)
    return ":" in column


_LOGISTIC: Final = math.pi**2 / 3.0
_LATENT: Final = {
    "logistic": _LOGISTIC,
    "binomial": _LOGISTIC,
    "ordinal": _LOGISTIC,
    "probit": 1.0,
}
"""Variance of the latent variable of a trial, by the name of the regression."""
_SIGMA: Final = "sigma"


def defined(described: Mapping[str, Any]) -> bool:
    """Return whether a model with this description has an intraclass correlation."""
    inner = described.get("inner", {}).get("name")
    known = inner == "gaussian" or inner in _LATENT
    mixed = described.get("name") == "mixed" and len(described["effects"]) == 1
    crossed = described.get("name") == "crossed" and not described.get("terms")
    return known and (mixed or crossed)


def derived(
    theta: NDArray[np.float64], labels: Sequence[str], described: Mapping[str, Any]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws (chain, draw, k) of quantities that follow from the parameters, and labels.

    The intraclass correlation, and the cut points of an ordinal response. ``theta`` are draws on
    the table's scale, ``described`` is the model, by ``Model.describe``. Without such quantities:
    (chain, draw, 0) and no label.
    """
    values, names = _cut_points(theta, labels, described)
    if not defined(described):
        return values, names
    columns, inner = described.get("crossed") or [described["group"]], described["inner"]["name"]
    squares = theta[:, :, [labels.index(f"tau[{column}]") for column in columns]] ** 2
    rest: Any = _LATENT.get(inner)
    if rest is None:
        rest = theta[:, :, [labels.index(_SIGMA)]] ** 2
    correlation = squares / (squares.sum(axis=2, keepdims=True) + rest)
    own = [f"icc[{column}]" for column in columns]
    return np.concatenate([correlation, values], axis=2), [*own, *names]


def _cut_points(
    theta: NDArray[np.float64], labels: Sequence[str], described: Mapping[str, Any]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return draws (chain, draw, K - 1) of ``cut[k]``: ``P(y <= k) = logistic(cut[k] - x . beta)``.

    The intercept is part of them: ``cut[k] = c_k - beta[Intercept]``, the ``zeta`` of
    ``MASS::polr``.
    """
    regression = described.get("inner", described)
    levels = regression.get("levels") if regression.get("name") == "ordinal" else None
    if levels is None:
        return theta[:, :, :0], []
    gaps = [list(labels).index(f"gap[{k}]") for k in range(1, levels - 1)]
    cut = np.zeros((*theta.shape[:2], levels - 1))
    np.cumsum(theta[:, :, gaps], axis=2, out=cut[:, :, 1:])
    intercept = f"beta[{INTERCEPT}]"
    if intercept in labels:
        cut -= theta[:, :, list(labels).index(intercept), None]
    return cut, [f"cut[{k}]" for k in range(levels - 1)]


@documented()
def intraclass_correlation(tree: xr.DataTree) -> xr.DataArray:
    """Return the draws of the intraclass correlation of a run of a mixed model.

    ``tau^2 / (tau^2 + v)`` with v = sigma^2 of a gaussian model, pi^2 / 3 of logistic,
    binomial and ordinal and 1 of probit ones: on the scale of the linear predictor. Where factors
    cross, each has its own, and the denominator the variances of all.

    Parameters
    ----------
    tree
        The run, from ``sample`` or ``open_run``.

    Returns
    -------
    xarray.DataArray
        (chain, draw) named ``icc``; where factors cross (chain, draw, factor).

    Raises
    ------
    ConfigError
        If the run has no random intercept alone, or a response without such a v.
    """
    draws = draws_and_labels(tree)
    described = written_by(tree).get("identity", {}).get("model", {})
    if not defined(described):
        inner = described.get("inner", {}).get("name")
        found_model = f"mixed {inner}" if inner else described.get("name")
        slopes = len(described.get("effects", ())) > 1 or described.get("terms")
        slope = " with a slope" if slopes else ""
        raise ConfigError(
            "expected a run of a random intercept of a gaussian, logistic, binomial, ordinal or "
            f"probit model, found {found_model}{slope}: report tau instead"
        )
    values, _ = derived(*draws, described)
    like = next(iter(tree["posterior"].data_vars.values()))
    keep = {dim: 0 for dim in like.dims if dim not in ("chain", "draw")}
    one: xr.DataArray = like.isel(keep, drop=True).transpose("chain", "draw")
    if described["name"] != "crossed":
        return one.copy(data=values[..., 0]).rename("icc")
    import xarray

    factors = described["crossed"]
    each = [one.copy(data=values[..., number]) for number in range(len(factors))]
    together = xarray.concat(each, dim="factor").assign_coords(factor=factors)
    return together.transpose("chain", "draw", "factor").rename("icc")
