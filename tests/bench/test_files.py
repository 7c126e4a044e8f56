"""The bench of files: some of its tables are read as they are, and it finds planted faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streammc.stores.ingest import column_values, table_blocks
from streammc.stores.sources import csv_source

BENCH = Path(__file__).resolve().parents[2] / "bench"
TABLES = range(100, 124)


@pytest.fixture(scope="module")
def bench() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import files

        patch.setattr(files, "MANY", 300)
        yield files
    sys.modules.pop("files")


def verdicts(bench: Any) -> list[Any]:
    return [each for number in TABLES for each in bench.run_table(number, 1)]


def test_random_tables_of_every_format_are_read_as_they_are(bench: Any) -> None:
    found = verdicts(bench)
    wrong = [each for each in found if each.verdict not in ("right", "refused")]
    assert [] == wrong
    assert {"csv", "parquet", "arrow", "memory"} <= {form for each in found for form in each.forms}
    assert sum(each.verdict == "right" for each in found) > len(found) / 2
    assert 0 < sum(each.checked for each in found)


def arrow_cast(array: Any) -> Any:
    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)


FAULTS = {
    "decimals by Arrow": (column_values, "_nearest", arrow_cast, "wrong"),
    "levels of numbers as numbers": (
        table_blocks,
        "level_numbers",
        column_values.to_float64,
        "wrong",
    ),
    "zones as they are written": (column_values, "is_zoned", lambda type_: False, "wrong"),
    "moments as they are written": (
        column_values,
        "iso_word",
        lambda word, times=False: word,
        "unexplained",
    ),
    "decimals of CSV as they are written": (csv_source, "_shortest", lambda array: array, "wrong"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(bench: Any, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong, verdict = FAULTS[fault]
    monkeypatch.setattr(module, name, wrong)
    for number in [*TABLES, *range(400)]:
        if any(each.verdict == verdict for each in bench.run_table(number, 1)):
            return
    raise AssertionError("no table shows it")
