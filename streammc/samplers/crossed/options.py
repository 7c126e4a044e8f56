"""``gibbs``: exact draws of a regression with factors that cross."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from streammc.samplers.common.options import builder, check_counts
from streammc.samplers.common.sampler import EXACT, Check, Sampler

if TYPE_CHECKING:
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampler):
    """Sampler ``gibbs``: collapsed Gibbs sampling of factors that cross (Papaspiliopoulos 2020).

    Exact, without a subsample. For each factor in turn the coefficients are drawn with its effects
    integrated out, then these effects given the coefficients, so that chains mix whatever the
    numbers of levels; each scale is drawn twice, with the effects fixed and with its own effect
    integrated out (van Dyk and Park 2008). An iteration passes by every row once for each factor.
    For several terms ``(1 | g)`` of many levels, such as users and items, with slopes or without,
    and for one of many slopes, ``(1 + x + z | g)``. Where the response is not gaussian the effects
    of each level are proposed by a step of Newton and accepted by themselves, and coefficients,
    scalars and scales step together, effects moving with their scales (Papaspiliopoulos, Roberts
    and Skold 2007): an iteration evaluates each row twice for each factor, and twice more.

    Parameters
    ----------
    effect_draws
        Draws of all effects together that each chain keeps, for predictions and draws of single
        levels, at least 2. ``None``: up to 250, in at most 48 MB. Half as many at the least, since
        every other one is left out where there is no more room.

    Examples
    --------
    >>> from streammc.samplers import gibbs
    >>> gibbs().target
    'exact'
    """

    effect_draws: int | None = None

    name: ClassVar[str] = "gibbs"
    target: ClassVar[str] = EXACT
    paper: ClassVar[str] = (
        "Papaspiliopoulos, Roberts, Zanella 2020, Scalable inference for crossed random effects "
        "models"
    )
    draws_crossed: ClassVar[bool] = True
    statistics: ClassVar[tuple[str, ...]] = ("lp", "n_rows")
    """``lp``: log density of responses, effects and parameters together."""
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {"crossed_structure": ("structure",)}
    """Parts of the table that share no level, and the share of the rows in the largest."""

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "effect_draws", least=2)

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Read the table, and return its sums; see ``Sampler``."""
        from streammc.samplers.crossed.kernel import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.crossed.kernel import problem

        return problem(self, request, setup)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return the parts of the table that share no level."""
        parts, largest = setup.arrays["crossed_structure"]
        return {"parts": int(parts), "largest_part": float(largest)}

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return the check of the parts; see ``Sampler``."""
        facts = summary["sampling"]
        if facts.get("parts", 1) == 1:
            return []
        return [
            Check(
                name="parts of the table that share no level",
                value=f"{facts['parts']:,}; {facts['largest_part']:.1%} of the rows in the largest",
                meaning="Effects of levels in different parts are compared by their common "
                "distribution alone.",
            )
        ]


gibbs = builder(Gibbs)
