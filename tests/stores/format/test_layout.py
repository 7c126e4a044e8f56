from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammc.errors import ConfigError
from streammc.stores.format.layout import (
    MAX_CHUNKS,
    Layout,
    Member,
    choose_chunk_rows,
    chunks_per_block,
    round_chunk_rows,
)
from streammc.stores.format.manifest import Entry, Manifest
from streammc.stores.reduction import task_graph
from streammc.stores.rows.row_blocks import store_blocks


@given(st.integers(1, 10**7))
def test_chunk_rows_are_rounded_up_to_whole_pages(rows: int) -> None:
    rounded = round_chunk_rows(rows)
    assert rounded % 4096 == 0
    assert rows <= rounded < rows + 4096


def test_no_rows_per_chunk_is_refused() -> None:
    with pytest.raises(ConfigError, match="rows per chunk, at least 1"):
        round_chunk_rows(0)


@pytest.mark.parametrize("columns", [1, 4, 20, 55, 128, 500])
def test_chosen_chunks_have_4_to_16_megabytes(columns: int) -> None:
    size = choose_chunk_rows(4 * columns) * 4 * columns
    assert 4 << 20 <= size <= 16 << 20


def test_a_long_table_gets_longer_chunks_than_a_process_can_map() -> None:
    rows = 40 * 10**9
    chunk = choose_chunk_rows(400, rows, 4)
    assert -(-rows // chunk) * 4 <= MAX_CHUNKS < -(-rows // choose_chunk_rows(400)) * 4


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("columns", [1, 2, 3, 8, 20, 32, 200, 2000])
def test_a_billion_rows_make_a_graph_of_less_than_1000_tasks(columns: int, itemsize: int) -> None:
    rows = 10**9
    chunk = choose_chunk_rows(columns * itemsize, rows)
    members = (Member("X", f"float{8 * itemsize}", columns), Member("y", "uint8"))
    layout = Layout(rows, chunk, members)
    manifest = Manifest({key: Entry(0, 0) for key in layout.chunk_sizes()})
    block_rows = chunk * chunks_per_block(rows, chunk)
    blocks = store_blocks(Path("store"), layout, manifest, block_rows)
    assert 10**6 < block_rows < 4 * 10**6
    assert rows == sum(block.rows for block in blocks)
    assert len(list(task_graph(None, blocks, "pass", None).values())[-1].dask) < 1000


def test_blocks_of_a_table_take_one_digest_of_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(Manifest, "fingerprint", property(lambda _: made.append("") or "digest"))
    layout = Layout(10_000, 1000, (Member("X", "float32", 2), Member("y", "uint8")))
    manifest = Manifest({key: Entry(0, 0) for key in layout.chunk_sizes()})
    blocks = store_blocks(Path("store"), layout, manifest, 1000)
    assert (10, 1) == (len(blocks), len(made))
    assert {"digest"} == {block.fingerprint for block in blocks}


def test_a_small_table_has_a_block_for_every_core() -> None:
    assert chunks_per_block(80_000, 10_000) == 1
    assert chunks_per_block(10**7, 102_400) == 13
