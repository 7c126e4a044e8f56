"""A look at a model's derivatives where it is about to be used."""

from __future__ import annotations

import numpy as np

from streammc.errors import ModelError
from streammc.models.check_derivatives import Place, derivatives
from streammc.protocols import Model, Rows, Vector


def refuse_wrong_derivatives(model: Model, rows: Rows, theta: Vector, most: int = 16) -> None:
    """Compare the derivatives at a few rows near ``theta`` with differences.

    Raises
    ------
    ModelError
        If one is off by more than 1e-4 of the largest of value, derivative and 1.
    """
    m, q = min(most, len(rows.y)), rows.X.shape[1]
    X, y = rows.X[:m], np.ascontiguousarray(rows.y[:m])
    n = model.n_linear
    eta = np.empty((n + model.n_scalar, m))
    for a in range(n):
        eta[a] = X @ theta[a * q : (a + 1) * q] + (rows.offset[:m] if a == 0 else 0.0)
    eta[n:] = theta[n * q :, None]
    # Off the start, where a derivative may be zero by chance; the same for all rows.
    eta += 0.1 * np.cos(1.0 + np.arange(len(eta)))[:, None]
    with np.errstate(all="ignore"):
        for finding in derivatives(model, Place(eta, y, X.T), floor=1e-4):
            if np.isfinite(finding.worst) and not finding.passed:
                raise ModelError(
                    f"expected the {finding.name} of the model {model.name!r} to be those of its "
                    f"log-likelihood, found them off by {finding.worst:.2g} {finding.detail}: "
                    "correct them, and run streammc.models.check_model"
                )
