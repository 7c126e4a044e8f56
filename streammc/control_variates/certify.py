"""Control variates around the posterior mode, with their certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streammc.control_variates.bound import PASS_OPTIONS, Bound, bind, check_kinds, check_progress
from streammc.control_variates.expansion import Certificate, ControlVariates, model_digest
from streammc.control_variates.full_pass.block_kernel import tile_rows
from streammc.control_variates.full_pass.block_pass import (
    EXTREME_ROWS,
    SUMMARY_COLUMNS,
    BlockSums,
    Histogram,
    row_order,
)
from streammc.control_variates.mode.dispersion import dispersion_warnings
from streammc.control_variates.mode.factor_scales import with_effects
from streammc.control_variates.mode.modes import (
    exact_fit_words,
    log_scales,
    mode_words,
    starting_modes,
)
from streammc.control_variates.mode.newton import (
    Point,
    counted,
    flat_message,
    in_memory,
    level_columns,
)
from streammc.control_variates.mode.prior_influence import (
    prior_conflict,
    prior_influence,
    runs_away,
    unchecked,
    weak_directions,
)
from streammc.control_variates.mode.quadrature import quadrature_warnings
from streammc.control_variates.mode.search import (
    Beside,
    FoundMode,
    PassRequest,
    check_request,
    check_sizes,
    find_mode,
)
from streammc.docstrings import documented
from streammc.errors import ConfigError, ModelError
from streammc.likelihood.data_views import draw_subset, gather
from streammc.likelihood.pass_cost import CANDIDATE_ROWS, SUBSET_BYTES
from streammc.likelihood.temperature import Schedule
from streammc.models.table_scale import COEFFICIENT
from streammc.numerics.process_limits import single_threaded
from streammc.protocols import Dataset, Model, Phases, Rows, Vector

FARTHEST_DECREMENT = 100.0
"""Largest Newton decrement, in posterior sd, at which a run may start.

Farther from the mode the whitened coordinates do not describe the posterior.
"""


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
    centre moves to the maximum of the expansion of all rows plus the exact remainders of
    the rows with the highest scores.

    Parameters
    ----------
    dataset
        Data set: a store, or arrays in memory.
    model
        Model of the rows: likelihood and priors; see ``streammc.models``.
    order : {0, 1, 2}
        Order of the Taylor expansions.
    passes
        Largest number of full passes; ``None``: until certified, at most 12. 1 keeps
        the first centre even if it is not certified, as in the papers.
    theta_star : array of d numbers, or None
        First centre, on the sampled scale (the logarithm of a positive parameter).
        ``None``: the mode of a subset.
    near
        Whether ``theta_star`` is the mean of posterior draws. With one pass, rows are then scored
        around it instead of around the mode of a subset.
    temperature
        T: every row counts 1 / T times. Of a schedule such as ``"100:sqrt"`` the final
        temperature is used.
    phases : Callable[[str, int, None, dict], None] | None
        Called as ``phases(phase, done, None, facts)``: with phase ``forecast`` before work that
        is expected to last over a minute, and ``newton`` after the steps of Newton's method.
    candidate_rows
        Largest number of rows with the highest scores that are kept in memory.
    memory_limit
        Largest size in bytes of these rows, and of the subset that gives the first centre.

    Returns
    -------
    ControlVariates
        ``theta_star``, the sums of all expansions, and a ``certificate`` of the distance from
        the mode.

    Raises
    ------
    ConfigError
        If an option is out of range.
    ModelError
        If a response is outside the support, or the posterior has no mode.
    OutOfMemoryError
        If the matrices of a pass do not fit in the memory that is available.
    """
    check_kinds(dataset, model)
    check_progress(progress)
    require_rows(model)
    return expanded(
        bind(dataset, model, temperature=Schedule.parse(temperature).final),
        order=order,
        passes=passes,
        theta_star=theta_star,
        near=near,
        scheduler=scheduler,
        progress=progress,
        phases=phases,
        candidate_rows=candidate_rows,
        memory_limit=memory_limit,
    )


def expanded(
    bound: Bound,
    *,
    order: int = 2,
    passes: int | None = None,
    theta_star: Vector | None = None,
    near: bool = False,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
    phases: Phases | None = None,
    candidate_rows: int = CANDIDATE_ROWS,
    memory_limit: int = SUBSET_BYTES,
    beside: Beside | None = None,
) -> ControlVariates:
    """Return control variates of bound data and model; see :func:`compute`.

    ``beside`` uses the rows of the certifying pass.
    """
    started = time.perf_counter()
    require_rows(bound.model)
    check_sizes(candidate_rows=candidate_rows, memory_limit=memory_limit)
    request = PassRequest(
        dataset=bound.dataset,
        model=bound.model,
        order=order,
        passes=passes,
        theta_star=check_request(bound, order, passes, theta_star),
        near=near,
        table=bound.prior_table,
        labels=bound.labels,
        candidate_rows=candidate_rows,
        memory_limit=memory_limit,
        scheduler=scheduler,
        progress=progress,
        phases=phases,
        beside=beside,
    )
    return _certified(request, find_mode(request), started)


