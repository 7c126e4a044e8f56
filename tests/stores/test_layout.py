from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streammc.errors import ConfigError
from streammc.stores.layout import (
    BLOCK_BYTES,
    MAX_CHUNKS,
    choose_chunk_rows,
    chunks_per_block,
    round_chunk_rows,
)


@given(st.integers(1, 10**7))
def test_chunk_rows_are_rounded_up_to_whole_pages(rows: int) -> None:
    rounded = round_chunk_rows(rows)
    assert rounded % 4096 == 0
    assert rows <= rounded < rows + 4096


def test_no_rows_per_chunk_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 row per chunk"):
        round_chunk_rows(0)


@pytest.mark.parametrize("columns", [1, 4, 20, 55, 128, 500])
def test_chosen_chunks_have_4_to_16_megabytes(columns: int) -> None:
    size = choose_chunk_rows(4 * columns) * 4 * columns
    assert 4 << 20 <= size <= 16 << 20


def test_a_long_table_gets_longer_chunks_than_a_process_can_map() -> None:
    rows = 40 * 10**9
    chunk = choose_chunk_rows(400, rows, 4)
    assert -(-rows // chunk) * 4 <= MAX_CHUNKS < -(-rows // choose_chunk_rows(400)) * 4


@given(st.integers(1, 10**9), st.integers(1, 100), st.integers(1, 2_000), st.sampled_from([4, 8]))
def test_blocks_stay_within_their_memory(
    rows: int, pages: int, columns: int, itemsize: int
) -> None:
    chunk = 4096 * pages
    count = chunks_per_block(rows, chunk, columns, itemsize)
    assert count == 1 or count * chunk * (columns * itemsize + 24) <= BLOCK_BYTES


def test_a_small_table_has_a_block_for_every_core() -> None:
    assert chunks_per_block(80_000, 10_000, 4, 4) == 1
    assert chunks_per_block(10**7, 102_400, 20, 4) == 12
