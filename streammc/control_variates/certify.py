"""Find the expansion point and make the pass that certifies it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from streammc.control_variates.default_priors import resolved
from streammc.control_variates.draws import covering_draws
from streammc.control_variates.expansion import ControlVariates, model_digest
from streammc.control_variates.forecast import Phases, announce, counted
from streammc.control_variates.full_pass.block_kernel import tile_rows
from streammc.control_variates.full_pass.block_pass import (
    SUMMARY_COLUMNS,
    BlockSums,
    ExpansionPass,
    raise_fault,
    row_order,
)
from streammc.control_variates.kinds import PASS_OPTIONS, check_kinds, check_progress
from streammc.control_variates.mode.conflict import prior_conflict
from streammc.control_variates.mode.first_centre import first_centre
from streammc.control_variates.mode.mode_words import exact_fit_words, mode_words, recorded
from streammc.control_variates.mode.newton import (
    NotPositiveDefiniteError,
    Point,
    damped_point,
    flat_message,
    maximise,
    posterior_point,
)
from streammc.control_variates.mode.starts import concave, log_scales
from streammc.control_variates.mode.weak_directions import largest_move, unchecked, weak_directions
from streammc.control_variates.subset import Spread, draw_subset, gather, in_memory, surrogate
from streammc.docstrings import documented
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.pass_cost import CANDIDATE_ROWS, SUBSET_BYTES
from streammc.likelihood.temperature import Schedule
from streammc.likelihood.tempered import split_fingerprint, tempered
from streammc.numerics.blas import single_threaded
from streammc.numerics.prior import FLAT, KIND, LOG_FLAT
from streammc.protocols import Dataset, Matrix, Model, Rows, Vector

N_DRAWS = 8
N_DRAWS_SMALL = 32
"""Draws up to ``SMALL_ROWS`` rows, where time is no matter: with 32 draws instead of 8,
covtype93k needs 2600 instead of 3100 rows an iteration, a9a 3800 instead of 5100."""
SMALL_ROWS = 2**18
LARGEST_DECREMENT = 0.1
FARTHEST_DECREMENT = 100.0
"""A run from farther away is not started: its coordinates would mean nothing."""
MAX_PASSES = 12
LARGEST_MOVE = 3.0
"""Of a linear predictor, between two passes that make the steps of Newton's method."""


