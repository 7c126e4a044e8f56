"""Independent normal priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streammc.numerics.prior import KIND, LOCATION, NORMAL, SCALE
from streammc.priors.per_coefficient import Option, Setting, describe, expand, freeze
from streammc.protocols import Matrix


@dataclass(frozen=True)
class NormalPrior:
    """``theta_j ~ Normal(location_j, scale_j)``; build it with :func:`normal`."""

    scale: Setting
    location: Setting

    def table(self, labels: Sequence[str], positive: Sequence[bool] = ()) -> Matrix:
        """Return the (d, 4) table, a row per label.

        Raises
        ------
        ConfigError
            If the scales or locations do not match the labels.
        """
        out = np.zeros((len(labels), 4))
        out[:, KIND] = NORMAL
        out[:, LOCATION] = expand("prior location", self.location, labels, 0.0)
        out[:, SCALE] = expand("prior scale", self.scale, labels, None)
        return out

    def describe(self) -> dict[str, Any]:
        """Return the family and its settings as JSON types."""
        return {
            "family": "normal",
            "scale": describe(self.scale),
            "location": describe(self.location),
        }


def normal(scale: Option = 10.0, location: Option = 0.0) -> NormalPrior:
    """Return independent normal priors, ``theta_j ~ Normal(location_j, scale_j)``.

    Parameters
    ----------
    scale
        Standard deviation, on the store's scale, intercept included: a number for all,
        a sequence with one per coefficient, or a mapping from label to number with
        ``"*"`` for the rest.
    location
        Mean, in the same forms; a mapping without ``"*"`` means 0 for the rest.

    Raises
    ------
    ConfigError
        If a scale is not a finite number above 0 or a location is not finite.

    Examples
    --------
    >>> from streammc.priors import normal
    >>> prior = normal(scale={"beta[Intercept]": 20.0, "*": 2.5})
    >>> prior.table(["beta[Intercept]", "beta[age]"])[:, 2]
    array([20. ,  2.5])
    """
    return NormalPrior(
        scale=freeze("prior scale", scale, positive=True),
        location=freeze("prior location", location),
    )
