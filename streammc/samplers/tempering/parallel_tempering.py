"""``pt`` and ``spt``: parallel tempering, with all rows or with fewer at every level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.common.option_checks import check_subsample
from streammc.samplers.tempering.options import LIKELIHOOD, NESTED, PATHS, SUBSETS, TemperedOptions

EVEN_ODD: Final = "even-odd"
SWEEP: Final = "sweep"
SWAPS: Final = (EVEN_ODD, SWEEP)


@dataclass(frozen=True, kw_only=True)
class ParallelOptions(TemperedOptions):
    """Options that ``pt`` and ``spt`` share.

    Parameters
    ----------
    swaps
        ``even-odd``: pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... in turn; ``sweep``: every
        pair, from the last level down, so that a state can fall to level 0 at once.
    iterations_per_draw
        Iterations of all levels for one draw, after warm-up. ``None``: so many that about every
        draw comes from another draw of the prior, where rows are few; 1 or 2 where they are many.
    """

    swaps: Literal["even-odd", "sweep"] = EVEN_ODD
    iterations_per_draw: int | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_subsample(self, "iterations_per_draw")

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "swaps": SWAPS}


@dataclass(frozen=True, kw_only=True)
class ParallelTempering(ParallelOptions):
    """Sampler ``pt``: parallel tempering.

    One replica at every level, ``h_m = p(X|theta)^beta_m p(theta)``; neighbours exchange their
    levels with probability ``min(1, h_n(a) h_m(b) / (h_n(b) h_m(a)))`` (van de Meent et al.
    2014, eq. 2). Draws are those of level 0, the posterior.

    Examples
    --------
    >>> from streammc.samplers import pt
    >>> pt(n_levels=10, beta_min=0.01).target
    'exact'
    """

    path: Literal["likelihood", "posterior"] = LIKELIHOOD

    name: ClassVar[str] = "pt"
    paper: ClassVar[str] = "Geyer 1991, Markov chain Monte Carlo maximum likelihood"

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "path": PATHS}


@dataclass(frozen=True, kw_only=True)
class SubsampledParallelTempering(ParallelOptions):
    """Sampler ``spt``: subsampled parallel tempering, with fewer rows at every level.

    Level m has ``round(beta_m N)`` rows, drawn without replacement (van de Meent et al. 2014,
    Algorithm 1, with the pair ``(m - 1, m)``). Draws are those of level 0, which has all rows:
    the posterior.

    Parameters
    ----------
    resample
        Proposals to exchange rows of every subset, per iteration; 0 keeps the first subsets.
        Accepted with ``p(X'_m|theta_m) / p(X_m|theta_m)``, which leaves level 0 exact.

    Examples
    --------
    >>> from streammc.samplers import spt
    >>> spt(subsets="independent").subsets_of_rows
    True
    """

    subsets: Literal["nested", "independent"] = NESTED
    resample: int = 0

    name: ClassVar[str] = "spt"
    paper: ClassVar[str] = "van de Meent, Paige and Wood 2014, Tempering by subsampling"
    subsets_of_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        if isinstance(self.resample, bool) or not isinstance(self.resample, int):
            raise ConfigError(
                f"resample must be a whole number, found {self.resample!r}"
                ": give one, or leave it out"
            )
        if self.resample < 0:
            raise ConfigError(
                f"resample must be at least 0, found {self.resample!r}: give 0 or more"
            )

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "subsets": SUBSETS}


pt = builder(ParallelTempering)
spt = builder(SubsampledParallelTempering)
