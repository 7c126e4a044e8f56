"""Small problems whose subsamples can all be enumerated."""

from __future__ import annotations

import numpy as np
from scipy import stats

from streammc.control_variates.mode.newton import in_memory
from streammc.likelihood.blocks import Block, allocate_block, allocate_rows, expanded
from streammc.likelihood.drawn_units import AliasTable, ProductDesign, UnitDesign, leave_out
from streammc.likelihood.target import Base, allocate_point, allocate_work, evaluate
from streammc.models import (
    binomial,
    gaussian,
    logistic,
    negative_binomial,
    poisson,
    probit,
    student_t,
)
from streammc.numerics.summation import taylor
from streammc.priors import normal
from streammc.samplers.hamiltonian.kernel import Problem
from streammc.stores.memory import from_arrays

BUILDERS = {
    "logistic": logistic,
    "poisson": poisson,
    "probit": probit,
    "binomial": binomial,
    "gaussian": gaussian,
    "student-t": student_t,
    "student-t, 4 df": lambda **options: student_t(df=4.0, **options),
    "negative-binomial": negative_binomial,
}
LOG_LIK = {
    "logistic": lambda y, eta: y * eta - np.logaddexp(0, eta),
    "binomial": lambda y, eta: y * eta - np.logaddexp(0, eta),
    "poisson": lambda y, eta: stats.poisson(np.exp(eta)).logpmf(y),
    "probit": lambda y, eta: stats.norm.logcdf((2 * y - 1) * eta),
    "gaussian": lambda y, eta, s: stats.norm(eta, np.exp(s)).logpdf(y),
    "student-t": lambda y, eta, s, nu: stats.t(np.exp(nu), eta, np.exp(s)).logpdf(y),
    "student-t, 4 df": lambda y, eta, s: stats.t(4.0, eta, np.exp(s)).logpdf(y),
    "negative-binomial": lambda y, eta, phi: stats.nbinom(
        np.exp(phi), 1 / (1 + np.exp(eta - phi))
    ).logpmf(y),
}
"""``(y, eta, shared parameters as they are sampled)``: the likelihoods by SciPy."""
SEVERAL = ["gaussian", "student-t, 4 df", "student-t", "negative-binomial"]


