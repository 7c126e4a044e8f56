"""What a design costs by the number of its columns: numbers, or one factor as columns or as codes.

Run as ``python bench/dimension.py [--rows 20000] [--columns 10 ... 2000] [--write]``. Every size is
a process of its own, for its peak memory, and every figure is CPU seconds of that process. The
design is ``late ~ x + C(g)`` with a factor of as many levels, as columns (``codes_above=4096``) and
as codes (``codes_above=0``), or as many standardised columns of numbers. The sampler is
``hmc-ecs`` with a subsample of 100 rows, of which an iteration proposes one, and without certainty
rows, whether or not its plan would be refused: the page is about time. ``--threshold`` prints what
a pass and a gathered row cost at a few levels, with and without codes, and ``--whitening`` what the
product of a proposed row with a d x d matrix costs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from page import machine, publish, short

PAGE = "wide-tables.md"
KINDS = ("numbers", "columns", "codes")
NEVER = 4096
ITERATIONS = 100
OFTEN = 20


def table(rows: int, columns: int, kind: str) -> tuple[pa.Table, dict[str, Any]]:
    """Return a table for a design of about ``columns`` columns, and its options of ingest."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=rows)
    if kind == "numbers":
        more = {f"z{k}": rng.normal(size=rows) for k in range(columns - 2)}
        eta = 0.5 * x + sum(more.values()) / np.sqrt(columns)
        options: dict[str, Any] = {"response": "late"}
    else:
        level = np.concatenate([np.arange(columns), rng.integers(0, columns, rows - columns)])
        rng.shuffle(level)
        eta = 0.5 * x + rng.normal(0.0, 0.5, columns)[level]
        more = {"g": level}
        options = {"formula": "late ~ x + C(g)", "codes_above": 0 if kind == "codes" else NEVER}
    late = (rng.random(rows) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int64)
    return pa.table({"late": late, "x": x, **more}), options


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of ``work`` and its result."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def timed_phases() -> dict[str, list[float]]:
    """Return a dictionary that fills with the CPU seconds of every advance of the chains."""
    from streammc.samplers.common.chains import Chains

    plain, spent = Chains.advance, {}

    def advance(self: Any, *given: Any) -> Any:
        seconds, found = clock(lambda: plain(self, *given))
        spent.setdefault(given[1], []).append(seconds)
        return found

    Chains.advance = advance  # type: ignore[method-assign]
    return spent


def measure(folder: Path, kind: str, rows: int, columns: int) -> dict[str, float]:
    """Return the figures of one size."""
    import streammc
    from streammc.control_variates.full_pass.block_pass import ExpansionPass

    warnings.simplefilter("ignore")
    source, options = table(rows, columns, kind)
    path = folder / f"{kind}-{columns}"
    small, same = table(3 * 4096, 10, kind)
    streammc.from_table(small, **same)  # imports
    found: dict[str, float] = {}
    found["ingest"], report = clock(lambda: streammc.ingest(source, path, **options))
    found |= {"dim": len(report["features"]), "bytes": report["bytes"]}
    store = streammc.open_store(path)
    model = streammc.models.logistic(prior=streammc.priors.normal(scale=1.0))
    rng = np.random.default_rng(2)
    theta, shifts = np.zeros(store.n_features), 0.01 * rng.normal(size=(8, store.n_features))
    task = ExpansionPass(model, theta, shifts, 2, 1000, True)
    for _ in range(2):  # the first loads compiled code

        def full_pass() -> Any:
            return store.reduce(task, scheduler="sync").expansion(len(theta))

        found["pass"], _ = clock(full_pass)
    found["mode"], cv = clock(lambda: streammc.control_variates(store, model))
    spent = timed_phases()
    sampler = streammc.samplers.hmc_ecs(
        subsample_size=100, certainty=False, allow_high_variance=True
    )
    run = streammc.sample(
        store,
        model,
        control_variates=cv,
        sampler=sampler,
        chains=1,
        warmup=5 * ITERATIONS,
        draws=ITERATIONS,
        seed=1,
        audit=False,
    )
    found["warmup"] = sum(spent["warmup"])
    found["iteration"] = 1e3 * sum(spent["draws"]) / ITERATIONS
    found["steps"] = float(run["sample_stats"]["n_steps"].mean())
    found["memory"] = 1e-6 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found


