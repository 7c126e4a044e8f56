"""Anonymous memory of ``streammc predict`` does not grow with the rows."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
FEW, MANY = 500_000, 2_000_000
LIMIT, GROWTH = 500e6, 60e6
# 1.5 million rows more, times 50 draws, would be 600 MB; the groups keep one column, 12 MB.
DRAWS = 50


@pytest.fixture(scope="module")
def memory():
    path = Path(__file__).parents[2] / "bench" / "memory.py"
    spec = importlib.util.spec_from_file_location("memory", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_memory_does_not_grow_with_four_times_the_rows(memory, tmp_path):
    used = {".zarr": {}, ".csv": {}, ".parquet": {}}
    for rows in (FEW, MANY):
        words = ("--rows", str(rows), "--dim", "5", "--seed", "7")
        memory.measure("simulate", "logistic", str(tmp_path / f"s{rows}"), *words)
    run = str(tmp_path / "run")
    counts = ("--draws", "50", "--warmup", "50", "--chains", "2", "--seed", "1", "--no-audit")
    memory.measure("sample", str(tmp_path / f"s{FEW}"), "-o", run, "--model", "logistic", *counts)
    for suffix, found in used.items():
        for rows in (FEW, MANY):
            output = tmp_path / f"p{rows}{suffix}"
            where = ("-o", str(output), "--scheduler", "2", "--json", "--quiet")
            by = ("--by", "x1") if suffix == ".zarr" else ()
            options = ("--predict-draws", str(DRAWS), *by)
            usage = memory.measure("predict", run, str(tmp_path / f"s{rows}"), *where, *options)
            assert json.loads(usage.output)["rows"] == rows
            found[rows] = usage.anonymous
            if suffix != ".zarr":
                output.unlink()
        assert 100e6 < found[MANY] < LIMIT, used
        assert found[MANY] - found[FEW] < GROWTH, used
