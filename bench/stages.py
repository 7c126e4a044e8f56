"""Seconds of every stage of a job, from a table to predictions.

Run as ``python bench/stages.py [--rows 5000000] [--write]``. Makes a table of ten columns (a
response, eight numbers and a factor of twelve levels) as Parquet and CSV in a temporary folder,
ingests it by a formula, and runs ``summarize``, ``sample``, ``diagnose`` and ``predict``, once to
compile and load, then timed. The stages inside ``sample`` are timed by wrapping the functions that
begin them: each second belongs to the innermost. Beside an ingest stands its limit: Arrow's
decoding of the same columns, and a sequential write of the bytes of the store; then the share of
the limit in the ingest, as a whole and without what the ingest of 1,000 rows takes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page import machine, publish, short

COMMAND = str(Path(sys.executable).with_name("streammc"))
FORMULA = "y ~ " + " + ".join(f"x{i}" for i in range(8)) + " + C(g)"
MODEL = ["--model", "logistic", "--prior-scale", "10"]
SAMPLE = [*MODEL, "--seed", "1", "--draws", "1000", "--warmup", "1000"]
BATCH = 500_000
FEW = 1000

Seconds = tuple[float, float]
"""Wall and processor time."""


class Clock:
    """Exclusive seconds of stages, by name, in the main thread."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        self._open = ["rest"]
        self._last = self._now()

    @staticmethod
    def _now() -> Seconds:
        return time.perf_counter(), time.process_time()

    def _charge(self) -> None:
        now = self._now()
        total = self.spent.setdefault(self._open[-1], [0.0, 0.0])
        for kind in (0, 1):
            total[kind] += now[kind] - self._last[kind]
        self._last = now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge to ``name`` what is spent in the context, but for the stages inside it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def wrap(self, owner: Any, function: str, name: str | Callable[..., str]) -> None:
        """Time a function that is looked up in ``owner`` at every call."""
        plain = getattr(owner, function)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name if isinstance(name, str) else name(*args)):
                return plain(*args, **kwargs)

        setattr(owner, function, timed)

    def close(self) -> dict[str, list[float]]:
        """Return the seconds of all stages."""
        self._charge()
        return self.spent


def sample_in_stages(result: str, words: list[str]) -> None:
    """Run a command of ``streammc`` in this process; write the seconds of its stages."""
    import importlib._bootstrap as bootstrap

    clock = Clock()
    clock.wrap(bootstrap, "_find_and_load", "imports")
    from numba.core.dispatcher import Dispatcher

    import streammc.samplers.common.preparation as planning
    import streammc.stores.reduction as reduction
    from streammc.cli import main
    from streammc.runs import job, run_summary
    from streammc.samplers.common.chains import Chains

    clock.wrap(Dispatcher, "compile", "load of compiled code")
    clock.wrap(reduction, "_run_in_process", "full passes")
    clock.wrap(planning, "compute", "mode and certificate")
    clock.wrap(planning, "plan_units", "plan")
    clock.wrap(job, "Chains", "start of the chains")
    clock.wrap(Chains, "initialise", "start of the chains")
    clock.wrap(
        Chains, "advance", lambda _, __, phase, *___: {"warmup": "warm-up"}.get(phase, phase)
    )
    clock.wrap(run_summary, "run_audit", "audit")
    clock.wrap(run_summary, "finish_report", "summary")
    sys.argv = ["streammc", *words]
    try:
        main()
    finally:
        Path(result).write_text(json.dumps(clock.close()))


def seconds_of(*command: str) -> Seconds:
    """Return the wall and processor seconds of a command."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return after.elapsed - before.elapsed, spent


def make_tables(rows: int, name: str = "t") -> None:
    """Write the table as ``t.parquet`` and ``t.csv``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(1)
    names = np.array([f"level{k}" for k in range(12)])
    parquet = csv = None
    for first in range(0, rows, BATCH):
        n = min(BATCH, rows - first)
        x, g = rng.normal(size=(n, 8)), rng.integers(0, 12, n)
        eta = x @ np.linspace(-0.5, 0.5, 8) + np.linspace(-1.0, 1.0, 12)[g] - 0.3
        columns = {f"x{i}": x[:, i] for i in range(8)}
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int64)
        part = pa.table({**columns, "g": names[g], "y": y})
        parquet = parquet or pa.parquet.ParquetWriter(f"{name}.parquet", part.schema)
        csv = csv or pa.csv.CSVWriter(f"{name}.csv", part.schema)
        parquet.write_table(part)
        csv.write_table(part)
    for writer in (parquet, csv):
        assert writer is not None
        writer.close()


