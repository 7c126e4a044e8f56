"""streammc against the reference draws of posteriordb.

Run as ``python bench/posteriordb.py``. Data: ``STREAMMC_TEST_DATA``, else ``../shared/data``
beside the repository. Writes ``docs/measurements/posteriordb.md``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from posteriordb_agreement import z_scores
from posteriordb_cases import CASES, LEFT_OUT, problem, reference

from streammc.registry import sampler as sampler_named
from streammc.runs.job import run_job
from streammc.samplers.common.sampler import RunRequest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("STREAMMC_TEST_DATA", ROOT / ".." / "shared" / "data")).resolve()
PAGE = ROOT / "docs" / "measurements" / "posteriordb.md"
SMALLEST = 500
"""Rows from which hmc-ecs is run as well."""
LADDER = {"n_levels": 3, "beta_min": 0.125, "n_steps": 10}
"""Of pt: a posterior with one mode needs no more, and no level at the prior."""
OPTIONS = {"draws": 2000, "warmup": 1000, "chains": 4}


def samplers(name: str, folder: Path):
    """Return the samplers of a case: hmc-ecs only where there are rows to sample from."""
    n = problem(name, folder)[0].n_rows
    return [
        sampler_named(each)(**(LADDER if each == "pt" else {}))
        for each in CASES[name].samplers
        if each != "hmc-ecs" or n >= SMALLEST
    ]


def draw(name: str, sampler: object, folder: Path, work: Path, seed: int = 1):
    """Return labels, draws (chain, draw, d), and the summary of one case."""
    store, model = problem(name, folder)
    report = run_job(
        RunRequest(store, model, sampler, path=work, seed=seed, audit=False, **OPTIONS)
    )
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(work)
    return list(run.labels), run.draws_matrix(), report.summary


def compare(name: str, sampler: object, folder: Path, work: Path) -> dict[str, object]:
    """Return the largest |z| of means and sds, R-hat and rows of one case."""
    labels, ours, summary = draw(name, sampler, folder, work)
    theirs = reference(name, folder, labels)
    r_hat = max(p["r_hat"] or 1.0 for p in summary["parameters"].values())
    found = {"rows": problem(name, folder)[0].n_rows, "r_hat": r_hat, "z_mean": None}
    if theirs is not None:
        z = np.array(list(z_scores(ours, theirs, labels).values()))
        found |= {"z_mean": float(np.abs(z[:, 0]).max()), "z_sd": float(np.abs(z[:, 1]).max())}
    return found


def number(value: object) -> str:
    """Return a cell of the table."""
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    """Run every case and write the page."""
    import tempfile

    folder = DATA / "posteriordb"
    lines = []
    for name, case in CASES.items():
        cells = []
        for sampler in samplers(name, folder):
            with tempfile.TemporaryDirectory() as work:
                found = compare(name, sampler, folder, Path(work) / "run")
            cells += [number(found["z_mean"]), number(found.get("z_sd"))]
            print(name, sampler.name, found, file=sys.stderr, flush=True)
        cells += ["", ""] * (2 - len(cells) // 2)
        lines.append(
            f"| {name} | {case.model} | {found['rows']} | {case.ours} | " + " | ".join(cells) + " |"
        )
    left = [f"| {name} | {reason} |" for name, reason in LEFT_OUT.items()]
    silent = [line.split(" | ")[0].strip("| ") for line in lines if line.endswith("|  |  |  |  |")]
    lines = [line for line in lines if not line.endswith("|  |  |  |  |")]
    lines += ["", f"Sampled, without reference draws: {', '.join(silent)}."]
    head = PAGE_HEAD.splitlines()
    PAGE.write_text("\n".join([*head, *lines, *PAGE_TAIL.splitlines(), *left, ""]))


PAGE_HEAD = """\
# Against the reference draws of posteriordb

`python bench/posteriordb.py` samples every posterior of a copy of posteriordb, 4 chains of 2,000
draws, seed 1, on the rows and with the priors of the Stan programs (`bench/posteriordb_cases.py`
has both spellings), and compares with the 10,000 reference draws: the largest |z| over the
parameters, of means and of standard deviations, in Monte Carlo standard errors of the difference.
hmc-ecs runs where there are at least 500 rows, and pt on the Gaussian process. A case without
numbers has no reference draws; it is sampled all the same. Of mixtures whose components may be
exchanged one mode is sampled.

| posterior | model | rows | prior | hmc, pt: mean | sd | hmc-ecs: mean | sd |
|---|---|---|---|---|---|---|---|"""
PAGE_TAIL = """
Not sampled:

| posterior | why |
|---|---|"""

if __name__ == "__main__":
    main()
