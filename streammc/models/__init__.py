"""Likelihood families, one per file, resolved by name on first use.

Importing a family compiles (or loads) its link, so nothing is imported before it is
asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from streammc.docstrings import documented
from streammc.registry import MODELS

if TYPE_CHECKING:
    from streammc.models.check import check_model
    from streammc.models.gaussian_processes.squared_exponential import gaussian_process
    from streammc.models.glm.bernoulli_logit import logistic
    from streammc.models.glm.bernoulli_probit import probit
    from streammc.models.glm.binomial_logit import binomial
    from streammc.models.glm.gaussian_identity import gaussian
    from streammc.models.glm.negative_binomial_log import negative_binomial
    from streammc.models.glm.poisson_log import poisson
    from streammc.models.glm.student_t_identity import student_t
    from streammc.models.mixtures.known_covariance import gaussian_mean
    from streammc.models.mixtures.mixture import gaussian_mixture
    from streammc.models.mixtures.mixture_free import gaussian_mixture_free
    from streammc.models.mixtures.mixture_tied import gaussian_mixture_tied
    from streammc.models.networks.sigmoid_network import network
    from streammc.models.user_model import user

__all__ = [
    "binomial",
    "check_model",
    "gaussian",
    "gaussian_mean",
    "gaussian_mixture",
    "gaussian_mixture_free",
    "gaussian_mixture_tied",
    "gaussian_process",
    "logistic",
    "negative_binomial",
    "network",
    "poisson",
    "probit",
    "student_t",
    "user",
]

_OTHERS: Final = {
    "check_model": "streammc.models.check",
    "user": "streammc.models.user_model",
}


def __getattr__(name: str) -> Any:
    """Return the builder of the model ``name``, importing it and completing its help."""
    if name in _OTHERS:
        found = getattr(import_module(_OTHERS[name]), name)
    elif name.replace("_", "-") in MODELS:
        from streammc.registry import model

        found = model(name.replace("_", "-"))
    else:
        raise AttributeError(
            f"module 'streammc.models' has no attribute {name!r}: it has {', '.join(__dir__())}",
            name=name,
            obj=sys.modules[__name__],
        )
    return globals().setdefault(name, documented()(found))


def __dir__() -> list[str]:
    """List the builders of models and :func:`check_model`."""
    return sorted([*(name.replace("-", "_") for name in MODELS), *_OTHERS])