def require_rows(model: Model) -> None:
    """Raise ConfigError if the likelihood is not a product over rows: a pass cannot sum it."""
    if model.joint is not None:
        raise ConfigError(
            f"expected a likelihood of single rows, found one of all rows together in the model "
            f"{model.name!r}, which no pass can add up: sample it with pt, tt, spt or stt "
            "(--sampler pt), without covariance=laplace"
        )


def _certified(request: PassRequest, search: FoundMode, started: float) -> ControlVariates:
    """Return the control variates of the last pass; raise ModelError if there is no mode."""
    request = replace(request, table=search.table)
    dataset, model, labels = request.dataset, request.model, request.labels
    at, sums = search.at, search.sums
    _refuse_no_mode(request, search)
    extreme = None
    if search.converged and len(search.subset.y) < dataset.n_rows:
        extreme = gather(dataset, np.sort(sums.rows[:EXTREME_ROWS]))
    warnings, notes = _warnings(request, search, extreme)
    rows_read = search.rows_read + (0 if extreme is None else len(extreme.y))
    row_bytes = dataset.rows().row_bytes
    pass_bytes = search.passes * dataset.n_rows * row_bytes
    certificate = Certificate(
        decrement=at.decrement,
        passes=search.passes,
        rows_read=rows_read,
        bytes_read=rows_read * row_bytes,
        seconds=time.perf_counter() - started,
        pass_seconds=search.pass_seconds,
        pass_gb_per_second=1e-9 * pass_bytes / search.pass_seconds,
        converged=search.converged,
        warnings=tuple(warnings),
        notes=tuple(notes),
        modes=starting_modes(search.centre.modes),
        logarithms=tuple(labels[j] for j in log_scales(model, len(labels))),
        nodes=model.nodes,
    )
    return ControlVariates(
        **from_pass(dataset, model, sums, at, tile_rows(dataset.n_features)),
        theta_star=at.theta,
        order=request.order,
        noise=search.noise,
        labels=labels,
        certificate=certificate,
        score_draws=search.deltas,
        row_order_rows=tile_rows(dataset.n_features),
    )


def from_pass(
    dataset: Dataset, model: Model, sums: BlockSums, at: Point, run_rows: int
) -> dict[str, Any]:
    """Return the fields of control variates that follow from the sums of all rows at a point."""
    log_lik, gradient, hessian = sums.expansion(len(at.theta))
    return {
        "log_lik": log_lik,
        "log_lik_remainder": sums.log_lik_remainder(),
        "gradient": gradient,
        "hessian": hessian,
        "factor": at.factor,
        "newton_step": at.step,
        "n_rows": dataset.n_rows,
        "fingerprint": dataset.fingerprint,
        "temperature": dataset.temperature,
        "model_digest": model_digest(model),
        "candidates": sums.rows,
        "scores": sums.scores,
        "histogram": sums.histogram,
        "chunk_summaries": dict(zip(SUMMARY_COLUMNS, sums.summaries.T.copy(), strict=True)),
        "row_order": row_order(sums, run_rows),
        "order_terms": np.vstack([sums.terms, np.full((1, sums.terms.shape[1]), sums.tiles)]),
        "stamps": dataset.stamps(),
    }


def _warnings(
    request: PassRequest, search: FoundMode, extreme: Rows | None
) -> tuple[list[str], list[str]]:
    """Return warnings about the prior and about other modes, and notes."""
    model, labels, centre = request.model, request.labels, search.centre
    unseen = unchecked(len(labels), search.by_passes)
    lines, notes = list(unseen), list[str]()
    if search.converged:  # away from the mode a long step is no sign of separation
        lines, notes = _prior_warnings(request, search, extreme, bool(unseen))
        lines += unseen
    if centre.integrated:
        lines.append(exact_fit_words(model, labels))
    if search.converged:
        lines += dispersion_warnings(request.dataset, model, search.subset, search.at.theta)
    lines += quadrature_warnings(
        model, search.subset, search.at.theta, search.deltas, request.dataset.n_rows
    )
    caveat = model.of_a_row.caveat
    return lines + mode_words(model, centre.modes, labels), [*notes, *([caveat] if caveat else [])]


