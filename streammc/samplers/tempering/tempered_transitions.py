"""``tt`` and ``stt``: tempered transitions, with all rows or with fewer at every level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from streammc.errors import ConfigError
from streammc.samplers.common.builders import builder
from streammc.samplers.tempering.options import LIKELIHOOD, NESTED, PATHS, SUBSETS, TemperedOptions


@dataclass(frozen=True, kw_only=True)
class TransitionOptions(TemperedOptions):
    """Options that ``tt`` and ``stt`` share.

    Parameters
    ----------
    base_steps
        Transitions at level 0 before every tempered one, which itself targets nothing there;
        0 or more.
    """

    base_steps: int = 1

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        if isinstance(self.base_steps, bool) or not isinstance(self.base_steps, int):
            raise ConfigError(
                f"base_steps must be a whole number, found {self.base_steps!r}"
                ": give one, or leave it out"
            )
        if self.base_steps < (1 if self.n_levels == 1 else 0):
            raise ConfigError(
                f"base_steps must be at least 0, found {self.base_steps!r}: give 0 or more"
            )


@dataclass(frozen=True, kw_only=True)
class TemperedTransitions(TransitionOptions):
    """Sampler ``tt``: tempered transitions.

    A proposal rises through the levels and comes down again, with the kernel of level m both
    on the way from ``m - 1`` to ``m`` and back, and is accepted with probability
    ``min(1, prod_m h_m(u_{m-1}) h_{m-1}(v_{m-1}) / (h_m(v_{m-1}) h_{m-1}(u_{m-1})))``, ``u``
    the states on the way up and ``v`` on the way down (Neal 1996; van de Meent et al. 2014,
    eq. 3). Level m has the density ``h_m = p(X|theta)^beta_m p(theta)``; level 0 is the
    posterior.

    Examples
    --------
    >>> from streammc.samplers import tt
    >>> tt(n_levels=12, explorer="random-walk").n_levels
    12
    """

    path: Literal["likelihood", "posterior"] = LIKELIHOOD

    name: ClassVar[str] = "tt"
    paper: ClassVar[str] = "Neal 1996, Sampling from multimodal distributions"

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "path": PATHS}


@dataclass(frozen=True, kw_only=True)
class SubsampledTransitions(TransitionOptions):
    """Sampler ``stt``: subsampled tempered transitions, with fewer rows at every level.

    Tempered transitions whose level m has ``round(beta_m N)`` rows, drawn anew for every
    transition and the same on the way up and down (van de Meent et al. 2014, Algorithm 2, with
    the ratio of eq. 3).

    Examples
    --------
    >>> from streammc.samplers import stt
    >>> stt(beta_min=0.25).subsets
    'nested'
    """

    subsets: Literal["nested", "independent"] = NESTED

    name: ClassVar[str] = "stt"
    paper: ClassVar[str] = "van de Meent, Paige and Wood 2014, Tempering by subsampling"
    subsets_of_rows: ClassVar[bool] = True

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "subsets": SUBSETS}


tt = builder(TemperedTransitions)
stt = builder(SubsampledTransitions)