class Small:
    """A data set of a few rows with everything that the target needs, in plain sight."""

    def __init__(
        self,
        model="logistic",
        n=7,
        d=2,
        unit_rows=1,
        k=2,
        order=2,
        certain=(),
        seed=3,
        prior=None,
        near_mode=False,
        relative=None,
        power=1.0,
    ):
        rng = np.random.default_rng(seed)
        self.kind = model
        self.model = BUILDERS[model](prior=normal(10.0) if prior is None else prior)
        self.X = np.c_[np.ones(n), rng.normal(size=(n, d - 1)) * 1.5][:, :d].copy()
        eta = self.X @ rng.normal(size=d)
        if model in ("logistic", "probit"):
            self.y = (rng.random(n) < 0.5).astype(float)
        elif model in ("poisson", "negative-binomial"):
            self.y = rng.poisson(np.exp(np.clip(eta, -2, 2))).astype(float)
        else:
            self.y = rng.random(n) if model == "binomial" else eta + rng.normal(size=n)
        self.offset = rng.normal(size=n) * 0.1
        self.weight = power * rng.uniform(0.5, 2.0, size=n)
        self.dim = self.model.dim(d)
        self.p = 1 + self.model.n_scalar
        self.theta_star = rng.normal(size=self.dim) * 0.3
        self.n, self.d, self.k, self.order = n, d, k, order
        if near_mode:
            start = self.model.start(self.rows(np.arange(n)))
            self.theta_star = start + 0.3 * self.theta_star
        self.unit_rows = unit_rows
        self.n_units = -(-n // unit_rows)
        table = AliasTable(np.asarray(relative, float)) if relative is not None else None
        self.design = UnitDesign(n, unit_rows, k, k, probabilities=table)
        self.omega = np.full(self.n_units, 1 / self.n_units)
        if table is not None:
            self.omega = table.tickets / (self.n_units * 2.0**32)  # exactly what is drawn
        self.certain_rows = np.array(sorted(certain), dtype=np.int64)
        self.labels = list(self.model.labels([f"x{j}" for j in range(d)]))
        everything = self.expanded(self.rows(np.arange(n)), order)
        g, h = self.sums()
        self.base = Base(
            self.theta_star,
            float(everything.expansion[0].sum()) if order >= 0 else 0.0,
            g if order >= 1 else np.zeros(self.dim),
            h if order >= 2 else np.zeros((self.dim, self.dim)),
            whitening(h),
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
        return in_memory(self.model, self.rows(np.arange(self.n)), 1.0)(self.theta_star)[1:]

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
        """Return the rows of units as a chain weighs them; certainty rows count 0 times."""
        units = np.asarray(units, dtype=np.int64)
        rows = self.rows(self.unit_index(units))
        leave_out(units * self.unit_rows, self.unit_rows, self.certain_rows, rows.weight)
        self.design.reweigh(units, rows.weight)
        return rows

    def subsample(self, units) -> Block:
        return self.expanded(self.unit_rows_of(units), self.order)

    def product_base(self, intensity, bound, factor_units=1, growth=0.0):
        """Return the base of a block-Poisson product over the same rows."""
        return self.base._replace(
            estimate_factor=self.n_units / factor_units,
            variance_factor=0.0,
            factor_units=factor_units,
            intensity=float(intensity),
            soft_bound=float(bound),
            bound_growth=float(growth),
        )

    def point_at(self, theta, units, base=None):
        base = base or self.base
        sub = self.subsample(units) if len(units) else allocate_block(0, self.d, self.p)
        m = len(sub.y)
        point = allocate_point(self.dim, len(units), m, self.p)
        work = allocate_work(self.dim, m, self.p, len(self.certain.y))
        point.z[:] = np.linalg.solve(base.factor, np.asarray(theta) - base.theta_star)
        evaluate(self.model.link, taylor, base, self.certain, sub, point, work)
        return point, sub, work

    def log_lik_rows(self, theta):
        """Independent of the production code: by SciPy."""
        eta = self.X @ theta[: self.d] + self.offset
        return self.weight * LOG_LIK[self.kind](self.y, eta, *theta[self.d :])

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


def whitening(hessian):
    """Return a lower triangular matrix that makes the posterior round, or nearly."""
    precision = np.eye(len(hessian)) - hessian
    try:
        return np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(precision)))
    except np.linalg.LinAlgError:  # far from the mode
        return np.diag(1 / np.sqrt(np.abs(np.diag(precision))))


def kernel_problem(
    small, *, step_size=None, length=1.5, jitter=0.2, base=None, n_blocks=None, **settings
):
    """Return a ``Problem`` for the production chain over a small data set."""
    base = base or small.base
    if base.factor_units:
        units = round(base.intensity) * base.factor_units
        design = ProductDesign(
            small.n,
            small.unit_rows,
            units,
            n_blocks or round(base.intensity),
            base.factor_units,
            probabilities=small.design.probabilities,
        )
        settings["design"] = design
    store = from_arrays(small.X, small.y, offset=small.offset, weight=small.weight)
    k = len(small.certain_rows) < small.n
    return Problem(
        link=small.model.link,
        sums=taylor,
        base=base,
        certain=small.certain,
        certainty_rows=small.certain_rows,
        design=settings.pop("design", small.design if k else None),
        source=store.rows(),
        trajectory_length=length,
        jitter=jitter,
        target_acceptance=0.8,
        step_size=step_size,
        constrain=small.model.constrain,
        **settings,
    )


def batch_z(values, exact, batches=200):
    """z of the mean of a chain against an exact value, its error by batch means."""
    means = np.asarray(values)[: len(values) // batches * batches].reshape(batches, -1).mean(axis=1)
    return (means.mean() - exact) / (means.std(ddof=1) / np.sqrt(batches))
