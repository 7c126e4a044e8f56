"""Small problems whose subsamples can all be enumerated."""

from __future__ import annotations

import numpy as np

from streammc.estimators.blocks import Block, allocate_block, allocate_rows, expanded
from streammc.estimators.target import Base, allocate_point, allocate_work, evaluate
from streammc.models import logistic, poisson
from streammc.numerics.sums import taylor
from streammc.samplers.hamiltonian import Problem
from streammc.stores.memory import from_arrays
from streammc.subsampling.certainty import leave_out
from streammc.subsampling.units import UnitDesign

BUILDERS = {"logistic": logistic, "poisson": poisson}


class Small:
    """A data set of a few rows with everything that the target needs, in plain sight."""

    def __init__(self, model="logistic", n=7, d=2, unit_rows=1, k=2, order=2, certain=(), seed=3):
        rng = np.random.default_rng(seed)
        self.model = BUILDERS[model]()
        self.X = np.c_[np.ones(n), rng.normal(size=(n, d - 1)) * 1.5][:, :d].copy()
        eta = self.X @ rng.normal(size=d)
        self.y = (
            (rng.random(n) < 0.5).astype(float)
            if model == "logistic"
            else rng.poisson(np.exp(np.clip(eta, -2, 2))).astype(float)
        )
        self.offset = rng.normal(size=n) * 0.1
        self.weight = rng.uniform(0.5, 2.0, size=n)
        self.theta_star = rng.normal(size=d) * 0.3
        self.n, self.d, self.k, self.order = n, d, k, order
        self.unit_rows = unit_rows
        self.n_units = -(-n // unit_rows)
        self.certain_rows = np.array(sorted(certain), dtype=np.int64)
        self.labels = [f"beta[x{j}]" for j in range(d)]
        everything = self.expanded(self.rows(np.arange(n)), order)
        g, h = self.sums()
        self.base = Base(
            self.theta_star,
            float(everything.expansion[0].sum()) if order >= 0 else 0.0,
            g if order >= 1 else np.zeros(d),
            h if order >= 2 else np.zeros((d, d)),
            np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(np.eye(d) - h))),
            self.model.prior_table(self.labels),
            self.model.constants,
            1,
            order,
            unit_rows,
            self.n_units / k,
            self.n_units**2 / (k * (k - 1)),
        )
        self.certain = self.expanded(self.rows(self.certain_rows), order)

    def sums(self):
        full = self.expanded(self.rows(np.arange(self.n)), 2)
        return self.X.T @ full.expansion[1], (self.X.T * full.expansion[2]) @ self.X

    def rows(self, index):
        index = np.asarray(index, dtype=np.int64)
        inside = index < self.n
        safe = np.where(inside, index, 0)
        out = allocate_rows(len(index), self.d)
        out.X[:] = self.X[safe] * inside[:, None]
        out.y[:] = self.y[safe] * inside
        out.offset[:] = self.offset[safe] * inside
        out.weight[:] = self.weight[safe] * inside
        return out

    def expanded(self, rows, order) -> Block:
        return expanded(self.model, self.theta_star, order, rows)

    def unit_index(self, units):
        return (np.asarray(units)[:, None] * self.unit_rows + np.arange(self.unit_rows)).ravel()

    def unit_rows_of(self, units):
        """Return the rows of units; certainty rows count 0 times."""
        starts = np.asarray(units, dtype=np.int64) * self.unit_rows
        rows = self.rows(self.unit_index(units))
        leave_out(starts, self.unit_rows, self.certain_rows, rows.weight)
        return rows

    def subsample(self, units) -> Block:
        return self.expanded(self.unit_rows_of(units), self.order)

    def point_at(self, theta, units, base=None):
        base = base or self.base
        sub = self.subsample(units) if len(units) else allocate_block(0, self.d, 1)
        m = len(sub.y)
        point = allocate_point(self.d, len(units), m, 1)
        work = allocate_work(self.d, m, 1, len(self.certain.y))
        point.z[:] = np.linalg.solve(base.factor, np.asarray(theta) - base.theta_star)
        evaluate(self.model.link, taylor, base, self.certain, sub, point, work)
        return point, sub, work

    def log_lik_rows(self, theta):
        eta = self.X @ theta + self.offset
        out = np.zeros((3, self.n))
        self.model.link(eta[None].copy(), self.X.T, self.y, self.model.constants, 0, out)
        return self.weight * out[0]

    def remainder_rows(self, theta):
        """Independent of the production code: derivatives by formula, in NumPy."""
        eta0 = self.X @ self.theta_star + self.offset
        step = self.X @ (theta - self.theta_star)
        if self.model.name == "logistic":
            p = 1 / (1 + np.exp(-eta0))
            value, first, second = self.y * eta0 - np.logaddexp(0, eta0), self.y - p, -p * (1 - p)
        else:
            from scipy.special import gammaln

            mu = np.exp(eta0)
            value, first, second = self.y * eta0 - mu - gammaln(self.y + 1), self.y - mu, -mu
        taylor = value + (first * step if self.order >= 1 else 0)
        taylor = taylor + (0.5 * second * step**2 if self.order >= 2 else 0)
        return self.log_lik_rows(theta) - self.weight * taylor


def kernel_problem(small, *, step_size=None, length=1.5, jitter=0.2, base=None):
    """Return a ``Problem`` for the production chain over a small data set."""
    store = from_arrays(small.X, small.y, offset=small.offset, weight=small.weight)
    k = len(small.certain_rows) < small.n
    return Problem(
        link=small.model.link,
        sums=taylor,
        base=base or small.base,
        certain=small.certain,
        certainty_rows=small.certain_rows,
        design=UnitDesign(small.n, small.unit_rows, small.k, small.k) if k else None,
        source=store.rows(),
        trajectory_length=length,
        jitter=jitter,
        target_acceptance=0.8,
        step_size=step_size,
        constrain=small.model.constrain,
    )


def batch_z(values, exact, batches=200):
    """z of the mean of a chain against an exact value, its error by batch means."""
    means = np.asarray(values)[: len(values) // batches * batches].reshape(batches, -1).mean(axis=1)
    return (means.mean() - exact) / (means.std(ddof=1) / np.sqrt(batches))
