"""Every acceptance test on a store larger than its memory, beside ``hmc-ecs``.

Run as ``python bench/minibatch_out_of_core.py FOLDER [--rows 100000000] [--write]``; a store of
1e8 rows of 8 columns takes 3.3 GB of disk in FOLDER, and store and control variates that are
already there are used. Each test runs as a command of its own, one chain of random-walk
proposals: at T = 1 with control variates, and without any pass at a temperature of ``n / 100``,
where some of the rows can decide. Tests that look at every row in every decision make
``--sweeps`` of them, 6 to 8 s each. Peaks are of anonymous memory,
as ``memory.py`` counts it; the exit code is 1 where one is above 1 GB. ``--write`` renews the
table of the page. ``--only NAME,NAME`` runs some of the cases.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from memory import measure
from page import machine, publish, short

DIM, SEED = 8, "7"
MODEL = ("--model", "logistic", "--prior-scale", "10")
LIMIT = 1e9
WARMUP, DRAWS, FEW = 1000, 5000, 200
STEP, HOT_STEP = 0.84, 0.19
"""2.38 / sqrt(8) posterior sd, where there are too few decisions to adapt."""
INFORMATION = 100
"""Rows that the likelihood counts as, where there are no control variates."""
PAGE = "acceptance-tests.md"


class Case(NamedTuple):
    """A sampler with its options."""

    name: str
    sampler: str
    options: tuple[str, ...] = ()
    sweeps: bool = False
    """Whether every decision looks at every row."""
    few: bool = False
    """Whether some decisions take so many that there is time for few."""


WITH = (
    Case("`hmc-ecs`", "hmc-ecs"),
    Case("`mh-minibatch`", "mh-minibatch"),
    Case("`mh-fixed`", "mh-fixed"),
    Case("`mh-austere`", "mh-austere"),
    Case("`mh-austere`, not conservative", "mh-austere", ("conservative=false",), True),
    Case("`mh-sublhd`, bound of the model", "mh-sublhd", ("bound=model",)),
    Case("`mh-sublhd`, bound by a pass", "mh-sublhd", ("bound=pass",), True),
    Case("`mh`", "mh", (), True),
)
"""With control variates."""
WITHOUT = (
    Case("`mh-minibatch`", "mh-minibatch"),
    Case("`mh-fixed`, growing", "mh-fixed", ("remedy=grow",)),
    Case("`mh-austere`", "mh-austere", (), False, True),
    Case("`mh-sublhd`, bound of the model", "mh-sublhd", ("bound=model",), False, True),
)
"""Without a pass, hot."""
NO_PASS = ("control_variate=none", "covariance=identity")
COLUMNS = (
    "sampler",
    "target",
    "T",
    "decisions",
    "rows a decision",
    "at most",
    "error it reports",
    "forced",
    "rows read a decision",
    "effective draws",
    "rows read per effective draw",
    "seconds",
    "anonymous, MB",
)


def prepare(folder: Path, rows: int) -> tuple[Path, Path]:
    """Make the store and its control variates."""
    store, cv = folder / f"logistic-{rows}.zarr", folder / f"logistic-{rows}-cv.zarr"
    size = ["--rows", str(rows), "--dim", str(DIM), "--seed", SEED, "--quiet"]
    measure("simulate", "logistic", str(store), *size)
    measure("summarize", str(store), *MODEL, "-o", str(cv), "--quiet")
    return store, cv


def run(folder: Path, store: Path, cv: Path, case: Case, sweeps: int, heat: float) -> list[str]:
    """Run one case; return its line of the table and print it as JSON."""
    path = folder / "-".join(["run", case.sampler, *case.options, f"{heat:g}"]).replace("=", "-")
    shutil.rmtree(path, ignore_errors=True)
    warmup, draws = (1, sweeps) if case.sweeps else (1, FEW) if case.few else (WARMUP, DRAWS)
    words = ["sample", str(store), "-o", str(path), *MODEL, "--quiet", "--json"]
    words += ["--sampler", case.sampler, "--chains", "1", "--seed", "1", "--no-audit"]
    words += ["--warmup", str(warmup), "--draws", str(draws), "--temperature", repr(heat)]
    options = list(case.options)
    if heat == 1.0:
        words += ["--control-variates", str(cv)]
    else:
        options += NO_PASS
    if case.few or case.sweeps:
        words += ["--step-size", str(STEP if heat == 1.0 else HOT_STEP)]
    for option in options:
        words += ["--option", option]
    usage = measure(*words)
    document: dict[str, Any] = json.loads(usage.output)
    document |= {"seconds": usage.seconds, "anonymous": usage.anonymous, "case": case.name}
    print(json.dumps(document), file=sys.stderr, flush=True)
    return line(case, document, heat)


def line(case: Case, document: dict[str, Any], heat: float) -> list[str]:
    """Return one line of the table."""
    sampling = document["sampling"]
    iterations, certain = document["draws"] + document["warmup"], sampling["certainty_rows"]
    read = (sampling["rows_per_iteration"] - certain) / 2.0  # of every row at two points
    effective = min(p["ess_bulk"] or 0.0 for p in document["parameters"].values())
    told = sampling.get("decision_error_mean")
    mean = sampling.get("test_rows_mean")
    if mean is None:  # hmc-ecs: the rows of an estimate, of which a block is new
        mean = certain + sampling["subsample_size"]
        passes = document["cost"]["evaluations"]["passes"]
        read = (sampling["rows_read"] - passes - certain) / iterations
    largest = sampling.get("test_rows_largest", mean)
    many = not (case.sweeps or case.few)  # a few decisions are no sample
    return [
        case.name,
        str(sampling["target"]),
        f"{heat:,.0f}",
        f"{iterations:,}",
        short(mean),
        f"{largest:,.0f}",
        f"{told:.2g}" if told is not None else "",
        f"{sampling['forced']:.2g}" if told is not None else "",
        short(read),
        f"{effective:.0f}" if many else "",
        short(read * document["draws"] / effective) if many else "",
        f"{document['seconds']:.1f}",
        f"{document['anonymous'] / 1e6:.0f}",
    ]


def table(rows: list[list[str]]) -> list[str]:
    """Return a table of Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    store, cv = prepare(asked.folder, asked.rows)
    names = asked.only.split(",")
    cases = [(case, 1.0) for case in WITH] + [(c, asked.rows / INFORMATION) for c in WITHOUT]
    found = [
        run(asked.folder, store, cv, case, asked.sweeps, heat)
        for case, heat in cases
        if asked.only == "" or case.sampler in names
    ]
    told = f"{machine()}; {asked.rows:,} rows of {DIM} columns, one chain."
    print("\n".join([told, "", *table(found)]))
    if asked.write:
        publish(PAGE, "out-of-core", [told, "", *table(found)])
    return 1 if any(float(cells[-1]) * 1e6 > LIMIT for cells in found) else 0


if __name__ == "__main__":
    sys.exit(main())
