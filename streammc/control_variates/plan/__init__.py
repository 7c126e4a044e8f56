"""The plan of a subsample: certainty rows, units, blocks, and the tails of the perturbed target.

Limits of a plan that the checks of a run state too stand here, where nothing heavy is imported.
"""

from typing import Final

LARGEST_PERTURBATION: Final = 0.05
"""Largest relative error of masses, means and variances that the tails allow."""
LEAST_SIGN: Final = 0.2
"""Smallest mean sign of a run: errors grow with its reciprocal."""