@documented(PASS_OPTIONS)
def compute(
    dataset: Dataset,
    model: Model,
    *,
    order: int = 2,
    passes: int | None = None,
    theta_star: Vector | None = None,
    near: bool = False,
    temperature: float | str = 1.0,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
    phases: Phases | None = None,
    candidate_rows: int = CANDIDATE_ROWS,
    memory_limit: int = SUBSET_BYTES,
) -> ControlVariates:
    """Return control variates around the posterior mode, certified by a full pass.

    Call it as ``streammc.control_variates(dataset, model)``, and give the result to
    ``streammc.sample``, which otherwise makes its own. A control variate is the Taylor
    expansion of the log-likelihood of a row around theta_star.

    Newton's method on rows in memory gives the first centre. Each pass evaluates
    sums and scores there; while Newton's decrement is 0.1 posterior sd or more, the
    centre moves to the maximum of: the expansion for all rows, corrected by the exact
    remainder of the rows with the highest scores.

    Parameters
    ----------
    dataset
        The rows: a store, or arrays in memory.
    model
        Their likelihood, with its prior; see ``streammc.models``.
    order : {0, 1, 2}
        Order of the Taylor expansions.
    passes
        At most this many full passes; ``None``: until certified, at most 12. 1 keeps
        the first centre whatever its certificate says, as in the papers.
    theta_star : array of d numbers, or None
        First centre, on the scale that is sampled (of a positive parameter the logarithm).
        ``None``: the mode of a subset.
    near
        Whether ``theta_star`` is the mean of draws from the posterior: with one pass rows are then
        scored around it, and not where a subset puts the posterior.
    temperature
        T: every row counts 1 / T times; of a schedule such as ``"100:sqrt"`` where it ends.
    phases : Callable[[str, int, None, dict], None] | None
        Called as ``phases(phase, done, None, facts)`` with ``forecast`` before any work that is
        expected to last over a minute, and ``newton`` after every step that follows.
    candidate_rows
        Rows with the highest scores that are kept in memory, at most.
    memory_limit
        Bytes that these rows, and those of the subset that gives the first centre, may take.

    Returns
    -------
    ControlVariates
        ``theta_star``, the sums of all expansions, and a ``certificate`` of how far the mode is.

    Raises
    ------
    ConfigError
        If an option is out of range.
    ModelError
        If a response is outside the support, or the posterior has no mode.
    OutOfMemoryError
        If the matrices of a pass do not fit in the memory that is available.
    """
    started = time.perf_counter()
    check_kinds(dataset, model)
    check_progress(progress)
    require_rows(model)
    model = resolved(model, dataset)
    dataset = tempered(dataset, Schedule.parse(temperature).final)
    _check_sizes(candidate_rows=candidate_rows, memory_limit=memory_limit)
    theta, table, labels = check_request(dataset, model, order, passes, theta_star)
    cost = announce(dataset, model, passes=passes, scheduler=scheduler, phases=phases)
    cap = max(0, min(candidate_rows, memory_limit // (8 * (dataset.n_features + 3))))
    subset = draw_subset(dataset, memory_limit)
    spread = Spread(dataset, model)
    decisive = passes == 1 or theta is not None or len(subset.y) == dataset.n_rows
    n_draws = N_DRAWS_SMALL if dataset.n_rows <= SMALL_ROWS else N_DRAWS
    xi = covering_draws(n_draws, len(labels), 0)
    with single_threaded():
        only = passes == 1 and not near
        start = theta
        by_passes = theta is None and cost.few_rows and concave(model, table)
        if by_passes and model.response_fault(subset.y) is None:
            start = model.start(subset)
        centre = first_centre(dataset, model, subset, spread, start, table, only, phases)
        point = centre.point
        rows_read = len(subset.y) + spread.rows_read
        limit = 1 if centre.integrated else passes or MAX_PASSES
        best: Point | None = None
        pass_seconds = 0.0
        for done in range(1, limit + 1):
            last = done == limit
            deltas = xi if decisive or last else xi[:2]
            deltas = centre.shift + centre.inflation * (deltas @ point.factor.T)
            task = ExpansionPass(model, point.theta, deltas, order, cap, done == 1)
            before = time.perf_counter()
            sums = dataset.reduce(task, scheduler=scheduler, progress=progress)
            pass_seconds += time.perf_counter() - before
            rows_read += dataset.n_rows
            if sums.fault is not None:
                raise_fault(sums.fault, model, dataset)
            at = point if centre.integrated else _at(sums, point.theta, table)
            converged = at.decrement < LARGEST_DECREMENT
            if last or (converged and len(deltas) == n_draws):
                break
            decisive = True
            if converged:  # the same point again, with all draws
                point = at
            elif best is not None and at.log_posterior < best.log_posterior - 1e-9 * abs(
                best.log_posterior
            ):
                back = best.theta + 0.25 * (point.theta - best.theta)
                point = damped_point(back, sums.expansion(len(labels)), table)
            else:
                best = at
                if by_passes:
                    extreme = gather(dataset, np.sort(sums.rows[:1000]))
                    rows_read += len(extreme.y)
                    moved = largest_move([subset, extreme], at.step, model.n_linear)
                    length = min(1.0, LARGEST_MOVE / max(moved, 1e-300))
                    point = replace(at, theta=at.theta + length * at.step)
                    continue
                objective = counted(surrogate(dataset, model, sums, at.theta), phases)
                rows_read += len(sums.rows)
                point = maximise(objective, at.theta, table)
    if passes is None and theta is None and at.decrement > FARTHEST_DECREMENT:
        raise ModelError(
            f"expected a mode of the posterior, found none: after {done} passes Newton's method is "
            f"still {at.decrement:.3g} posterior standard deviations away; give a prior in the "
            "units of the response (--prior-scale), or rescale it"
        )
    if np.any(table[:, 0] == 0.0):
        _refuse_separation(dataset, model, subset, sums, at, table)
    log_lik, gradient, hessian = sums.expansion(len(labels))
    weak: list[str] = []
    unseen = unchecked(len(labels), by_passes)
    if converged:  # elsewhere a long step says nothing
        looked_at = [subset]
        if len(subset.y) < dataset.n_rows:
            looked_at.append(gather(dataset, np.sort(sums.rows[:1000])))
            rows_read += len(looked_at[1].y)
        scale = dataset.n_rows / len(subset.y)
        likelihood = counted(in_memory(model, subset, scale), phases)
        with single_threaded():
            weak = weak_directions(
                (log_lik, gradient, hessian),
                at.theta,
                np.sqrt(np.sum(at.factor**2, axis=1)),
                labels,
                likelihood,
                looked_at,
                model.n_linear * (getattr(model, "separable", True) and not centre.integrated),
            )
            # A scale parameter takes up what a prior leaves unexplained: that is no separation.
            if model.n_scalar or not weak:
                known = centre.modes[0].point if centre.modes else None
                known = at if len(looked_at) == 1 else known
                known = None if unseen else known
                total = float(subset.weight.sum()) * scale
                begun = at.theta if getattr(model, "log_concave", False) else model.start(subset)
                pull = prior_conflict(model, at, known, begun, table, likelihood, labels, total)
                weak = pull or weak
    weak = [*weak, *unseen]
    if centre.integrated:
        weak.append(exact_fit_words(model, labels))
    weak += mode_words(model, centre.modes, labels)
    row_bytes = dataset.rows().row_bytes
    certificate = {
        "decrement": at.decrement,
        "passes": done,
        "rows_read": rows_read,
        "bytes_read": rows_read * row_bytes,
        "seconds": time.perf_counter() - started,
        "pass_seconds": pass_seconds,
        "pass_gb_per_second": 1e-9 * done * dataset.n_rows * row_bytes / pass_seconds,
        "converged": bool(converged),
        "warnings": weak,
        **recorded(centre.modes),
        "logarithms": [labels[j] for j in log_scales(model, len(labels))],
    }
    return ControlVariates(
        theta_star=at.theta,
        log_lik=log_lik,
        log_lik_remainder=sums.log_lik_remainder(),
        gradient=gradient,
        hessian=hessian,
        order=order,
        factor=at.factor,
        newton_step=at.step,
        n_rows=dataset.n_rows,
        labels=labels,
        fingerprint=dataset.fingerprint,
        model_digest=model_digest(model),
        certificate=certificate,
        score_draws=deltas,
        candidates=sums.rows,
        scores=sums.scores,
        histogram=sums.histogram,
        chunk_summaries=dict(zip(SUMMARY_COLUMNS, sums.summaries.T.copy(), strict=True)),
        row_order=row_order(sums, tile_rows(dataset.n_features)),
        row_order_rows=tile_rows(dataset.n_features),
        stamps=dataset.stamps(),
    )


def require_rows(model: Model) -> None:
    """Raise ConfigError where the likelihood is no product over rows: no pass can add it up."""
    if model.joint is not None:
        raise ConfigError(
            f"expected a likelihood of single rows, found one of all rows together in the model "
            f"{model.name!r}, which no pass can add up: sample it with pt, tt, spt or stt "
            "(--sampler pt), without covariance=laplace"
        )


def check_request(
    dataset: Dataset, model: Model, order: int, passes: int | None, theta_star: Vector | None
) -> tuple[Vector | None, Matrix, tuple[str, ...]]:
    """Return first centre, prior table and labels, or say what cannot be computed."""
    if isinstance(order, bool) or order not in (0, 1, 2):
        raise ConfigError(f"expected order 0, 1 or 2, found {order!r}; choose 2 if in doubt")
    if passes is not None and not _whole(passes, 1):
        raise ConfigError(
            f"expected a whole number of passes >= 1, found {passes!r}; leave it out to certify"
        )
    if dataset.n_rows < 1:
        raise ModelError(f"expected rows, found none in {dataset.address}; ingest a table first")
    if dataset.response is None and (model.n_linear > 0 or model.joint is not None):
        raise ModelError(
            f"{model.name}: expected a response in the data, found none in {dataset.address!r}; "
            "name its column with 'streammc ingest --response'"
        )
    labels = tuple(model.labels(dataset.feature_names))
    table = np.ascontiguousarray(model.prior_table(labels), dtype=np.float64)
    free = int(np.count_nonzero(table[:, KIND] == FLAT))
    heat = split_fingerprint(dataset.fingerprint)[1]
    if np.any(table[:, KIND] == LOG_FLAT) and dataset.n_rows / heat - free < 2:
        at = f" at temperature {heat:g}" if heat != 1.0 else ""
        raise ModelError(
            f"expected at least {math.ceil(heat * (free + 2))} rows for {free} coefficients and a "
            f"scale with flat priors{at}, found {dataset.n_rows}: the posterior is improper; give "
            "the scale a proper prior (--prior 'sigma=half_normal(10)')"
        )
    if theta_star is None:
        return None, table, labels
    try:
        theta = np.array(theta_star, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expected theta_star of {len(labels)} finite numbers, found "
            f"{type(theta_star).__name__}; give one number for each parameter"
        ) from None
    if theta.shape != (len(labels),) or not np.all(np.isfinite(theta)):
        raise ConfigError(
            f"expected theta_star of {len(labels)} finite numbers, found shape {theta.shape}; "
            f"the parameters are {', '.join(labels[:6])}{', ...' if len(labels) > 6 else ''}"
            "; give one number for each"
        )
    return theta, table, labels


def _whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _check_sizes(**sizes: object) -> None:
    for name, value in sizes.items():
        if not _whole(value, 1):
            raise ConfigError(
                f"expected {name} as a whole number of at least 1, found {value!r}; leave it out "
                "for the default"
            )


def _at(sums: BlockSums, theta: Vector, table: Matrix) -> Point:
    try:
        return posterior_point(theta, sums.expansion(len(theta)), table)
    except NotPositiveDefiniteError as error:
        raise ModelError(flat_message(table, error.upwards)) from None


def _refuse_separation(
    dataset: Dataset, model: Model, subset: Rows, sums: BlockSums, at: Point, table: Matrix
) -> None:
    """Raise if Newton's step still moves a predictor by 0.5, however small its decrement.

    Under a flat prior and separation the log-likelihood flattens as its coefficients run
    away: every step moves the predictor by about 1 while the decrement goes to zero.
    """
    extreme = gather(dataset, np.sort(sums.rows[:1000]))
    for rows in (subset, extreme):
        for a in range(model.n_linear):
            step = at.step[a * dataset.n_features : (a + 1) * dataset.n_features]
            if np.max(np.abs(rows.X[rows.weight > 0.0] @ step), initial=0.0) > 0.5:
                raise ModelError(flat_message(table))
