"""``hmc``: Hamiltonian Monte Carlo on every row, the reference for everything."""

from __future__ import annotations

from dataclasses import dataclass

from streammc.samplers.common.builders import builder
from streammc.samplers.common.statistics import STATISTICS
from streammc.samplers.common.targets import EXACT
from streammc.samplers.hamiltonian.options import TrajectoryOptions


@dataclass(frozen=True, kw_only=True)
class Hmc(TrajectoryOptions):
    """Sampler ``hmc``: Hamiltonian Monte Carlo on every row, the reference for everything.

    It leaves the posterior invariant (Duane et al. 1987) and evaluates every row at every gradient.

    Examples
    --------
    >>> from streammc.samplers import hmc
    >>> hmc().target
    'exact'
    """

    name = "hmc"
    target = EXACT
    statistics = STATISTICS
    subsampled = False
    audited = False
    paper = "Duane, Kennedy, Pendleton and Roweth 1987, Hybrid Monte Carlo"


hmc = builder(Hmc)
