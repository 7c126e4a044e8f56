"""Beta-binomial regression: ``k_i ~ Binomial(n_i, b_i)``, ``b_i ~ Beta(mu_i phi, (1 - mu_i) phi)``.

The mean chance of a success is ``mu_i = 1 / (1 + exp(-eta_i))``. The trials of a row share ``b_i``,
so that successes vary ``1 + (n - 1) / (1 + phi)`` times as much as binomial ones (Skellam 1948).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from streammc.models.base import POSITIVE, Parameter, predictor
from streammc.models.responses import counts_of_trials, shares_of_trials, trials_fault
from streammc.models.text_models import DensityModel, Names, named
from streammc.priors import PriorOption, as_prior, half_student_t
from streammc.priors.scaled import Level, logit_level
from streammc.protocols import Matrix, Rows, Vector

_TRIALS: Final = 20.0
"""Trials of a simulated response where none are given."""


def share_level(rows: Rows) -> Level:
    """Return the level of the predictor: the log odds of all successes over all trials."""
    shares, trials = shares_of_trials(rows.y)
    return logit_level(rows._replace(y=shares, weight=trials * rows.weight))


class BetaBinomial(DensityModel):
    """Beta-binomial regression; build it with :func:`beta_binomial`.

    The log probability is that of the trials in their order, as that of ``binomial`` is: it leaves
    out ``log C(n, k)``, which depends on no parameter.
    """

    name: ClassVar[str] = "beta-binomial"
    sees_trials: ClassVar[bool] = True
    level: ClassVar[Any] = staticmethod(share_level)
    parameters = (
        predictor(exponential="odds ratio"),
        Parameter(
            "phi",
            support=POSITIVE,
            default=half_student_t(3.0, 30.0),
            instead_of_flat="half_student_t(3, 30)",
        ),
    )
    where: ClassVar[dict[str, str]] = {
        "trials": "floor(y / 67108864)",
        "successes": "y - 67108864 * trials",
        "a": "exp(within(log(phi) - log1pexp(-eta), 300))",
        "b": "exp(within(log(phi) - log1pexp(eta), 300))",
    }
    log_density: ClassVar[str] = (
        "log_gamma_ratio(a, successes) + log_gamma_ratio(b, trials - successes)"
        " - log_gamma_ratio(phi, trials)"
    )
    mean_response: ClassVar[str] = "logistic(eta)"
    response_fault = staticmethod(trials_fault)

    def log_constant(self, y: Vector, trials: Vector) -> float | None:
        """Return ``sum log C(n, k)``, which the link leaves out."""
        from scipy.special import gammaln

        shares, n = shares_of_trials(y)
        k = np.rint(shares * n)
        return float((gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)).sum())

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw the successes of 20 trials per column of ``eta`` (2, m), as the link sees them."""
        trials = np.full(eta.shape[1], _TRIALS)
        return counts_of_trials(self.simulate_trials(eta, trials, rng), trials)[0]

    def simulate_trials(self, eta: Matrix, trials: Vector, rng: np.random.Generator) -> Vector:
        """Draw the share of successes of ``trials`` (m,), rounded, per column of ``eta`` (2, m)."""
        count = np.maximum(np.rint(trials), 1.0)
        log_phi = np.clip(eta[1], -300.0, 300.0)
        a, b = (np.exp(log_phi - np.logaddexp(0.0, sign * eta[0])) for sign in (-1.0, 1.0))
        chance = rng.beta(np.maximum(a, 1e-300), np.maximum(b, 1e-300))
        y: Vector = rng.binomial(count.astype(np.int64), chance) / count
        return y


def beta_binomial(prior: PriorOption | None = None, varying: Names = ()) -> BetaBinomial:
    """Return regression of successes of n trials, whose chance varies between rows.

    A store has them with ``trials``, as for ``binomial``, which it becomes as ``phi`` grows: the
    trials of a row have the correlation ``1 / (1 + phi)``.

    The default prior of ``phi`` is half-Student-t(3, 30).

    Parameters
    ----------
    varying
        ``"phi"``: it depends on the columns, through a linear predictor of its own for its
        logarithm.

    Examples
    --------
    >>> from streammc.models import beta_binomial
    >>> beta_binomial().labels(["Intercept"])
    ('beta[Intercept]', 'phi')
    """
    return BetaBinomial(as_prior(prior), varying=named(varying))
