"""Temperatures of a run whose acceptance test raised its own in the warm-up."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streammc.likelihood.temperature import (
    IMPLIED,
    schedule_of,
)
from streammc.trace.run_directory import RunDirectory

_ROUNDING: Final = 1e-9


def temperature_facts(run: RunDirectory) -> dict[str, Any]:
    """Return the temperature of the draws, as the summary has it.

    Returns
    -------
    dict
        ``temperature``: that asked for, a number or a schedule. Where the remedy ``heat`` of
        ``mh-fixed`` raised it: the highest of the chains, with ``temperatures``, that of every
        chain in its last draw, and ``temperature_asked``.
    """
    schedule = schedule_of(run.identity)
    asked = schedule.describe()
    stats = run.read_group("sample_stats")
    if "temperature" not in stats:
        return {"temperature": asked}
    last = np.asarray(stats["temperature"])[:, -1]
    iteration = run.warmup + np.asarray(stats["temperature"]).shape[1] - 1
    expected = schedule.at(iteration, 1)[0] * float(run.attributes.get(IMPLIED, 1.0))
    factor = last / expected
    if run.attributes.get("sampler", {}).get("remedy") != "heat" or factor.max() < 1 + _ROUNDING:
        return {"temperature": asked}
    return {
        "temperature": float(last.max()),
        "temperatures": [float(value) for value in last],
        "temperature_asked": asked,
    }
