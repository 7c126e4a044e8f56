"""Samplers, one algorithm per file; builders are found through the registry."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from streammc.registry import NOT_SAMPLERS, SAMPLERS, sampler

if TYPE_CHECKING:
    from streammc.samplers.equi_energy.options import mintee
    from streammc.samplers.hamiltonian.energy_conserving import hmc_ecs
    from streammc.samplers.hamiltonian.full_data import hmc
    from streammc.samplers.hamiltonian.signed import hmc_ecs_signed
    from streammc.samplers.metropolis.mh import mh
    from streammc.samplers.metropolis.mh_austere import mh_austere
    from streammc.samplers.metropolis.mh_fixed import mh_fixed
    from streammc.samplers.metropolis.mh_minibatch import mh_minibatch
    from streammc.samplers.metropolis.mh_sublhd import mh_sublhd
    from streammc.samplers.metropolis.mint import mint
    from streammc.samplers.stochastic_gradient.sghmc import sghmc
    from streammc.samplers.stochastic_gradient.sgld import sgld
    from streammc.samplers.tempering.parallel_tempering import pt, spt
    from streammc.samplers.tempering.tempered_transitions import stt, tt

__all__ = [
    "hmc",
    "hmc_ecs",
    "hmc_ecs_signed",
    "mh",
    "mh_austere",
    "mh_fixed",
    "mh_minibatch",
    "mh_sublhd",
    "mint",
    "mintee",
    "pt",
    "sghmc",
    "sgld",
    "spt",
    "stt",
    "tt",
]


def __getattr__(name: str) -> Any:
    """Return the builder of the sampler with that name, dashes written as underscores."""
    registered = name.replace("_", "-")
    if registered in SAMPLERS:
        return sampler(registered)
    if name in NOT_SAMPLERS:
        raise AttributeError(f"no sampler {name!r}: {NOT_SAMPLERS[name]}")
    raise AttributeError(
        f"module 'streammc.samplers' has no attribute {name!r}: it has {', '.join(__dir__())}",
        name=name,
        obj=sys.modules[__name__],
    )


def __dir__() -> list[str]:
    """List the samplers."""
    return sorted(name.replace("-", "_") for name in SAMPLERS)
