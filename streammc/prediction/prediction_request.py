"""The settings of predictions as one record.

The meaning of each setting is stated in :func:`streammc.predict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

from streammc.diagnostics.text import interval_ends, interval_names
from streammc.errors import ConfigError
from streammc.protocols import Dataset
from streammc.settings import INTERVAL as INTERVAL
from streammc.settings import check_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DRAWS: Final = 200
"""Default number of draws, unless there are effects of groups."""
BINS: Final = 100
GROUP_DRAWS: Final = 100
"""Default number of draws for what is integrated over the effects of groups."""
INTEGRATE: Final = "integrate"
NEW_GROUPS: Final = (INTEGRATE, "refuse")


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """The settings of ``streammc.predict``; ConfigError if one is out of its range."""

    draws: int = DRAWS
    interval: float = INTERVAL
    """Probability of the band, with equal tails."""
    by: str | None = None
    """Column whose values form the groups of a calibration."""
    bins: int = BINS
    """Number of these groups."""
    seed: int = 0
    weights: NDArray[np.float64] | None = None
    """(chain, draw) weights of the draws; ``None``: the signs of the run, if it has any."""
    trained_on: Dataset | None = None
    """The data set of the run."""
    probabilities: bool = False
    """Whether to predict the probabilities of categories in place of their mean number."""
    new_groups: str = INTEGRATE
    """Whether rows of groups that the run has not seen are integrated over, or refused."""
    factor: str | None = None
    """Of several factors that cross, the one whose effects are asked for."""
    overwrite: bool = False
    scheduler: Any = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        check_interval(self.interval)
        for name, value, lowest in (
            ("draws", self.draws, 2), ("bins", self.bins, 1), ("seed", self.seed, 0)
        ):  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
                raise ConfigError(
                    f"{name} must be a whole number of at least {lowest}, found {value!r}: give "
                    "one, or leave it out"
                )
        if not (self.by is None or isinstance(self.by, str)):
            raise ConfigError(
                f"expected the name of a column as by, found {type(self.by).__name__}: write its "
                "name"
            )
        if self.new_groups not in NEW_GROUPS:
            raise ConfigError(
                f"expected {' or '.join(map(repr, NEW_GROUPS))} as new_groups, found "
                f"{self.new_groups!r}: choose one of them"
            )

    @property
    def ends(self) -> tuple[float, float]:
        """Probabilities of the ends of the band."""
        return interval_ends(self.interval)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the ends of the band, such as ``q5``."""
        return interval_names(self.interval)
