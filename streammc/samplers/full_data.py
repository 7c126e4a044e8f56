"""``hmc``: Hamiltonian Monte Carlo on every row, the reference for everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streammc.samplers.options import STATISTICS, TrajectoryOptions, build


@dataclass(frozen=True)
class Hmc(TrajectoryOptions):
    """Options of ``hmc``; ``None`` means chosen automatically."""

    name = "hmc"
    target = "exact"
    statistics = STATISTICS
    subsampled = False
    audited = False
    paper = "Duane, Kennedy, Pendleton and Roweth 1987, Hybrid Monte Carlo"


def hmc(**options: Any) -> Hmc:
    """Return the ``hmc`` sampler with the given options.

    It leaves the posterior invariant (Duane et al. 1987) and reads every row at every
    gradient.

    Parameters
    ----------
    **options
        Fields of :class:`Hmc`.

    Raises
    ------
    ConfigError
        If an option does not exist or has a value outside its range.

    Examples
    --------
    >>> from streammc.samplers import hmc
    >>> hmc().target
    'exact'
    """
    return build(Hmc, "hmc", options)
