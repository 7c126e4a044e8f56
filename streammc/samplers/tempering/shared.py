"""Problem of the samplers with a ladder: rows, likelihood and options that all chains share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.likelihood.blocks import Block, allocate_block
from streammc.likelihood.contiguous_rows import Held
from streammc.likelihood.target import Base
from streammc.protocols import Index, RowSource, Vector
from streammc.samplers.common.chain import Chain
from streammc.samplers.common.ladder import Ladder
from streammc.samplers.tempering.options import HMC, NESTED, STEPS, TemperedOptions

FIRST_STEP: Final = {HMC: (0.5, 0.25), "random-walk": (2.38, 0.5)}
"""A first step size ``c d^-p`` at level 0."""


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
    def first_step(self) -> float:
        """Step size of level 0 before it is tuned."""
        c, power = FIRST_STEP[self.options.explorer]
        return self.options.step_size or float(c * self.dim**-power)

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

    def ladder(self, beta: Vector) -> Ladder:
        """Return the levels of a first ladder."""
        options, n = self.options, len(self.full.y)
        ones, zeros = np.ones(len(beta)), np.zeros(len(beta), dtype=np.int64)
        ladder = Ladder(
            beta=beta.copy(),
            power=ones.copy(),
            prior_power=ones.copy(),
            lo=zeros.copy(),
            hi=zeros + n,
            step=ones * self.first_step,
            n_steps=options.n_steps or STEPS,
            jitter=options.jitter,
            own=int(options.subsets_of_rows),
        )
        self.set_beta(ladder, beta)
        # At the prior a step in posterior standard deviations is as long as anything.
        ladder.step[:] *= np.maximum(beta, 1.0 / max(n, 1)) ** -0.5
        return ladder

    def set_beta(self, ladder: Ladder, beta: Vector) -> None:
        """Give the levels other inverse temperatures; the rows of subsets change as well."""
        options, n = self.options, len(self.full.y)
        ladder.beta[:] = beta
        if not options.subsets_of_rows:
            ladder.power[:] = beta
            if getattr(options, "path", None) == "posterior":
                ladder.prior_power[:] = beta
            return
        ladder.lo[:], ladder.hi[:] = subset_bounds(options, beta, n)

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> Chain:
        """Return chain ``chain`` of the run with that seed."""
        return self.kernel_class(self, seed, chain, batch_iterations=batch_iterations)


def subset_bounds(options: TemperedOptions, beta: Vector, n: int) -> tuple[Index, Index]:
    """Return (M + 1,) first and last rows of the levels in their table; level 0 has all ``n``."""
    # The prior has no rows, any other level has one at least.
    sizes = np.maximum(np.rint(beta * n), beta > 0.0).astype(np.int64)
    sizes[0] = n
    lo = np.zeros(len(beta), dtype=np.int64)
    if getattr(options, "subsets", None) != NESTED:
        lo[2:] = np.cumsum(sizes[1:])[:-1]
    return lo, lo + sizes


_EMPTY = allocate_block(0, 0, 0)
_NO_EXPANSION = (_EMPTY.eta_star, _EMPTY.expansion)
