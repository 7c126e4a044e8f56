"""Units drawn by their scores against units of equal probability, on real data.

Run as ``python bench/selection.py WORK``; WORK keeps the runs, so that the command
continues where it was ended, and may be that of ``real_data.py``, whose references it
then uses. Data as there. Prints one line of JSON a data set, and writes
``bench/results/selection.json`` and ``docs/measurements/selection-probabilities.md``.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agreement import Bounds, compare
from real_data import BOUNDS, DATA, ROOT, log, machine, problem, until_precise
from real_data_sets import REAL_DATA

from streammc.control_variates import compute
from streammc.control_variates.expansion import ControlVariates
from streammc.control_variates.plan import certainty_choice, unit_scores
from streammc.control_variates.plan.subsample_plan import Plan, PlanRequest, plan
from streammc.protocols import Dataset, Model
from streammc.runs.job import run_job
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common.sampler import RunRequest

RESULTS = ROOT / "bench" / "results" / "selection.json"
PAGE = ROOT / "docs" / "measurements" / "selection-probabilities.md"
NAMES = ("covtype93k", "a9a", "fretpl_claimnumber", "flights200k")
COMPARED = ("covtype93k", "fretpl_claimnumber")
CACHED = "selection.json"
WAYS = ("uniform", "scores")
DRAWS, WARMUP = 1000, 1000
SWEPT_DRAWS = (8, 32, 128)
SHARES = (0.05, 0.1, 0.2, 0.35)

TEXT = """# Units drawn by their scores

`python bench/selection.py WORK` wrote this page; `bench/results/selection.json` has more.
{machine}, shared with other work, {date}.

With `--option probabilities=scores`, for `hmc-ecs` and `hmc-ecs-signed`, unit j is drawn with
probability ω_j, and its total D_j counts as D_j / (U ω_j) (Dang et al. 2019, eq. 9). One more full
pass finds the root mean square of D_j over 128 draws from the Laplace approximation (fewer above 8
million rows); ω is proportional to it, mixed with the uniform (0.8 to 0.2). Certain are the units
of highest score. It is the better choice where an iteration takes hundreds of rows. It costs one
more pass, at 144 draws, and 16 bytes a unit in memory: above 16.7 million units it is refused.
Where remainders are alike there is nothing to gain
([decision 12](../decisions/0012-unequal-probabilities-are-tickets.md)).

## Rows an iteration at the same bounds

|C| + m, the rows of one evaluation; in brackets |C|. A dash: more than half of the rows, `hmc-ecs`
is refused.

{rows}

## How many draws make a score, and how much stays uniform

|C| + m by the draws of a score, with the share of 0.2; and by the share, with the draws that the
plan takes.

{sweep}

## The same posterior

Against full-data `hmc`, in posterior sd, with the bounds of [real data](real-data.md):

