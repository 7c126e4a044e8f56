"""Densities that fit coefficients and positive parameters: uniform and flat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streammc.docstrings import documented
from streammc.errors import ConfigError
from streammc.numerics.prior import KIND, LOG_FLAT
from streammc.priors.densities import FLAT_FAMILY, UNIFORM_FAMILY
from streammc.priors.family import FamilyPrior, build
from streammc.priors.per_coefficient import Option
from streammc.protocols import Matrix


def refuse_flat(labels: Sequence[str], table: Matrix, instead: Mapping[str, str]) -> None:
    """Refuse a flat prior where the likelihood tends to a constant above 0.

    Parameters
    ----------
    labels
        Names of the d parameters.
    table
        Their priors (d, 5).
    instead
        What to write for each parameter of this kind, by its label.

    Raises
    ------
    ConfigError
        If one of them is flat: the posterior would be improper.
    """
    for label, kind in zip(labels, table[:, KIND], strict=True):
        if kind == LOG_FLAT and label in instead:
            raise ConfigError(
                f"the prior of {label!r} must be proper, found flat: the likelihood tends to a "
                f"constant as it grows, so that the posterior is improper: write {instead[label]}"
            )


@documented()
def uniform(low: Option, high: Option) -> FamilyPrior:
    """Return uniform priors, density ``1 / (high - low)`` between and 0 outside.

    A trajectory that ends outside is rejected. ``theta_star`` is the mode with the walls
    smoothed, see ``numerics.prior.smooth``.

    Parameters
    ----------
    low, high
        Ends, on the store's scale, in the forms of :func:`normal`. For a scale parameter the
        density is uniform in its value, and ``low`` at least 0.

    Raises
    ------
    ConfigError
        If an end is not finite, or (when the table is made) ``low`` is not below ``high``.
    """
    prior = build(UNIFORM_FAMILY, low=low, high=high)
    (_, a), (_, b) = prior.settings
    if isinstance(a, float) and isinstance(b, float) and not a < b:
        raise ConfigError(
            f"a uniform prior must have low below high, found {a:g} and {b:g}"
            ": give a low below high"
        )
    return prior


@documented()
def flat() -> FamilyPrior:
    """Return the improper prior with density 1.

    The posterior may then not exist: separated or collinear data are refused when
    control variates are computed; so is a flat prior on ``nu`` of Student-t and ``phi`` of
    negative binomial regression. On ``sigma`` it has density 1 in ``sigma``, not in its log.

    Examples
    --------
    >>> from streammc.priors import flat
    >>> flat().describe()
    {'family': 'flat'}
    """
    return build(FLAT_FAMILY)