def _prior_warnings(
    request: PassRequest,
    search: FoundMode,
    extreme: Rows | None,
    unseen: bool,
) -> tuple[list[str], list[str]]:
    """Return warnings about what the prior decides beside the rows, and notes."""
    model, labels, centre = request.model, request.labels, search.centre
    subset, at, expansion = search.subset, search.at, search.sums.expansion(len(labels))
    scale = request.dataset.n_rows / len(subset.y)
    columns = level_columns(request.dataset, model)
    likelihood = counted(in_memory(model, subset, scale, columns), request.phases)
    table = request.table
    effects = np.zeros(len(labels), np.bool_)
    for block in model.factors:
        effects[block.columns] = True
    if effects.any():  # their density given their scale counts as likelihood
        likelihood = with_effects(likelihood, table, effects)
        of_rows = expansion
        expansion = with_effects(lambda theta: of_rows, table, effects)(at.theta)
        table = np.where(effects[:, None], 0.0, table)
    with single_threaded():
        weak = weak_directions(
            expansion,
            at.theta,
            np.sqrt(np.sum(at.factor**2, axis=1)),
            labels,
            likelihood,
            [subset] if extreme is None else [subset, extreme],
            model if model.separable and not centre.integrated else None,
        )
        influence, notes = list[str](), list[str]()
        if not unseen:
            influence, notes = prior_influence(
                model,
                at,
                table,
                likelihood if extreme is None else None,
                labels,
                _units(request),
                bool(weak),
                request.dataset.unit_name,
            )
        # With a scale parameter, a conflict with the prior can look like separation: test it first.
        if not weak or model.n_scalar:
            subset_mode = at if extreme is None else None
            if extreme is not None and centre.modes:
                subset_mode = centre.modes[0].point
            if unseen:
                subset_mode = None
            total = float(subset.weight.sum()) * scale
            start = at.theta if model.log_concave else model.start(subset)
            conflict = prior_conflict(
                model, at, subset_mode, start, table, likelihood, labels, total
            )
            weak = conflict or weak
        return weak + influence, notes


def _units(request: PassRequest) -> Vector:
    """Return (d,) the scales of the columns of coefficients in the table's units, else 1."""
    dataset, units = request.dataset, np.ones(len(request.labels))
    moved = dataset.attributes.get("standardization")
    if moved is not None:
        place = {label: j for j, label in enumerate(request.labels)}
        for block in request.model.table_scale(dataset.feature_names):
            scale = np.asarray(moved["scale"])
            own = scale[list(block.columns)] if block.columns else scale
            if block.rule == COEFFICIENT and len(block.labels) == len(own):
                units[[place[label] for label in block.labels]] = own
    return units


def _refuse_no_mode(request: PassRequest, search: FoundMode) -> None:
    """Raise ModelError if the search ended far from a mode, or if separation leaves no mode."""
    free = request.passes is None and request.theta_star is None
    if free and search.at.decrement > FARTHEST_DECREMENT:
        raise ModelError(
            f"expected a mode of the posterior, found none: after {search.passes} passes Newton's "
            f"method is still {search.at.decrement:.3g} posterior standard deviations away; give a "
            "prior in the units of the response (--prior-scale), or rescale it"
        )
    if np.any(request.table[:, 0] == 0.0):
        # Under a flat prior and separation coefficients grow without bound, at any decrement.
        extreme = gather(request.dataset, np.sort(search.sums.rows[:EXTREME_ROWS]))
        if runs_away([search.subset, extreme], search.at, request.model):
            raise ModelError(flat_message(request.table))


_SUBSET_BYTES = 2**24


def without_pass(bound: Bound, start: float | None = None) -> ControlVariates:
    """Return control variates of order 0: no Taylor terms, centred at the starting point.

    No pass is made: sums are zero, ``factor`` is the identity, and the certificate has 0 passes.
    ``start`` is the value of every coordinate of ``theta_star``; ``None``: the model's start on a
    few rows. ModelError if that is not finite.
    """
    begun = time.perf_counter()
    dataset, model = bound.dataset, bound.model
    check_request(bound, 0, None, None)
    labels = bound.labels
    d = len(labels)
    rows_read = 0
    if start is None:
        subset = draw_subset(dataset, _SUBSET_BYTES)
        rows_read = len(subset.y)
        theta = np.asarray(model.start(subset), dtype=np.float64)
    else:
        theta = np.full(d, float(start))
    if not np.isfinite(theta).all():
        raise ModelError(
            f"expected a finite start of the model {model.name!r}, found one that is not; give "
            "the option start"
        )
    histogram = Histogram.empty(0)
    histogram.counts[0] = dataset.n_rows
    return ControlVariates(
        theta_star=theta,
        log_lik=0.0,
        log_lik_remainder=0.0,
        gradient=np.zeros(d),
        hessian=np.zeros((d, d)),
        order=0,
        factor=np.eye(d),
        newton_step=np.zeros(d),
        n_rows=dataset.n_rows,
        labels=labels,
        fingerprint=dataset.fingerprint,
        temperature=dataset.temperature,
        model_digest=model_digest(model),
        certificate=Certificate(
            decrement=None,
            passes=0,
            rows_read=rows_read,
            bytes_read=rows_read * dataset.rows().row_bytes,
            seconds=time.perf_counter() - begun,
            pass_seconds=0.0,
            pass_gb_per_second=0.0,
            converged=False,
        ),
        score_draws=np.zeros((0, d)),
        candidates=np.zeros(0, np.int64),
        scores=np.zeros(0),
        histogram=histogram,
        chunk_summaries={name: np.zeros(0) for name in SUMMARY_COLUMNS},
        row_order=math.nan,
        row_order_rows=1,
        stamps=dataset.stamps(),
    )