{agreement}
"""


def measure(name: str, work: Path) -> dict[str, Any]:
    """Plan four ways, run two, and compare one with the reference."""
    store, model = problem(REAL_DATA[name](DATA))
    cv = compute(store, model)
    plans: dict[str, Any] = {}
    for certainty in (True, False):
        for way in WAYS:
            found = plan(cv, store, model, PlanRequest(certainty=certainty, probabilities=way))
            plans[f"{way}{'' if certainty else ', bare'}"] = facts(found)
    swept = {
        **{f"{count} draws": swept_cost(cv, store, model, draws=count) for count in SWEPT_DRAWS},
        **{f"share {share:g}": swept_cost(cv, store, model, share=share) for share in SHARES},
    }
    runs = {}
    for way in WAYS:
        begun = time.monotonic()
        summary = run_job(RunRequest(
            store, model, hmc_ecs(probabilities=way), draws=DRAWS, warmup=WARMUP, seed=1,
            path=work / f"hmc-ecs-{way}", audit=False,
        )).summary  # fmt: skip
        ess = min(p["ess_bulk"] for p in summary["parameters"].values())
        runs[way] = {**summary["sampling"], "ess_bulk": ess, "wall": time.monotonic() - begun}
        log(f"{name}, {way}: {runs[way]['seconds']:.1f} s")
    result = {"name": name, "rows": store.n_rows, "coefficients": cv.dim, "plans": plans}
    result |= {"swept": swept, "runs": runs, "comparison": None}
    if name in COMPARED:
        bounds = BOUNDS.get(name, Bounds())
        sampler = hmc_ecs(probabilities="scores")
        ours = until_precise(work / "scores", store, model, sampler, bounds.mcse, seed=1)
        reference = until_precise(work / "hmc", store, model, hmc(), bounds.mcse, seed=2)
        result["comparison"] = compare(ours, reference, bounds)
    return result


def swept_cost(cv: ControlVariates, store: Dataset, model: Model, **changed: float) -> int:
    """Return |C| + m with another number of draws of a score, or another uniform share."""
    with ExitStack() as stack:
        if "draws" in changed:
            count = int(changed["draws"])
            stack.enter_context(patch.object(unit_scores, "scoring_draws", lambda rows: count))
        else:
            for module in (unit_scores, certainty_choice):
                stack.enter_context(patch.object(module, "UNIFORM_SHARE", changed["share"]))
        return cost(facts(plan(cv, store, model, PlanRequest(probabilities="scores"))))


def facts(found: Plan) -> dict[str, Any]:
    """Return what the table shows of a plan."""
    return {
        "certainty_rows": len(found.certainty_rows),
        "subsample_size": found.subsample_size,
        "refused": found.refused,
        "score_seconds": found.score_seconds,
        **found.describe()["predicted"],
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """Return the page."""
    return TEXT.format(
        machine="; ".join(dict.fromkeys(result["machine"] for result in results)),
        date=max(result["date"] for result in results),
        rows=rows_table(results),
        sweep=sweep_table(results),
        agreement=agreement_table([r for r in results if r["comparison"]]),
    )


def rows_table(results: list[dict[str, Any]]) -> str:
    """Return |C| + m for the four ways."""
    lines = [
        "| data | n | d | equal | equal, no C | by score | by score, no C | equal / by score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        plans = result["plans"]
        order = ("uniform", "uniform, bare", "scores", "scores, bare")
        best = min(cost(plans["scores"]), cost(plans["scores, bare"]))
        lines.append(
            f"| {result['name']} | {result['rows']} | {result['coefficients']} | "
            + " | ".join(shown(plans[way]) for way in order)
            + f" | {cost(plans['uniform']) / best:.1f} |"
        )
    return "\n".join(lines)


def cost(found: dict[str, Any]) -> int:
    """Return |C| + m."""
    return int(found["certainty_rows"] + found["subsample_size"])


def shown(found: dict[str, Any]) -> str:
    """Return the cost and the certainty rows as text."""
    return "-" if found["refused"] else f"{cost(found)} ({found['certainty_rows']})"


def sweep_table(results: list[dict[str, Any]]) -> str:
    """Return |C| + m by draws of a score and by uniform share."""
    names = list(results[0]["swept"])
    lines = [f"| data | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for result in results:
        costs = " | ".join(str(result["swept"][name]) for name in names)
        lines.append(f"| {result['name']} | {costs} |")
    return "\n".join(lines)


def agreement_table(results: list[dict[str, Any]]) -> str:
    """Return the comparison with the reference."""
    lines = [
        "| data | largest difference of means | its z | largest MCSE | sd off by | R-hat | "
        "audit corrects | Pareto k | all bounds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        found = result["comparison"]
        lines.append(
            f"| {result['name']} | {found['mean']:.3f} | {found['mean_z']:.1f} | "
            f"{found['mcse']:.3f} | {100 * found['sd']:.1f} % | {found['r_hat']:.3f} | "
            f"{found['correction']:.4f} | {found['pareto_k']:.2f} | "
            f"{'hold' if found['passed'] else 'DO NOT HOLD'} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and write the page."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python bench/selection.py WORK")
    results = []
    for name in NAMES:
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / CACHED).exists():
            found = measure(name, folder)
            found |= {"machine": machine(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            (folder / CACHED).write_text(json.dumps(found))
        print((folder / CACHED).read_text(), flush=True)
        results.append(json.loads((folder / CACHED).read_text()))
    RESULTS.write_text("".join(json.dumps(result) + "\n" for result in results))
    PAGE.write_text(markdown(results))


if __name__ == "__main__":
    main()
