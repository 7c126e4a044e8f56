"""Facts and warnings of a run whose steps are accepted by a test on some of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streammc.diagnostics.text import number, percent
from streammc.likelihood.temperature import IMPLIED, Schedule, schedule_of
from streammc.samplers.common.evidence import Evidence, at_most
from streammc.trace.run_directory import RunDirectory

DECISION_WARNING: Final = 0.05
FORCED_WARNING: Final = 0.1
_ROUNDING: Final = 1e-9


def decision_facts(run: RunDirectory) -> dict[str, Any]:
    """Return rows, errors and temperatures of the decisions of a run.

    Returns
    -------
    dict
        ``test_rows_mean``, ``test_rows_median`` and ``test_rows_largest``: rows of a decision;
        ``decision_error_mean``: its estimated error in probability, and
        ``decision_error_unknown``, the share of decisions without an estimate; ``forced``: the
        share that looked at all rows or was skipped; and :func:`temperature_facts`.
    """
    stats = run.read_group("sample_stats")
    rows, error = stats["test_rows"], stats["decision_error"]
    known = error[np.isfinite(error)]
    return {
        **temperature_facts(run),
        "test_rows_mean": float(rows.mean()),
        "test_rows_median": float(np.median(rows)),
        "test_rows_largest": int(rows.max()),
        "decision_error_mean": float(known.mean()) if known.size else None,
        "decision_error_unknown": float(1.0 - known.size / error.size),
        "forced": float(stats["forced"].mean()),
    }


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


def decision_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know about the decisions of an acceptance test."""
    lines = temperature_warnings(facts)
    error = facts["decision_error_mean"]
    if error is not None and error > DECISION_WARNING:
        lines.append(
            f"{facts['sampler']} estimates that a decision is off by {error:.2g} in probability "
            f"on average, above {DECISION_WARNING}: use more rows a decision, or hmc-ecs"
        )
    if facts["decision_error_unknown"]:
        lines.append(
            f"{facts['sampler']} could not tell the error of "
            f"{percent(facts['decision_error_unknown'])} of its decisions: their terms are "
            "too few or too heavy-tailed; use more rows a decision, or hmc-ecs"
        )
    if facts["forced"] > FORCED_WARNING:
        lines.append(
            f"{percent(facts['forced'])} of the decisions looked at all rows, or were "
            "skipped: use control variates, shorter steps or a higher temperature"
        )
    return lines


def temperature_warnings(facts: Mapping[str, Any]) -> list[str]:
    """Return warnings of temperatures that end late, or that a remedy has raised."""
    lines = []
    settled = Schedule.parse(facts.get("temperature_asked", facts["temperature"])).settled
    if settled > facts["warmup"]:
        lines.append(
            f"the temperature is 1 from iteration {settled} on, after the warm-up of "
            f"{facts['warmup']}: leave out the first {settled - facts['warmup']} draws of "
            "every chain, or use more --warmup"
        )
    if facts.get("temperatures"):
        low, high = min(facts["temperatures"]), max(facts["temperatures"])
        found = f"{high:.3g}" if low == high else f"{low:.3g} to {high:.3g}, by chain"
        lines.append(
            f"remedy=heat raised the temperature in the warm-up, to {found}: the draws are of a "
            "tempered posterior, which is wider; use remedy=grow, a larger --subsample-size, "
            "control variates, or hmc-ecs"
        )
    return lines


def decision_evidence(facts: Mapping[str, Any]) -> list[Evidence]:
    """Return the checks of decisions: their error, rows, and how many were forced."""
    if "test_rows_mean" not in facts:  # an unfinished run
        return []
    return [
        at_most(
            "error of a decision, as a probability",
            facts["decision_error_mean"],
            DECISION_WARNING,
            "A decision that looks at some of the rows may differ from that of all rows; this is "
            "the mean of its estimated error.",
            figure="decision_error",
            line=DECISION_WARNING,
        ),
        Evidence(
            check="rows of a decision",
            found=f"{number(facts['test_rows_mean'])} on average, "
            f"{facts['test_rows_largest']:,} at most",
            meaning="How many rows an accepted or rejected proposal rests on.",
            figure="test_rows",
        ),
        at_most(
            "forced decisions, share",
            facts["forced"],
            FORCED_WARNING,
            "Decisions that looked at all rows, or were skipped.",
        ),
        Evidence(
            check="acceptance rate",
            found=number(facts.get("acceptance_rate"), 3),
            meaning="The share of proposals that is taken.",
        ),
    ]
