"""Positions of a chain: whitened, in theta, and in the coordinates of the expansions.

``theta = theta_star + S z``, but for two kinds of mixed models: effects of the levels of a factor
are stretched by a power of their scale (``numerics.stretched_effects``), and standard deviations of
group effects, with the coefficients beside them, have positions of their own
(``numerics.group_positions``). Expansions may be in the marginal precision of group effects
(``numerics.marginal_precision``).
"""

from __future__ import annotations

from streammc.likelihood.whitened import displace_whitened, theta_of_whitened
from streammc.numerics.group_positions import to_theta
from streammc.numerics.jit import inline
from streammc.numerics.marginal_precision import to_precision
from streammc.numerics.stretched_effects import stretch, whiten


@inline(reassociate=True)
def displace(factor, z, delta):  # type: ignore[no-untyped-def]
    """Write ``delta = S z``."""
    if factor.shape[0] == 0:
        for i in range(z.shape[0]):
            delta[i] = z[i]
        return
    for i in range(z.shape[0]):
        total = 0.0
        for j in range(i + 1):
            total += factor[i, j] * z[j]
        delta[i] = total


@inline(reassociate=True)
def place(base, z, work):  # type: ignore[no-untyped-def]
    """Write position and displacement of the whitened position ``z`` into ``work``.

    Returns the log of the Jacobian of theta in ``theta_star + S z``; 0 where they are the same.
    """
    delta, theta, theta_star = work.delta, work.theta, base.theta_star
    if base.whitening.shape[0] > 0:
        displace_whitened(base, z, delta)
        theta_of_whitened(base, z, theta)
        return 0.0
    displace(base.factor, z, delta)
    for i in range(z.shape[0]):
        theta[i] = theta_star[i] + delta[i]
    log_jacobian = stretch(base.levels, theta_star, theta, delta)
    if base.mode.shape[0] > 0:
        log_jacobian += to_theta(base.lines, base.spreads, base.mode, theta)
    if base.centre.shape[0] > 0:
        centre = base.centre
        for i in range(z.shape[0]):
            delta[i] = theta[i]
        to_precision(delta, base.noise)
        for i in range(z.shape[0]):
            delta[i] -= centre[i]
    return log_jacobian


@inline
def beyond_edge(base, position, work):  # type: ignore[no-untyped-def]
    """Return 1 where a whitened ``position`` is beyond the edge or a wall, else 0.

    ``work.theta`` is that of the position.
    """
    d = position.shape[0]
    z = position
    if base.mode.shape[0] > 0:  # the edge is in whitened coordinates of theta
        z = work.edge
        whiten(base.levels, base.mode, base.mode_factor, work.theta, z)
    square = 0.0
    for j in range(d):
        square += z[j] * z[j]
    if square > base.edge:
        return 1
    walls = base.walls
    for w in range(walls.shape[0]):
        along = 0.0
        for j in range(d):
            along += walls[w, j] * z[j]
        if along > walls[w, d]:
            return 1
    return 0
