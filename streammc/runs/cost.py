"""Cost of a run so far, from the statistics recorded at every iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammc.control_variates.expansion import ControlVariates
from streammc.diagnostics.cost import cost
from streammc.runs.setup import CONTROL_VARIATES
from streammc.trace.run_directory import RunDirectory


def run_cost(run: RunDirectory, cv: ControlVariates | None = None) -> dict[str, Any]:
    """Return :func:`streammc.diagnostics.cost.cost` of the committed draws of a run.

    Parameters
    ----------
    run
        A run with at least one draw.
    cv
        Control variates of the run; ``None``: read from the run.
    """
    if cv is None:
        cv = ControlVariates.open(run.path / CONTROL_VARIATES)
    stats = run.read_group("sample_stats")
    warmup = 0
    if run.committed_warmup:
        warmup = int(run.read_group("warmup_sample_stats")["n_rows"].sum())
    planned = (run.attributes.get("plan") or {}).get("passes", 0)
    evaluations = {
        "passes": cv.certificate.rows_read + planned * cv.n_rows,
        "warmup": warmup + int((cv.certificate.recalibration or {}).get("evaluations", 0)),
        "draws": int(stats["n_rows"].sum()),
    }
    sign = stats.get("sign")
    if sign is not None and not (np.asarray(sign) < 0.0).any():
        sign = None
    return cost(run.draws_matrix(), run.labels, evaluations, sign)
