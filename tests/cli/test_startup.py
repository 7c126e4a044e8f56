"""Late imports: modules that are used after the last draw are not imported before the first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import streammc

LATE = ("arviz_base", "arviz_stats", "distributed", "pandas", "pyarrow", "xarray", "zarr")
"""Needed after the last draw, by an ingest, or by a cluster."""
SHORT = ("--model", "logistic", "--seed", "1", "--draws", "20", "--warmup", "20", "--chains", "1")

NEVER = ("arviz_base", "arviz_stats", "matplotlib", "pandas", "pyarrow", "scipy.stats", "xarray")
"""Not needed by a run and its summary."""
AT_THE_END = """
import json, sys
from streammc.cli import main

try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""

WATCH = """
import json, sys
from streammc.cli import main

def watch(frame, event, _):
    code = frame.f_code
    if code.co_name == "advance" and code.co_filename.endswith("chains.py"):
        sys.setprofile(None)
        print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))

sys.setprofile(watch)
sys.exit(main())
"""


def modules_at_the_first_iteration(*words: str | Path) -> set[str]:
    """Return the packages that are loaded when the first iteration begins."""
    command = [sys.executable, "-c", WATCH, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return set(json.loads(done.stdout.splitlines()[0]))


@pytest.fixture
def kept(store: Path) -> tuple[str, ...]:
    assert 0 == streammc("summarize", store, "-o", "cv.zarr", "--model", "logistic").code
    return ("--control-variates", "cv.zarr")


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.slow
def test_modules_used_after_the_last_draw_are_not_imported_before_the_first(
    store: Path, kept: tuple[str, ...], given: bool
) -> None:
    options = kept if given else ()
    loaded = modules_at_the_first_iteration("sample", store, "-o", "new", *SHORT, *options)
    assert {"numba", "numpy", "streammc"} <= loaded
    assert not loaded & {*LATE, *(("dask",) if given else ())}


def test_a_regression_imports_no_mixed_models(store: Path, kept: tuple[str, ...]) -> None:
    loaded = modules_at_the_end("sample", store, "-o", "new", *SHORT, *kept, "--no-audit")
    assert "streammc.models.glm.bernoulli_logit" in loaded
    assert not loaded & {"streammc.models.mixed.mixed_model", "streammc.models.glm.gamma_log"}


def test_watch_reports_an_early_import(store: Path) -> None:
    early = WATCH.replace("import json, sys\n", "import json, sys, xarray\n")
    command = [sys.executable, "-c", early, "sample", str(store), "-o", "new", *SHORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "xarray" in json.loads(done.stdout.splitlines()[0])


def modules_at_the_end(*words: str | Path) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    command = [sys.executable, "-c", AT_THE_END, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("audit", [False, True])
@pytest.mark.slow
def test_a_run_its_summary_and_its_audit_import_neither_arviz_nor_xarray(
    store: Path, kept: tuple[str, ...], audit: bool
) -> None:
    option = "--audit" if audit else "--no-audit"
    loaded = modules_at_the_end("sample", store, "-o", "new", *SHORT, *kept, option)
    assert {"numba", "streammc.runs.run_summary"} <= loaded
    assert not loaded & {*NEVER, *(() if audit else ("dask",))}
    assert audit == (streammc("diagnose", "new", "--json").json["audit"] is not None)


def test_diagnose_of_a_finished_run_imports_no_models(store: Path) -> None:
    assert 0 == streammc("sample", store, "-o", "new", *SHORT).code
    loaded = modules_at_the_end("diagnose", "new")
    assert "streammc.cli.report" in loaded
    assert not loaded & {*NEVER, "dask", "numba", "scipy", "zarr"}
