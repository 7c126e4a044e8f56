"""Rows to predict keep their order and the labels of their groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from streammc.errors import ConfigError, DataError, StoreError
from streammc.stores import from_arrays, open_store
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.store import verify

ROWS = 6_000


def table(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    number = rng.integers(0, 90, ROWS)
    return pd.DataFrame(
        {"x": rng.normal(size=ROWS), "y": rng.integers(0, 2, ROWS), "number": number}
    ).assign(text=[f"Zo\xeb {k}" for k in number])


OLD, NEW = table(1), table(2).assign(number=lambda found: found["number"] + 40)
OPTIONS = {
    "formula, number": {"formula": "y ~ x + (1 + x | number)"},
    "formula, text": {"formula": "y ~ x + (1 | text)"},
    "columns, text": {"response": "y", "features": ["x"], "group": "text"},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_new_rows_keep_order_and_labels(tmp_path: Path, case: str) -> None:
    column = case.split()[-1]
    ingest(OLD, tmp_path / "old", **OPTIONS[case], chunk_rows=4096)
    ingest(NEW, tmp_path / "new", like=tmp_path / "old", chunk_rows=4096)
    store = open_store(tmp_path / "new")
    assert store.groups is None
    assert column == store.attributes["row_group"]
    assert "groups" not in store.attributes
    assert ["X", "y"] == [member.name for member in store.layout.data_members]
    assert np.array_equal(np.arange(ROWS), store.row_ids())
    expected = NEW[column].to_numpy()
    if column == "text":
        expected = np.char.encode(expected.astype(str), "utf-8")
    memory = from_table(NEW, like=tmp_path / "old")
    for data in (store, memory):
        assert np.array_equal(expected, data.row_groups())
        assert np.array_equal(expected[4_000:5_000], data.row_groups(4_000, 5_000))
    assert verify(tmp_path / "new")["ok"]
    ingest(NEW, tmp_path / "third", like=tmp_path / "new")
    assert np.array_equal(expected, open_store(tmp_path / "third").row_groups())


def test_rows_of_a_grouped_store_have_the_labels_of_their_groups(tmp_path: Path) -> None:
    ingest(OLD, tmp_path / "old", **OPTIONS["formula, number"])
    memory = from_table(OLD, **OPTIONS["formula, number"])
    for data in (open_store(tmp_path / "old"), memory):
        expected = OLD["number"].to_numpy()[data.row_ids()]
        assert np.array_equal(expected, data.row_groups())
        assert np.array_equal(expected[77:1_234], data.row_groups(77, 1_234))


def test_a_table_without_the_groups_is_of_new_groups(tmp_path: Path) -> None:
    ingest(OLD, tmp_path / "old", **OPTIONS["formula, text"])
    report = ingest(NEW[["x", "y"]], tmp_path / "new", like=tmp_path / "old")
    assert any("no column 'text', the groups of the store" in line for line in report["warnings"])
    store = open_store(tmp_path / "new")
    assert store.row_groups() is None
    assert "row_group" not in store.attributes


def test_new_rows_without_a_label_are_refused_or_left_out(tmp_path: Path) -> None:
    ingest(OLD, tmp_path / "old", **OPTIONS["formula, text"])
    gaps = NEW.assign(text=NEW["text"].where(NEW.index % 3 > 0))
    with pytest.raises(DataError, match="missing group labels in 2000 rows"):
        ingest(gaps, tmp_path / "new", like=tmp_path / "old")
    ingest(gaps, tmp_path / "new", like=tmp_path / "old", drop_missing=True)
    store = open_store(tmp_path / "new")
    kept = gaps["text"].dropna()
    assert kept.index.tolist() == store.row_ids().tolist()
    assert kept.tolist() == [label.decode() for label in store.row_groups()]


def test_like_decides_the_groups(tmp_path: Path) -> None:
    ingest(OLD, tmp_path / "old", **OPTIONS["formula, text"])
    with pytest.raises(ConfigError, match="--like or --group, found both"):
        ingest(NEW, tmp_path / "new", like=tmp_path / "old", group="number")


def test_a_flipped_bit_of_the_labels_is_found(tmp_path: Path) -> None:
    ingest(OLD, tmp_path / "old", **OPTIONS["formula, text"])
    ingest(NEW, tmp_path / "new", like=tmp_path / "old")
    path = tmp_path / "new" / "row_group" / "c.0.0"
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"row_group/c\.0\.0"):
        open_store(tmp_path / "new").row_groups()


def test_arrays_without_groups_have_no_labels() -> None:
    assert from_arrays(np.ones((4, 1)), np.zeros(4)).row_groups() is None
