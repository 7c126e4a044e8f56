"""A shard of another store in the place of one's own is found, by every reader of shards."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import google_crc32c
import numpy as np
import pytest

from streammc.errors import StoreError
from streammc.likelihood.data_views import gather
from streammc.stores import open_store
from streammc.stores.cloud.staging import pull
from streammc.stores.format.shards import encode_shard, read_tail, tail_bytes
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import verify

PIECE = 400


def make(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    table = {"x": rng.normal(size=70_000), "y": rng.integers(0, 2, 70_000)}
    ingest(_arrow(table), path, response="y", layout="cloud", chunk_rows=32_768, shuffle=False)
    return path


def _arrow(columns):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    return pa.table(columns)


@pytest.fixture
def stores(tmp_path: Path) -> SimpleNamespace:
    one, other = make(tmp_path / "one.zarr", 1), make(tmp_path / "other.zarr", 2)
    layout = open_store(one).layout
    assert layout.shards is not None
    member = layout.member("X")
    assert member is not None
    return SimpleNamespace(one=one, other=other, shard=member.key(1), layout=layout, member=member)


def swap_whole(stores: SimpleNamespace) -> None:
    """Put the whole shard of the other store, of the same length, in the place of the own one."""
    mine, theirs = stores.one / stores.shard, stores.other / stores.shard
    assert mine.stat().st_size == theirs.stat().st_size
    shutil.copyfile(theirs, mine)


def swap_pieces(stores: SimpleNamespace) -> None:
    """Put the pieces of the other shard before the digest and the index of the own one."""
    mine, theirs = stores.one / stores.shard, stores.other / stores.shard
    pieces = stores.layout.chunk_rows // stores.layout.shards.piece_rows
    end = tail_bytes(pieces)
    before = mine.read_bytes()
    after = theirs.read_bytes()[:-end] + before[-end:]
    assert google_crc32c.value(before) == google_crc32c.value(after)
    assert before != after
    mine.write_bytes(after)


@pytest.mark.parametrize("swap", [swap_whole, swap_pieces])
def test_verify_and_pull_find_a_swapped_shard(stores, swap, tmp_path):
    assert verify(stores.one)["ok"]
    swap(stores)
    faults = verify(stores.one)["faults"]
    assert [stores.shard] == [fault["key"] for fault in faults]
    assert ["changed"] == [fault["kind"] for fault in faults]
    with pytest.raises(StoreError, match="expected"):
        pull(str(stores.one), tmp_path / "copy.zarr")
    assert not (tmp_path / "copy.zarr").exists()


def test_pull_reads_again_what_was_swapped_in_an_unfinished_copy(stores, tmp_path):
    staging = tmp_path / "copy.zarr.pulling"
    shutil.copytree(stores.one, staging)
    kept = SimpleNamespace(**{**vars(stores), "one": staging})
    swap_pieces(kept)
    found = pull(str(stores.one), tmp_path / "copy.zarr")
    assert (stores.one / stores.shard).stat().st_size == found["bytes_read"]
    assert verify(tmp_path / "copy.zarr")["ok"]


def test_single_rows_of_a_swapped_shard_are_refused(stores):
    swap_whole(stores)
    store = open_store(stores.one)
    gather(store, np.arange(10, dtype=np.int64))  # of another shard
    with pytest.raises(StoreError, match="the checksum of the manifest"):
        gather(store, np.array([33_000], np.int64))


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_tail_of_a_shard_decides_its_checksum(zstd: bool, rows: int) -> None:
    rng = np.random.default_rng(3)
    shards = [
        encode_shard(rng.integers(0, 9, 3 * PIECE, np.uint8), rows * PIECE + 10, PIECE, zstd)
        for _ in range(2)
    ]
    end = tail_bytes(3)
    crcs = [int(google_crc32c.value(shard)) for shard in shards]
    for shard, crc in zip(shards, crcs, strict=True):
        index = read_tail(shard[-end:], 3, rows + 1, len(shard), crc, "s")
        assert len(shard) - end == index[: rows + 1].sum(axis=1)[-1]
    with pytest.raises(StoreError, match="the checksum of the manifest"):
        read_tail(shards[0][-end:], 3, rows + 1, len(shards[0]), crcs[1], "s")
