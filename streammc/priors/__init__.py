"""Prior densities over the coefficients, on the store's scale.

A prior is a small description; ``numerics.prior`` evaluates it, compiled, from a table
with one row per coefficient.
"""

from __future__ import annotations

from streammc.priors.gaussian import NormalPrior, normal
from streammc.priors.improper import FlatPrior, flat

__all__ = ["FlatPrior", "NormalPrior", "flat", "normal"]
