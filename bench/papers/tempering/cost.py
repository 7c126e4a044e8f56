"""What a draw of a tempered sampler costs, in transitions at level 0 (section 3.1).

A transition at level m costs ``beta_m^alpha``, ``beta_m = beta_*^(m / M)`` of the rows; with all
rows it costs 1. The printed sums (11) and (12) leave level 0 out, (14) and (16) give the last
level ``beta_*^(alpha / M)``, and (17) and (18) count a level too few.
"""

from __future__ import annotations

from collections.abc import Iterable

PRINTED, CORRECTED, OURS = "as printed", "corrected", "ours"


def levels(m: int, method: str, reading: str = CORRECTED) -> list[int]:
    """Return the level of every transition of one draw, of which there are M + 1 in all.

    ``corrected``: Algorithm 2 as it is written, up to M and down to 0. ``ours``: Neal's, whose
    way down is the way up reversed, so that level M has two transitions and level 0 none,
    and one transition at level 0 before it.
    """
    if method in ("pt", "spt"):
        return list(range(m + 1))
    up = list(range(1, m + 1))
    return [*up, *reversed(range(m))] if reading == CORRECTED else [0, *up, *reversed(up)]


def added(visited: Iterable[int], beta_min: float, m: int, alpha: float) -> float:
    """Return the cost of transitions at these levels, added up."""
    return float(sum(beta_min ** (alpha * level / m) for level in visited))


def relative_cost(
    method: str, alpha: float, beta_min: float, m: int, reading: str = CORRECTED
) -> float:
    """Return the time of a draw over that of one transition, in closed form (eqs. 15 to 18)."""
    if method == "pt":
        return m if reading == PRINTED else m + 1
    if method == "tt":
        return {PRINTED: 2 * (m - 1), CORRECTED: 2 * m, OURS: 2 * m + 1}[reading]
    whole = (1.0 - beta_min ** (alpha * (1.0 + 1.0 / m))) / (1.0 - beta_min ** (alpha / m))
    if method == "spt":
        return whole
    less = {
        PRINTED: 1.0 + beta_min ** (alpha / m),
        CORRECTED: 1.0 + beta_min**alpha,
        OURS: 1.0,
    }
    return 2.0 * whole - less[reading]
