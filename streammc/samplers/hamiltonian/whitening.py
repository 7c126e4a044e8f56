"""Change of a problem to whitened coordinates, where it makes an iteration cheaper.

The coordinates are those of :mod:`streammc.likelihood.whitened`. The density of a position stays
the same; only roundings differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streammc.likelihood.blocks import Block, allocate_rows
from streammc.likelihood.target import Base
from streammc.likelihood.whitened import whiten_rows
from streammc.numerics.prior import (
    COLUMNS,
    FLAT,
    JOINT_NORMAL,
    KIND,
    NORMAL,
    log_prior,
    prior_precision,
)
from streammc.numerics.row_products import aligned
from streammc.protocols import Matrix, Vector

_SLICE: Final = 8192
_ROUNDING: Final = 1e-10
"""Largest entry off the diagonal of a whitened Hessian that is rounding, relative to the others."""
_PRODUCTS: Final = 5
"""Products of S with a vector, or of vectors with the Hessian, that an iteration of one step saves;
a proposed row costs one."""


def whitening_pays(base: Base, q: int, rows: int, proposed: int) -> bool:
    """Return whether whitened rows are possible, and cheaper than products with S.

    They are possible for one linear predictor of ``q`` features where theta is linear in z.
    ``rows`` is the size of the subsample, ``proposed`` how many are proposed an iteration. Where
    these are many, whitening them must be small beside the rows of one evaluation.
    """
    linear = not len(base.levels) and not len(base.centre) and not len(base.mode)
    if base.n_linear != 1 or not linear or not len(base.factor):
        return False
    return proposed <= _PRODUCTS or proposed * q <= rows // 2


def whitened_base(base: Base, q: int) -> Base:
    """Return ``base`` with Taylor sums and Normal priors as one quadratic in whitened coordinates.

    Other priors stay in ``prior``, in theta.
    """
    d = len(base.theta_star)
    to_theta = np.eye(d)
    to_theta[:q, :q] = base.factor[:q, :q]
    value, slope, precision, prior = _normal_priors(base)
    hessian = base.hessian if len(base.hessian) else np.zeros((d, d))
    hessian = to_theta.T @ (hessian - precision) @ to_theta
    whitening = aligned(q, q)
    whitening[:, :q] = base.factor[:q, :q]
    return base._replace(
        log_lik=base.log_lik + value,
        gradient=to_theta.T @ (base.gradient + slope),
        hessian=np.ascontiguousarray(0.5 * (hessian + hessian.T)),
        prior=prior,
        whitening=whitening,
        diagonal=_diagonal(hessian),
    )


def _normal_priors(base: Base) -> tuple[float, Vector, Matrix, Matrix]:
    """Return value, gradient and precision of the Normal priors at theta_star, and the others."""
    table = base.prior
    normal, flat = np.isin(table[:, KIND], (NORMAL, JOINT_NORMAL)), table[:, KIND] == FLAT
    own, others = table.copy(), table[:, :COLUMNS].copy()
    own[~normal] = others[normal] = 0.0  # FLAT
    slope = np.zeros_like(base.theta_star)
    value = log_prior(base.theta_star, own, slope)
    precision = prior_precision(base.theta_star, own)
    return value, slope, precision, others[:0] if np.all(normal | flat) else others


def _diagonal(hessian: Matrix) -> Vector:
    """Return the diagonal of a Hessian whose other entries are rounding; else nothing."""
    diagonal = np.diag(hessian).copy()
    rest = np.abs(hessian - np.diag(diagonal)).max(initial=0.0)
    small = rest <= _ROUNDING * np.abs(diagonal).max(initial=0.0)
    return diagonal if small else np.zeros(0)


def whiten_block(whitening: Matrix, block: Block) -> None:
    """Write the rows of a block in whitened coordinates into its design."""
    q, n = block.design.shape[0], len(block.y)
    rows, buffer = allocate_rows(min(n, _SLICE), q), np.zeros(q)
    for start in range(0, n, _SLICE):
        stop = min(start + _SLICE, n)
        rows.X[: stop - start] = block.design[:, start:stop].T
        whiten_rows(whitening, rows, 0, stop - start, block, start, buffer)
