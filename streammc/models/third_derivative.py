"""Bounds on the third derivative of the log-likelihood of a row in its linear predictor.

``bound(eta (m,), reach (m,), y (m,), constants (c,), out (m,))`` writes at least the largest
absolute third derivative over all predictors within ``reach[i]`` of ``eta[i]``. By Taylor's theorem
the remainder of second order is then at most ``out[i] |step|^3 / 6`` for steps within the reach.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from streammc.numerics.jit import vector

BOUND_SIGNATURE: Final[Any] = types.void(vector, vector, vector, vector, vector)
BOUND_TYPE: Final[Any] = types.FunctionType(BOUND_SIGNATURE)
