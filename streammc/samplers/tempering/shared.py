"""Problem of the samplers with a ladder: rows, likelihood and options that all chains share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.contiguous_rows import Held
from streammc.likelihood.target import Base
from streammc.protocols import Index, RowSource, Vector
from streammc.samplers.common.chain import Chain
from streammc.samplers.tempering.options import TemperedOptions


@dataclass(frozen=True)
class TemperedProblem:
    """Rows, log-likelihood and options that all chains share."""

    kernel_class: Callable[..., Chain]
    """Class of the chains: ``ParallelKernel`` or ``TransitionKernel``."""
    link: Any
    joint: Any
    """One of the two is never called: ``density.pointers``."""
    explore: Any
    """The inner kernel."""
    base: Base
    full: Held
    """Every row, shared by all chains."""
    source: RowSource
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    options: TemperedOptions
    target_acceptance: float
    first: Vector
    """(d,) mean of the first positions, in the sampler's coordinates."""
    spread: float
    """Standard deviation of the first positions there."""
    proper: bool = True
    """Whether the prior is a density, so that a ladder can end there."""
    log_constant: float | None = 0.0
    """Constant term of the log probability of the responses that the log-likelihood omits;
    ``None``: not known."""
    memory: Callable[[], int] | None = None
    """Bytes that rows of subsets may take, asked by every chain; ``None``: any number."""
    design: None = None
    """There is none: rows are held."""

    @property
    def dim(self) -> int:
        """Length of theta."""
        return int(self.base.theta_star.shape[0])

    @property
    def n_predictors(self) -> int:
        """Predictors of a row, p."""
        q, n_linear = len(self.full.design), int(self.base.n_linear)
        return n_linear + self.dim - n_linear * q

    @property
    def certain(self) -> Block:
        """Every row, not expanded: the rows that are held in memory."""
        return Block(self.full.design, self.full.y, self.full.weight, *_NO_EXPANSION)

    @property
    def certainty_rows(self) -> Index:
        """No row is left out of a subset."""
        return np.zeros(0, dtype=np.int64)

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> Chain:
        """Return chain ``chain`` of the run with that seed."""
        return self.kernel_class(self, seed, chain, batch_iterations=batch_iterations)


_EMPTY = allocate_block(0, 0, 0)
_NO_EXPANSION = (_EMPTY.eta_star, _EMPTY.expansion)
