"""One chain of Hamiltonian Monte Carlo, in batches of the compiled transition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammc import rng as streams
from streammc.errors import ModelError
from streammc.likelihood.blocks import Block, ExpansionPoint, allocate_block, expand
from streammc.likelihood.drawn_units import UnitDesign
from streammc.likelihood.target import (
    DENSITY,
    UNITS,
    Base,
    allocate_point,
    allocate_work,
    evaluate,
    whiten_rows,
)
from streammc.numerics.row_products import aligned
from streammc.protocols import Index, Matrix, RowSource
from streammc.samplers.common import tuning
from streammc.samplers.common.chains import BATCH_ROWS, BATCH_SECONDS, Chain, first_position
from streammc.samplers.common.statistics import PERTURBED_STATISTICS, SIGNED_STATISTICS, STATISTICS
from streammc.samplers.hamiltonian.transition import (
    LONGEST_STEP,
    Ahead,
    Buffers,
    Dynamics,
    Proposal,
    allocate_proposal,
    allocate_tree,
    transition,
)


@dataclass(frozen=True)
class Problem:
    """Constants shared by all chains: compiled link, target, certainty rows, design, options."""

    link: Any
    sums: Any
    """Compiled log-likelihood of the Taylor sums: ``taylor``, or the exact one of a model."""
    base: Base
    certain: Block
    certainty_rows: Index
    """Sorted indices of the certainty rows; empty if the certainty block holds every row."""
    design: UnitDesign | None
    """Sampling design; ``None`` for full-data HMC."""
    source: RowSource
    trajectory_length: float
    jitter: float
    target_acceptance: float
    step_size: float | None
    """Step size fixed by the user, or ``None`` for dual averaging."""
    constrain: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """Function from theta (..., D) of ``base`` to the reported parameters."""
    nuts: bool = False
    """Whether a trajectory ends where it turns back (NUTS), instead of at a given length."""
    leapfrog: bool = False
    """Whether the integrator is the leapfrog, without the Gaussian part."""
    spread: float = 1.0
    """Spread of first positions, in Laplace standard deviations."""
    modes: Matrix | None = None
    """(M, d) other modes, whitened: chains start around theta_star and these in turn."""

    @property
    def product(self) -> bool:
        """Whether the likelihood is estimated by a block-Poisson product."""
        return self.base.factor_units > 0

    @property
    def longest_step(self) -> float:
        """Largest tuned step: above the length, so that a step at the bound means one step."""
        return LONGEST_STEP if self.nuts else 1.05 * self.trajectory_length

    @property
    def dim(self) -> int:
        """Number of parameters: length of z."""
        return int(self.base.factor.shape[1])

    def kernel(self, seed: int, chain: int, *, batch_iterations: int = 4096) -> HamiltonianKernel:
        """Return the kernel of chain ``chain`` of the run with this seed."""
        return HamiltonianKernel(self, seed, chain, batch_iterations=batch_iterations)


class HamiltonianKernel(Chain):
    """Chain of ``hmc``, ``hmc-ecs`` or ``hmc-ecs-signed``."""

    def __init__(
        self, problem: Problem, seed: int, chain: int, *, batch_iterations: int = 4096
    ) -> None:
        super().__init__(problem, seed, chain, batch_iterations=batch_iterations)
        self.problem = problem
        self._run = transition(problem.nuts, problem.product)
        self._chain = chain
        self.statistics = STATISTICS
        if problem.design is not None:
            self.statistics = SIGNED_STATISTICS if problem.product else PERTURBED_STATISTICS
        d, p = problem.dim, problem.certain.eta_star.shape[0]
        unit_rows = problem.base.unit_rows
        design = problem.design.for_chain(seed, chain) if problem.design else None
        k = design.capacity if design else 0
        m = k * unit_rows
        q = problem.source.n_features
        self._design = design
        order = problem.base.order
        self._sub = allocate_block(m, q, p, order)._replace(design=aligned(q, m))
        self._units = np.zeros(k, dtype=np.int64)
        bounds = design.block_bounds() if design else np.zeros(1, dtype=np.int64)
        self._proposal = allocate_proposal(q, p, unit_rows, bounds, self._units, order=order)
        wide = len(problem.base.theta_star)
        self._point = allocate_point(d, k, m, p, wide)
        self._trial = allocate_point(d, k, m, p, wide)
        self._work = allocate_work(d, m, p, problem.certain.y.shape[0], wide)
        self._tree = allocate_tree(d, k, m, p, wide, used=problem.nuts)
        # A first guess in the power of d by which the best step falls; warm-up tunes it.
        first_step = problem.step_size or min(1.0, 1.2 * d**-0.25)
        self._tuning = tuning.start(first_step, reference=not problem.leapfrog)

    def initialise(self) -> None:
        """Draw a start, around theta_star or another mode, and the first subsample.

        Raises
        ------
        ModelError
            If the log density is not finite at any of 100 starts.
        """
        problem = self.problem
        if self._ahead and self._design:  # the first units are those proposed before iteration 0
            counts = self._design.proposal_counts(-self._design.n_blocks, self._design.n_blocks)
            units = self._ahead.take(int(counts.sum()))
            self._use(len(units))
            self._units[: len(units)] = units
            if problem.product:
                factors = counts // problem.base.factor_units
                owner = np.repeat(np.arange(len(factors), dtype=np.int64), factors)
                self._proposal.owner[: len(owner)] = owner
            self._load_subsample()
        for attempt in range(100):
            self._point.z[:] = first_position(
                self._kernel_rng, problem.dim, self._chain, attempt, problem.spread, problem.modes
            )
            self._evaluate()
            inside = _inside(problem.base, self._point.z, self._work.theta)
            if inside and math.isfinite(self._point.scalars[DENSITY]):
                return
        raise ModelError(
            "expected a finite log density at a start drawn around theta_star, found none in "
            "100 tries; check the prior and the response, or rescale the features"
        )

    def get_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON; see ``common.chains``."""
        arrays: dict[str, NDArray[Any]] = {
            f"point_{name}": array.copy() for name, array in self._point._asdict().items()
        }
        arrays["units"] = self._units.copy()
        arrays["owner"] = self._proposal.owner.copy()
        arrays["weight"] = self._sub.weight.copy()
        arrays["eta_star"] = self._sub.eta_star.copy()
        arrays["expansion"] = self._sub.expansion.copy()
        arrays["tuning"] = self._tuning.copy()
        arrays["whitened"] = np.array([len(self.problem.base.whitening) > 0], dtype=np.int64)
        meta: dict[str, Any] = {
            "iteration": self.iteration,
            "rows_gathered": self.rows_gathered,
            "kernel_rng": streams.get_state(self._kernel_rng),
        }
        if self._ahead:
            meta["subsample_rng"] = self._ahead.get_state()
        return arrays, meta

    def set_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`, bit for bit.

        The rows are gathered again; their expansions come from the checkpoint, since a
        vectorised loop may round the same row differently at another position.
        """
        self._units[:] = arrays["units"]
        self._proposal.owner[:] = arrays["owner"]
        for name, array in self._point._asdict().items():
            array[...] = arrays[f"point_{name}"]
        design = self._design
        if design:
            self._use(int(self._point.used[UNITS]))
            starts = np.sort(design.starts(self._units[: self._point.used[UNITS]]))
            self.problem.source.will_need(starts, design.unit_rows)
            self._load_subsample()
        self._sub.weight[:] = arrays["weight"]
        self._sub.eta_star[...] = arrays["eta_star"]
        self._sub.expansion[...] = arrays["expansion"]
        self._tuning[:] = arrays["tuning"]
        then = "whitened" in arrays and arrays["whitened"][0] > 0
        if then != (len(self.problem.base.whitening) > 0):
            self._evaluate()  # the checkpoint of an earlier version: its gradients are in theta
        self.iteration = int(meta["iteration"])
        self.rows_gathered = int(meta["rows_gathered"])
        self._kernel_rng = streams.from_state(meta["kernel_rng"])
        if self._ahead:
            self._ahead.set_state(meta["subsample_rng"])

    def _batch(self) -> int:
        """Return the number of iterations of a batch: about 0.1 s, with a limit on its rows."""
        count = self.batch_iterations
        if self._seconds_per_iteration > 0.0:
            count = min(count, int(BATCH_SECONDS / self._seconds_per_iteration))
        else:
            count = min(count, 8)
        if self._design:
            usual = -(-self._design.subsample_units // self._design.n_blocks)
            count = min(count, BATCH_ROWS // (usual * self._design.unit_rows))
        return max(count, 1)

    def _run_batch(
        self, theta: NDArray[np.float64], statistics: NDArray[np.float64], warmup: bool
    ) -> None:
        problem = self.problem
        n = theta.shape[0]
        units = self._ahead.take(self._proposed(self.iteration, n)) if self._ahead else self._units
        proposal = self._prepare(n) if problem.product else self._proposal
        proposed = Ahead(self._gather(units), units)
        if self._ahead:
            self._ahead.prefetch(self._proposed(self.iteration + n, self._batch()))
        tuned = 2 if problem.step_size is None else 1  # see ``Dynamics.adapt``
        dynamics = Dynamics(
            problem.trajectory_length,
            problem.jitter,
            problem.target_acceptance,
            problem.longest_step,
            tuned if warmup else 0,
        )
        buffers = Buffers(
            self._sub, self._point, self._trial, proposal, self._work, self._tree, self._tuning
        )
        self._run(
            problem.link,
            problem.sums,
            problem.base,
            problem.certain,
            buffers,
            proposed,
            self.iteration,
            dynamics,
            self._kernel_rng,
            (theta, statistics),
        )
        self.iteration += n
        if proposal.crowded[0]:
            raise ModelError(
                f"expected {problem.base.intensity:.0f} factors in the block-Poisson product, "
                f"found more than {len(proposal.owner)}: the remainder is far from what the plan "
                "saw; use hmc"
            )

    def _evaluate(self) -> None:
        """Evaluate the log density and its gradient at the current position."""
        given = self.problem
        evaluate(
            given.link, given.sums, given.base, given.certain, self._sub, self._point, self._work
        )

    def _use(self, units: int) -> None:
        """Set the number of units in use of the current and the trial point."""
        for point in (self._point, self._trial):
            point.used[:] = units, units * self.problem.base.unit_rows

    def _prepare(self, n: int) -> Proposal:
        """Return the proposal buffers, large enough for each of the next ``n`` iterations."""
        assert self._design is not None
        counts = self._design.proposal_counts(self.iteration, n)
        largest = int(counts.max(initial=1))
        if largest > len(self._proposal.totals):
            old, base = self._proposal, self.problem.base
            q, p = self._sub.design.shape[0], self._sub.eta_star.shape[0]
            new = allocate_proposal(
                q, p, base.unit_rows, old.bounds, old.units, largest, base.order
            )
            self._proposal = new._replace(owner=old.owner, crowded=old.crowded)
        return self._proposal._replace(counts=counts)

    def _proposed(self, iteration: int, n: int) -> int:
        """Return the number of units proposed in the ``n`` iterations from ``iteration`` on."""
        return int(self._design.proposal_counts(iteration, n).sum()) if self._design else 0

    def _load_subsample(self) -> None:
        """Gather and expand the units of the subsample."""
        units = self._units[: self._point.used[UNITS]]
        problem, base, rows = self.problem, self.problem.base, self._gather(units)
        centre = base.centre if len(base.centre) else base.theta_star
        star = ExpansionPoint(centre, base.constants, base.n_linear, base.order)
        expand(problem.link, star, rows, 0, len(rows.y), self._sub, 0, self._work.scratch)
        if len(base.whitening):
            whiten_rows(base.whitening, rows, 0, len(rows.y), self._sub, 0, self._work.gradient)


def _inside(base: Base, z: NDArray[np.float64], theta: NDArray[np.float64]) -> bool:
    """Return whether ``z`` is inside the edge and all walls, as ``target.beyond_edge`` does.

    ``theta`` (d,) is that of ``z``. Edge and walls are in whitened coordinates of theta, without
    ``stretch``.
    """
    walls = base.walls
    if len(base.mode):
        effects, owners = base.levels[:, :2].astype(np.int64).T
        moved = theta.copy()
        moved[effects] *= np.exp(-base.levels[:, 2] * (theta[owners] - base.mode[owners]))
        z = np.asarray(np.linalg.solve(base.mode_factor, moved - base.mode), dtype=np.float64)
    if float(z @ z) > base.edge:
        return False
    return not len(walls) or bool(np.all(walls[:, :-1] @ z <= walls[:, -1]))
