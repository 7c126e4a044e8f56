"""``hmc``: Hamiltonian Monte Carlo on every row, the reference for all samplers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streammc.samplers.common.builders import builder
from streammc.samplers.common.statistics import OF_ESTIMATES, STATISTICS, recorded
from streammc.samplers.common.targets import EXACT
from streammc.samplers.hamiltonian.options import TrajectoryOptions

if TYPE_CHECKING:
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.request import RunRequest, Setup


@dataclass(frozen=True, kw_only=True)
class Hmc(TrajectoryOptions):
    """Sampler ``hmc``: Hamiltonian Monte Carlo on every row, the reference for all samplers.

    It leaves the posterior invariant (Duane et al. 1987) and evaluates every row at every gradient.

    Examples
    --------
    >>> from streammc.samplers import hmc
    >>> hmc().target
    'exact'
    """

    name = "hmc"
    target = EXACT
    samples_scales = True
    statistics = recorded(STATISTICS, *OF_ESTIMATES)
    paper = "Duane, Kennedy, Pendleton and Roweth 1987, Hybrid Monte Carlo"

    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return the setup: control variates for start and metric, no plan; see ``Sampler``."""
        from streammc.samplers.hamiltonian.preparation import prepare_full_data

        return prepare_full_data(self, request, reason)

    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return the problem that all chains share; see ``Sampler``."""
        from streammc.samplers.hamiltonian.problem import full_data

        return full_data(request.dataset, request.model, setup.cv, self)


hmc = builder(Hmc)
