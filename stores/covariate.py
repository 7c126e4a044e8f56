"""A covariate of the original table, as a linear function of the stored design columns.

A feature is ``mean + scale X_j``. The argument of a B-spline is linear in its columns too: a
basis of degree ``p >= 1`` with the knots ``t`` reproduces straight lines (Marsden's identity),

    x = sum over k of xi_k B_k(x),    xi_k = (t_{k+1} + ... + t_{k+p}) / p,

A basis without its first function has it as one minus the sum of the others. The covariate of
a smooth effect is therefore a linear function of the stored columns, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from streammc.errors import DataError
from streammc.protocols import Vector
from streammc.stores.formula.fitted import read_design
from streammc.stores.formula.nodes import Call, Column, Node


def covariate(attributes: Mapping[str, Any], name: str) -> tuple[Vector, float]:
    """Return ``(a, c)`` so that ``X_i . a + c`` is the column ``name`` on the table's scale.

    Parameters
    ----------
    attributes
        Attributes of the data set: features, standardisation and formula.
    name
        A feature, or a column that stands alone in a ``bs()``, ``center()`` or ``scale()``.

    Raises
    ------
    DataError
        If ``name`` is neither; the message lists the possible names.
    """
    features = list(attributes["features"])
    table = attributes["standardization"] or {}
    mean = np.asarray(table.get("mean", np.zeros(len(features))))
    scale = np.asarray(table.get("scale", np.ones(len(features))))
    factors = {feature: {feature: 1.0} for feature in features}
    constants = dict.fromkeys(features, 0.0)
    if attributes["formula"] is not None:
        _add_arguments(attributes["formula"], factors, constants)
    if name not in factors:
        near = get_close_matches(name, factors, n=1)
        names = [key for key in factors if key not in features] + features
        more = ", ..." if len(names) > 8 else ""
        hint = (
            f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(names[:8])}{more}"
        )
        raise DataError(
            f"expected a feature, or a column that the formula has in bs() without "
            f"extrapolation 'clip' or 'zero', as covariate, found {name!r}: {hint}"
        )
    weights, constant = np.zeros(len(features)), constants[name]
    for feature, factor in factors[name].items():
        index = features.index(feature)
        weights[index] = factor * scale[index]
        constant += factor * mean[index]
    return weights, float(constant)


def _add_arguments(
    document: Any, factors: dict[str, dict[str, float]], constants: dict[str, float]
) -> None:
    """Add the table columns inside bs(), center() and scale() as functions of the features."""
    design = read_design(document, "the store")
    fields: dict[Node, dict[int, str]] = {}
    for column in design.columns:
        if len(column.fields) == 1 and column.scale == 1:
            node, index = column.fields[0]
            fields.setdefault(node, {})[index] = column.name
    for node, names in fields.items():
        if not isinstance(node, Call) or not isinstance(node.argument, Column):
            continue
        name = node.argument.name
        if name in factors or node.function not in ("bs", "center", "scale"):
            continue
        state, options = design.states[node.label], dict(node.options)
        if node.function != "bs":
            factors[name] = {names[0]: float(state["scale"] or 1.0)}
            constants[name] = float(state["center"] or 0.0)
            continue
        degree, knots = int(options.get("degree", 3)), np.asarray(state["knots"])
        centres = np.array(
            [knots[k + 1 : k + 1 + degree].mean() for k in range(len(knots) - degree - 1)]
        )
        left_out = len(centres) - len(names)
        # Outside of its bounds a clipped basis gives the bound, and one of zeros gives 0.
        if degree < 1 or left_out not in (0, 1) or options.get("extrapolation") in ("clip", "zero"):
            continue
        first = float(centres[0]) if left_out else 0.0
        factors[name] = {
            names[index]: float(centre) - first
            for index, centre in zip(sorted(names), centres[left_out:], strict=True)
        }
        constants[name] = first