def limit(source: str, store: str) -> Seconds:
    """Return the seconds to decode a table with Arrow and to write the bytes of its store."""
    import pyarrow.csv
    import pyarrow.parquet

    size = sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())
    began, spent = time.perf_counter(), time.process_time()
    if source.endswith(".csv"):
        batches: Any = pyarrow.csv.open_csv(source)
    else:
        batches = pyarrow.parquet.ParquetFile(source).iter_batches(1 << 16)
    for _ in batches:
        pass
    block = bytes(1 << 20)
    with open("sequential", "wb") as out:
        for _ in range(size >> 20):
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    os.unlink("sequential")
    return time.perf_counter() - began, time.process_time() - spent


def staged(*words: str) -> dict[str, list[float]]:
    """Return the seconds of the stages of a command, run in a process of its own."""
    command = [sys.executable, __file__, "--inside", "stages.json", *words]
    whole = seconds_of(*command)
    found: dict[str, list[float]] = json.loads(Path("stages.json").read_text())
    inside = [sum(each[kind] for each in found.values()) for kind in (0, 1)]
    found["start and end of the process"] = [max(whole[k] - inside[k], 0.0) for k in (0, 1)]
    return found


def ingest_and_limit(kind: str) -> list[tuple[str, Seconds]]:
    """Return the seconds of an ingest, of its limit and of its start, and the shares in percent."""
    store, options = f"{kind}.zarr", ["--formula", FORMULA, "--seed", "1"]
    starts = [seconds_of(COMMAND, "ingest", f"few.{kind}", f"few-{k}.zarr", *options) for k in "ab"]
    start = starts[1]
    for made in ("few-a.zarr", "few-b.zarr"):
        shutil.rmtree(made)
    whole = seconds_of(COMMAND, "ingest", f"t.{kind}", store, *options)
    bound = limit(f"t.{kind}", store)
    share = tuple(100.0 * bound[k] / whole[k] for k in (0, 1))
    rest = tuple(100.0 * bound[k] / max(whole[k] - start[k], 1e-9) for k in (0, 1))
    return [
        (f"`ingest` of {kind}", whole),
        (f"… of {FEW:,} rows", start),
        (f"limit: decode {kind}, write", bound),
        ("… in % of the ingest", (share[0], share[1])),
        (f"… in % of it less that of {FEW:,} rows", (rest[0], rest[1])),
    ]


def measure(rows: int) -> list[tuple[str, Seconds]]:
    """Return the seconds of every stage, in the order of a job."""
    make_tables(rows)
    make_tables(FEW, "few")
    found: list[tuple[str, Seconds]] = []
    for kind in ("parquet", "csv"):
        found += ingest_and_limit(kind)
    given = ["--control-variates", "cv.zarr"]
    seconds_of(COMMAND, "summarize", "csv.zarr", "-o", "first-cv.zarr", *MODEL)  # compiles
    seconds_of(COMMAND, "sample", "csv.zarr", "-o", "first", *SAMPLE)
    store = "parquet.zarr"
    found.append(("`summarize`", seconds_of(COMMAND, "summarize", store, "-o", "cv.zarr", *MODEL)))
    for label, more in (("computed", []), ("given", given)):
        name = f"`sample`, control variates {label}"
        parts = staged("sample", store, "-o", f"run-{label}", *SAMPLE, *more)
        whole = tuple(sum(part[kind] for part in parts.values()) for kind in (0, 1))
        found.append((name, (whole[0], whole[1])))
        for part, spent in sorted(parts.items(), key=lambda item: -item[1][1]):
            found.append((f"… {part}", (spent[0], spent[1])))
    found.append(("`diagnose`", seconds_of(COMMAND, "diagnose", "run-given")))
    predict = [COMMAND, "predict", "run-given", store, "-o", "prediction.zarr"]
    found.append(("`predict`", seconds_of(*predict)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--write", action="store_true", help="Write docs/measurements/stages.md.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streammc-stages-") as folder:
        os.chdir(folder)
        found = measure(asked.rows)
        os.chdir("/")
    lines = [f"{machine()}; {asked.rows:,} rows of 10 columns, 20 in the design.", ""]
    lines += ["| stage | wall, s | CPU, s |", "|---|---|---|"]
    lines += [f"| {name} | {short(wall)} | {short(cpu)} |" for name, (wall, cpu) in found]
    print("\n".join(lines))
    if asked.write:
        publish("stages.md", "stages", lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sample_in_stages(sys.argv[2], sys.argv[3:])
    else:
        main()
