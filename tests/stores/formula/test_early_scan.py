"""A formula that is scanned while it is fitted gives the store of two readings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammc.errors import DataError
from streammc.stores.formula import encoded_blocks
from streammc.stores.formula.encoded_blocks import EarlyScan
from streammc.stores.ingest import prepare, table_blocks
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.memory import MemoryStore
from streammc.stores.store import Store, open_store

ROWS = 3000


def table(**others: Any) -> pa.Table:
    rng = np.random.default_rng(6)
    x = rng.normal(3.0, 2.0, ROWS)
    columns = {
        "x": pa.array(np.where(rng.random(ROWS) < 0.01, np.nan, x), from_pandas=True),
        "z": rng.gamma(2.0, size=ROWS),
        "g": rng.choice(["a", "b", "c", "d"], ROWS, p=[0.5, 0.3, 0.19, 0.01]),
        "h": rng.choice(["no", "yes"], ROWS),
        "n": rng.integers(1, 9, ROWS),
        "y": rng.integers(0, 2, ROWS),
    }
    return pa.table({**columns, **others})


CASES: dict[str, dict[str, Any]] = {
    "numbers": {"formula": "y ~ x + log(z) + x:z"},
    "factors between numbers": {"formula": "y ~ C(g) + x + h + I(x * z) + 2:z"},
    "without an intercept": {"formula": "y ~ C(g) + x - 1", "dtype": "float64"},
    "chosen levels": {"formula": "y ~ C(g, levels=['d', 'c', 'b', 'a', 'never']) + x"},
    "another reference": {"formula": "y ~ C(g, contr.treatment('c')) + x"},
    "a response of text": {"formula": "I(h == 'yes') ~ x + C(g)"},
    "offset and weight": {"formula": "y ~ x + C(g) + offset(log(z))", "weight": "n"},
    "an offset beside": {"formula": "y ~ x + C(g)", "offset": "z"},
    "trials": {"formula": "y ~ x + C(g)", "trials": "n"},
    "codes": {"formula": "y ~ x + C(g) + h", "codes_above": 2},
}


def stored(path: Path, source: Any, **options: Any) -> Store | MemoryStore:
    ingest(source, path, drop_missing=True, seed=3, **options)
    return open_store(path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each scan was early."""
    found: list[bool] = []
    finish = EarlyScan.finish

    def recorded(self: EarlyScan, *given: Any) -> Any:
        scan = finish(self, *given)
        found.append(scan is not None)
        return scan

    monkeypatch.setattr(EarlyScan, "finish", recorded)
    monkeypatch.setattr(table_blocks, "_BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(prepare, "LEAF_BYTES", 1 << 15)
    return found


@pytest.mark.parametrize("case", CASES)
def test_an_early_scan_gives_the_store_of_two_readings(
    case: str, calls: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table(), tmp_path / "t.parquet", row_group_size=900)
    early = stored(tmp_path / "a", tmp_path / "t.parquet", **CASES[case])
    assert [True] == calls
    monkeypatch.setattr(encoded_blocks, "can_scan_early", lambda *_: False)
    late = stored(tmp_path / "b", tmp_path / "t.parquet", **CASES[case])
    assert [True] == calls
    assert early.n_rows < ROWS
    before, after = late.attributes, early.attributes
    for name in ("mean", "scale"):
        expected = before["standardization"][name]
        found = after["standardization"][name]
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)
    assert {**before, "standardization": 0} == {**after, "standardization": 0}
    for expected, found in zip(late.rows().arrays, early.rows().arrays, strict=True):
        assert expected.dtype == found.dtype
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6, atol=1e-12)
    assert np.array_equal(late.row_ids(), early.row_ids())


@pytest.mark.parametrize(
    "formula", ["y ~ x:C(g)", "y ~ bs(z, df=4) + h", "y ~ scale(z)", "y ~ C(n)"]
)
def test_a_formula_with_other_states_is_read_again(
    formula: str, calls: list[bool], tmp_path: Path
) -> None:
    ingest(table(), tmp_path / "s", formula=formula, drop_missing=True)
    assert [] == calls


@pytest.mark.parametrize(
    ("formula", "others", "message"),
    [
        ("y ~ log(x) + C(g)", {}, "undefined results in .*'log|'log.*found undefined results"),
        ("y ~ x + C(g) + offset(log(n - 1))", {}, "undefined results"),
        ("y ~ I(z * 1e308 * 10) + h", {}, "undefined results|infinite values"),
    ],
)
def test_a_fault_in_an_early_scan_is_named_with_its_row(
    formula: str, others: dict[str, Any], message: str, calls: list[bool], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message) as refused:
        ingest(table(), tmp_path / "s", formula=formula, drop_missing=True, **others)
    assert "first in data row" in str(refused.value)
    assert [False] == calls
    assert [] == list(tmp_path.iterdir())


def test_means_of_indicators_are_shares_of_rows(tmp_path: Path) -> None:
    store = stored(tmp_path / "s", table(), formula="y ~ C(g)")
    words = table()["g"].to_pylist()
    shares = [words.count(level) / ROWS for level in ("b", "c", "d")]
    assert [0.0, *shares] == store.attributes["standardization"]["mean"]


def test_an_ingest_loads_no_compiler(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "t.parquet")
    code = (
        "import sys; from streammc import ingest; "
        "ingest('t.parquet', 's.zarr', formula='y ~ z + C(g)'); "
        "print('numba' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "False True" == done.stdout.strip()


def test_columns_may_be_named_as_terms_are_counted(tmp_path: Path) -> None:
    response = np.random.default_rng(1).gamma(2.0, size=ROWS)
    binary = np.arange(ROWS) % 2
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"term 0": response, "a": binary}), path)
    store = stored(tmp_path / "s.zarr", path, formula="`term 0` ~ a", dtype="float64")
    assert store.rows().arrays[1][:ROWS].mean() == pytest.approx(response.mean(), rel=1e-6)
