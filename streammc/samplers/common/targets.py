"""What the draws of a sampler have as their density: the words of the table of samplers."""

from __future__ import annotations

from typing import Final

EXACT: Final = "exact"
"""The posterior."""
PERTURBED: Final = "perturbed"
"""The posterior times a factor near 1, which the noise of the estimate leaves."""
SIGNED: Final = "signed"
"""The posterior, where draws are weighted by their sign."""
APPROXIMATE: Final = "approximate"
"""The posterior, but for the error of each decision."""
TEMPERED: Final = "tempered"
"""A tempered posterior, times a factor that the noise of the estimates leaves."""
BIASED: Final = "biased"
"""The posterior, but for the error of the step size and the noise of the gradient."""
