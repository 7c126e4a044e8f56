"""Control variates of order 0 without a pass: a starting point without Taylor terms."""

from __future__ import annotations

import math
import time

import numpy as np

from streammc.control_variates.certificate import Certificate
from streammc.control_variates.default_priors import resolved
from streammc.control_variates.expansion import ControlVariates, model_digest
from streammc.control_variates.full_pass.block_pass import SUMMARY_COLUMNS
from streammc.control_variates.full_pass.scores import Histogram
from streammc.control_variates.pass_request import check_request
from streammc.control_variates.subset import draw_subset
from streammc.errors import ModelError
from streammc.protocols import Dataset, Model

_SUBSET_BYTES = 2**24


def without_pass(dataset: Dataset, model: Model, start: float | None = None) -> ControlVariates:
    """Return control variates of order 0: no Taylor terms, centred at the starting point.

    No pass is made.

    Parameters
    ----------
    dataset, model
        The rows and their likelihood.
    start
        Value of every coordinate of ``theta_star``; ``None``: the model's start on a few rows.

    Returns
    -------
    ControlVariates
        With sums of zero, the identity for ``factor`` and 0 passes in its certificate.

    Raises
    ------
    ModelError
        If the model has no finite start on these rows.
    """
    begun = time.perf_counter()
    model = resolved(model, dataset)
    _, _, labels = check_request(dataset, model, 0, None, None)
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
            warnings=(),
            logarithms=(),
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
