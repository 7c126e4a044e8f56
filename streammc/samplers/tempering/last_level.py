"""The last level of a ladder: the prior, where independent draws of it can be made."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from streammc.errors import ConfigError
from streammc.numerics.prior_draws import improper
from streammc.protocols import Model
from streammc.samplers.tempering.options import TemperedOptions

WARM: Final = 0.125
"""Inverse temperature of the last level of a ladder that cannot end at the prior."""


def ended(model: Model, labels: tuple[str, ...], sampler: TemperedOptions) -> TemperedOptions:
    """Return the options with a last level: the prior, where it can be sampled.

    Raises
    ------
    ConfigError
        If the last level was asked to be the prior and that is no density.
    """
    flat = improper(model.prior_table(labels))
    if sampler.n_levels != 1 and sampler.beta_min == 0.0 and flat.any():
        raise ConfigError(
            "expected a prior that can be sampled, as beta_min=0 asks for, found a flat one on "
            f"{labels[int(np.argmax(flat))]}; set another prior or a beta_min above 0"
        )
    if sampler.beta_min is None:
        above = flat.any() or sampler.powers_of_prior
        sampler = replace(sampler, beta_min=WARM if above else 0.0)
    return sampler
