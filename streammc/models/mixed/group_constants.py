"""Layout of the constants of a group's likelihood, and the quadrature nodes in them."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np

from streammc.protocols import Vector

LOGISTIC: Final = 0
POISSON: Final = 1
NEGATIVE_BINOMIAL: Final = 2
BINOMIAL: Final = 3
PROBIT: Final = 4
GAMMA: Final = 5
STUDENT_T: Final = 6
STUDENT_T_FIXED: Final = 7
GAUSSIAN: Final = 8
ORDINAL: Final = 9
AT_ADDRESS: Final = 10
"""A link stated as text, whose address in this process is the only constant of its own."""

KIND: Final = 0
"""Inner likelihood, one of the numbers above."""
FEATURES: Final = 1
"""Number of features q; rows q and q + 1 of the design are offset and weight."""
SCALARS: Final = 2
"""Number of the inner model's scalar parameters."""
EFFECTS: Final = 3
"""Random effects of a group: 1 is an intercept, 2 an intercept and a slope."""
CORRELATED: Final = 4
"""1 where intercept and slope are correlated, else 0."""
SLOPE: Final = 5
"""Column of the slope; -1 without one."""
NODES: Final = 6
"""Quadrature nodes per effect; ``PANELS``: as many as needed, see ``group_quadrature``."""
PANELS: Final = 0
PANEL_CELLS: Final = -1
"""Cells of panels, with their masses, from which quantiles follow."""
NOISE: Final = 7
"""Length of the noise of expansions, then its three entries; 0: theta ends with ``log tau``.

See ``numerics.effect_positions``."""
FIRST_NODE: Final = 11
"""First of the nodes; their log weights and the inner model's own constants follow."""

EXACT_NODES: Final = 3
"""Nodes with which a Gaussian likelihood has no quadrature error, derivatives included."""


@cache
def quadrature(n_nodes: int) -> tuple[Vector, Vector]:
    """Return nodes ``z`` and log weights ``a`` (n_nodes,) of adaptive Gauss-Hermite quadrature.

    ``log integral phi(v) f(v) dv = log sum_q exp(a_q + log s - v_q^2 / 2 + log f(v_q))`` with
    ``v_q = v^ + s z_q`` (Liu and Pierce 1994), up to the error of the quadrature.
    """
    x, weights = np.polynomial.hermite.hermgauss(n_nodes)
    log_weights: Vector = np.log(weights) + np.square(x) - 0.5 * math.log(math.pi)
    nodes: Vector = math.sqrt(2.0) * x
    nodes.flags.writeable = log_weights.flags.writeable = False  # every call returns the same
    return nodes, log_weights


def group_constants(
    kind: int,
    n_features: int,
    n_scalars: int,
    correlated: bool,
    slope: int,
    n_nodes: int,
    inner: Vector,
    noise: tuple[float, ...] = (),
) -> Vector:
    """Return (11 + 2 nodes + c,) the constants of a group's link.

    ``slope`` is the column of a random slope, -1 without one. ``inner`` (c,) are the constants of
    the inner model's own link, ``noise`` (s,) that of expansions in the marginal precision.
    """
    nodes = log_weights = np.zeros(0)
    if n_nodes > PANELS or kind == GAUSSIAN:
        nodes, log_weights = quadrature(EXACT_NODES if kind == GAUSSIAN else n_nodes)
    effects = 1 if slope < 0 else 2
    head: list[float] = [
        kind,
        n_features,
        n_scalars,
        effects,
        correlated,
        slope,
        len(nodes) or n_nodes,
    ]
    head += [len(noise), *noise, *[0.0] * (3 - len(noise))]
    return np.concatenate([np.array(head, dtype=np.float64), nodes, log_weights, inner])


KINDS: Final = {
    "logistic": LOGISTIC,
    "poisson": POISSON,
    "negative-binomial": NEGATIVE_BINOMIAL,
    "binomial": BINOMIAL,
    "probit": PROBIT,
    "gamma": GAMMA,
    "student-t": STUDENT_T,
    "gaussian": GAUSSIAN,
    "ordinal": ORDINAL,
}
"""Codes of their likelihoods, by name."""
MOST_NODES: Final = 61
"""Quadrature nodes of a group."""
