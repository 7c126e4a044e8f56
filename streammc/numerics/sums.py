"""Log-likelihood of all rows from its Taylor sums at theta_star; compiled."""

from __future__ import annotations

from streammc.numerics.jit import f8, jit, matrix, vector


@jit(f8(f8, vector, matrix, vector, vector, vector), reassociate=True, borrow=True)
def taylor(log_lik, gradient, hessian, theta_star, delta, out):  # type: ignore[no-untyped-def]
    """Return ``l + g' delta + delta' H delta / 2``, write ``g + H delta``; an empty H is 0."""
    d = delta.shape[0]
    value = log_lik
    if hessian.shape[0] == 0:
        for i in range(d):
            out[i] = gradient[i]
            value += delta[i] * gradient[i]
        return value
    for i in range(d):
        curve = 0.0
        for j in range(d):
            curve += hessian[i, j] * delta[j]
        out[i] = gradient[i] + curve
        value += delta[i] * (gradient[i] + 0.5 * curve)
    return value
