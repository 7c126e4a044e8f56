"""Densities of correlations, which are sampled as ``theta = artanh v``."""

from __future__ import annotations

from streammc.docstrings import documented
from streammc.priors.densities import LKJ_FAMILY
from streammc.priors.family import FamilyPrior, build
from streammc.priors.per_coefficient import Option


@documented()
def lkj(shape: Option) -> FamilyPrior:
    """Return priors of a correlation, density proportional to ``(1 - v^2)^(shape - 1)``.

    Of two effects, the prior of Lewandowski, Kurowicka and Joe (2009): uniform for a shape of 1,
    concentrated at 0 for a larger one.

    Parameters
    ----------
    shape
        Shape, above 0, in the forms of :func:`normal`.

    Raises
    ------
    ConfigError
        If a number is not a finite number above 0.
    """
    return build(LKJ_FAMILY, shape=shape)
