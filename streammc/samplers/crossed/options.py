"""``gibbs``: exact draws of a regression with factors that cross."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streammc.errors import ConfigError
from streammc.samplers.common.options import builder, check_counts
from streammc.samplers.common.sampler import EXACT, Check, Sampler

if TYPE_CHECKING:
    from streammc.samplers.common.chains import SharedProblem
    from streammc.samplers.common.sampler import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory

EFFECTS_R_HAT: Final = 1.1
"""Limit of R-hat of an effect. The largest of 1e5 effects of which four chains that agree have 50
effective draws each is below it (Gelman and Rubin 1992)."""
MOST_COMPARED: Final = 1 << 20
"""Number of effects up to which chains are compared: their state is read from the run."""


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
    start_from
        Path of a finished run of ``gibbs`` with the same model, of the same store or of that
        before rows were appended: chains begin at its last draws, effects of new levels at 0, and
        move as it had learnt. ``None``: near no effects. A short warm-up is enough then.

    Examples
    --------
    >>> from streammc.samplers import gibbs
    >>> gibbs().target
    'exact'
    """

    effect_draws: int | None = None
    start_from: str | None = None

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
    """Parts of the table that share no level, share of the rows in the largest; effects."""

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        super().__post_init__()
        check_counts(self, "effect_draws", least=2)
        if self.start_from is not None and not isinstance(self.start_from, str):
            raise ConfigError(
                f"start_from must be the path of a run as text, found {self.start_from!r}: give "
                "one, or leave it out"
            )

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Read the table, and return its sums; see ``Sampler``."""
        from streammc.samplers.crossed.kernel import prepare

        return prepare(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share; see ``Sampler``."""
        from streammc.samplers.crossed.kernel import problem

        return problem(self, request, setup)

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return the parts of the table that share no level, and R-hat of effects."""
        from streammc.samplers.crossed.kernel import effects_r_hat

        parts, largest, *effects = setup.arrays["crossed_structure"]
        few = effects and effects[0] <= MOST_COMPARED
        r_hat = effects_r_hat(run) if few else None
        return {
            "parts": int(parts),
            "largest_part": float(largest),
            "effects_r_hat": None if r_hat is None else float(r_hat.max()),
            "effects_apart": None if r_hat is None else int((r_hat > EFFECTS_R_HAT).sum()),
        }

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return the checks of the effects and of the parts; see ``Sampler``."""
        facts, found = summary["sampling"], []
        r_hat = facts.get("effects_r_hat")
        name = "largest r_hat of an effect"
        meaning = "Whether the chains agree on the effect of every level."
        if r_hat is None and "effects_r_hat" in facts:
            unknown = f"not known, of one chain or of more than {MOST_COMPARED:,} effects"
            found.append(Check(name=name, value=unknown, meaning=meaning))
        if r_hat is not None:
            apart = (
                f"r_hat of {facts['effects_apart']:,} effects of levels is above {EFFECTS_R_HAT}, "
                f"the largest {r_hat:.3g}: the chains do not agree on these; use more --draws"
            )
            passed = r_hat <= EFFECTS_R_HAT
            found.append(
                Check(
                    name=name,
                    value=f"{r_hat:.3f}",
                    meaning=meaning,
                    limit=f"at most {EFFECTS_R_HAT}",
                    passed=passed,
                    warning="" if passed else apart,
                )
            )
        if facts.get("parts", 1) == 1:
            return found
        return [
            *found,
            Check(
                name="parts of the table that share no level",
                value=f"{facts['parts']:,}; {facts['largest_part']:.1%} of the rows in the largest",
                meaning="Effects of levels in different parts are compared by their common "
                "distribution alone.",
            ),
        ]


gibbs = builder(Gibbs)