def report(rows: int, sizes: list[int], kinds: list[str]) -> Iterator[str]:
    """Yield the lines of the table, as they are measured."""
    names = ("ingest, s", "store, MB", "pass, s", "mode, s", "warm-up, s", "ms an iteration")
    yield " | ".join(["| d | design", *names, "peak, GB |"])
    yield "|---|---|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="streammc-dimension-") as folder:
        for columns in sizes:
            for kind in kinds:
                words = [kind, folder, str(rows), str(columns)]
                command = [sys.executable, __file__, "--one", *words]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                one = json.loads(done.stdout.splitlines()[-1])
                figures = [one[name] for name in ("ingest", "pass", "mode", "warmup", "iteration")]
                ingest, passed, mode, warmup, iteration = map(short, figures)
                size, memory = short(one["bytes"] / 1e6), short(one["memory"])
                yield (
                    f"| {one['dim']:,} | {kind} | {ingest} | {size} | {passed} | {mode} "
                    f"| {warmup} | {iteration} ({one['steps']:.0f} steps) | {memory} |"
                )


def gather_often(source: Any, rows: Any, out: Any) -> None:
    """Gather the same rows several times."""
    for _ in range(OFTEN):
        source.gather(rows, 1, out)


def threshold(rows: int) -> Iterator[str]:
    """Yield a table of passes and gathered rows around the number of columns that is coded."""
    import streammc
    from streammc.control_variates.full_pass.block_pass import ExpansionPass
    from streammc.likelihood.blocks import allocate_rows

    warnings.simplefilter("ignore")
    model = streammc.models.logistic()
    rng = np.random.default_rng(1)
    names = ("bytes a row", "pass, µs a row", "gather, µs a row")
    yield " | ".join(["| levels", *(f"{name} | with codes" for name in names)]) + " |"
    yield "|---|---|---|---|---|---|---|"
    for levels in (8, 16, 32, 64, 128, 256):
        source, _ = table(rows, levels, "codes")
        given = [table(rows, levels, kind)[1] for kind in ("columns", "codes")]
        data = [streammc.from_table(source, **options) for options in given]
        d, at = data[0].n_features, rng.integers(0, rows, 1000)
        shifts, out = 0.01 * rng.normal(size=(8, d)), allocate_rows(1000, d)
        task = ExpansionPass(model, np.zeros(d), shifts, 2, 1000, True)
        passes: list[list[float]] = [[], []]
        gathers: list[list[float]] = [[], []]
        for _ in range(5):
            for k, one in enumerate(data):
                passes[k].append(clock(partial(one.reduce, task, scheduler="sync"))[0])
                gathers[k].append(clock(partial(gather_often, one.rows(), at, out))[0])
        figures = [1e6 * min(each) / rows for each in passes]
        figures += [1e6 * min(each) / (OFTEN * len(at)) for each in gathers]
        size = [each.rows().row_bytes for each in data]
        yield "| " + " | ".join([f"{levels}", *map(str, size), *map(short, figures)]) + " |"


def whitening(sizes: list[int]) -> Iterator[str]:
    """Yield a table of the product ``S'x`` that a proposed row of a subsample costs."""
    from streammc.likelihood.blocks import allocate_block, allocate_rows
    from streammc.likelihood.target import whiten_rows
    from streammc.numerics.row_products import aligned

    yield "| d | MB of the matrix | ms a proposed row |"
    yield "|---|---|---|"
    for d in sizes:
        matrix, rows, block = aligned(d, d), allocate_rows(1, d), allocate_block(1, d, 1)
        matrix[:] = 1.0
        rows.X[:] = 1.0
        work = partial(whiten_rows, matrix, rows, 0, 1, block, 0, np.zeros(d))
        work()
        often = max(5, 10**8 // d**2)
        seconds = min(clock(lambda: [work() for _ in range(often)])[0] for _ in range(3))  # noqa: B023
        yield f"| {d:,} | {short(8e-6 * d * d)} | {short(1e3 * seconds / often)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 100, 300, 1000, 2000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threshold", action="store_true", help="The other table.")
    parser.add_argument("--whitening", action="store_true", help="The third table.")
    parser.add_argument("--write", action="store_true", help=f"Write docs/measurements/{PAGE}.")
    asked = parser.parse_args()
    rows = 10 * asked.rows if asked.threshold else asked.rows
    lines = [f"{machine()}; {rows:,} rows, logistic.", ""]
    name, made = "dimension", report(rows, asked.columns, asked.kinds)
    if asked.threshold:
        name, made = "threshold", threshold(rows)
    if asked.whitening:
        name, made, lines = "whitening", whitening(asked.columns), [f"{machine()}.", ""]
    for line in made:
        print(line, flush=True)
        lines.append(line)
    if asked.write:
        publish(PAGE, name, lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        given = sys.argv[2:]
        print(json.dumps(measure(Path(given[1]), given[0], int(given[2]), int(given[3]))))
    else:
        main()
