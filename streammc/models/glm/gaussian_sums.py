"""The Gaussian log-likelihood of all rows from its Taylor sums: sufficient statistics.

With ``R = RSS / sigma*^2``, weighted, at the coefficients ``beta* + delta`` and the log
scale ``s* + h``,

    l = l* - W h - (R exp(-2 h) - R*) / 2,
    R = R* - 2 g.delta - delta' H delta,   R* = -H_ss / 2,   W = R* - g_s,

where ``g`` and ``H`` are the gradient and Hessian at ``theta_star`` and ``W`` the sum of
the weights. So the pass that expands the likelihood has found X'X, X'y and y'y.
"""

from __future__ import annotations

import math

from streammc.numerics.jit import f8, jit, matrix, vector


@jit(f8(f8, vector, matrix, vector, vector, vector), reassociate=True, borrow=True)
def gaussian_sums(log_lik, gradient, hessian, theta_star, delta, out):  # type: ignore[no-untyped-def]
    """Return the log-likelihood at ``theta_star + delta``, write its gradient (d,)."""
    s = delta.shape[0] - 1
    h = delta[s]
    residual_star = -0.5 * hessian[s, s]
    total_weight = residual_star - gradient[s]
    shrink = math.exp(-2.0 * h)
    change = 0.0
    for i in range(s):
        curve = 0.0
        for j in range(s):
            curve += hessian[i, j] * delta[j]
        out[i] = shrink * (gradient[i] + curve)
        change -= delta[i] * (2.0 * gradient[i] + curve)
    out[s] = (residual_star + change) * shrink - total_weight
    # R exp(-2 h) - R*, without cancellation for small h.
    excess = change * shrink + residual_star * math.expm1(-2.0 * h)
    return log_lik - total_weight * h - 0.5 * excess
