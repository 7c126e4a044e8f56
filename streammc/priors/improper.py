"""The flat prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammc.numerics.prior import FLAT, KIND, SCALE
from streammc.protocols import Matrix


@dataclass(frozen=True)
class FlatPrior:
    """Density 1 everywhere; build it with :func:`flat`."""

    def table(self, labels: Sequence[str], positive: Sequence[bool] = ()) -> Matrix:
        """Return the (d, 4) table, a row per label."""
        out = np.zeros((len(labels), 4))
        out[:, KIND] = FLAT
        out[:, SCALE] = np.inf
        return out

    def describe(self) -> dict[str, Any]:
        """Return the family as JSON types."""
        return {"family": "flat"}


def flat() -> FlatPrior:
    """Return the improper prior with density 1.

    The posterior may then not exist: separated or collinear data are refused when
    control variates are computed.

    Examples
    --------
    >>> from streammc.priors import flat
    >>> flat().describe()
    {'family': 'flat'}
    """
    return FlatPrior()
