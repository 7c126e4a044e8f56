from __future__ import annotations

import google_crc32c
import numpy as np
import pytest
import zarr
from numcodecs.zstd import compress

from streammc.errors import StoreError
from streammc.stores.format.layout import Layout, Member
from streammc.stores.format.schema import shards_of
from streammc.stores.format.shards import (
    Shards,
    choose_piece_rows,
    decode_piece,
    decode_shard,
    encode_shard,
    index_bytes,
    read_index,
)

PIECE, PIECES, USED = 400, 5, 3


def raw_block() -> np.ndarray:
    raw = np.random.default_rng(2).integers(0, 9, PIECE * PIECES).astype(np.uint8)
    raw[PIECE * 2 + 100 :] = 0
    return raw


@pytest.mark.parametrize("zstd", [False, True])
def test_shard_decodes_to_the_rows_that_were_encoded(zstd: bool) -> None:
    raw = raw_block()
    encoded = encode_shard(raw, PIECE * 2 + 100, PIECE, zstd)
    into = np.full_like(raw, 7)
    decode_shard(encoded, into, USED, PIECE, zstd, "s")
    np.testing.assert_array_equal(raw, into)


@pytest.mark.parametrize("zstd", [False, True])
def test_every_flipped_bit_of_a_piece_or_index_is_found(zstd: bool) -> None:
    encoded = encode_shard(raw_block(), PIECE * 2 + 100, PIECE, zstd)
    length = index_bytes(PIECES)
    generator = np.random.default_rng(3)
    gap = range(len(encoded) - length - 8, len(encoded) - length)  # the digest, for the manifest
    for place in generator.choice(len(encoded), 200, replace=False):
        if place in gap:
            continue
        spoilt = encoded.copy()
        spoilt[place] ^= np.uint8(1 << generator.integers(8))
        with pytest.raises(StoreError, match="damaged"):
            index = read_index(spoilt[-length:], PIECES, USED, len(spoilt), "s")
            for start, count in index[:USED]:
                part = spoilt[start : start + count]
                decode_piece(part, np.empty(PIECE, np.uint8), zstd, "s")


def test_checksum_of_the_shard_tells_contents_apart() -> None:
    first, second = raw_block(), raw_block()[::-1].copy()
    shards = [encode_shard(raw, PIECE * 2 + 100, PIECE, False) for raw in (first, second)]
    assert 2 == len({int(google_crc32c.value(shard)) for shard in shards})
    # Without the digest before the index it is a function of the length alone.
    end = index_bytes(PIECES)
    bare = [np.concatenate([shard[: -end - 8], shard[-end:]]) for shard in shards]
    assert 1 == len({int(google_crc32c.value(shard)) for shard in bare})


@pytest.mark.parametrize("zstd", [False, True])
def test_pieces_in_another_order_are_damage(zstd: bool) -> None:
    raw = raw_block()
    encoded = encode_shard(raw, PIECE * 2 + 100, PIECE, zstd)
    index = read_index(encoded[-index_bytes(PIECES) :], PIECES, USED, len(encoded), "s")
    (first, length), (second, other) = index[:2]
    spoilt = encoded.copy()
    if length == other:
        spoilt[first : first + length] = encoded[second : second + other]
        spoilt[second : second + other] = encoded[first : first + length]
    else:  # compressed pieces differ in length: their entries in the index are exchanged
        exchanged = index.copy()
        exchanged[[0, 1]] = index[[1, 0]]
        spoilt = with_index(encoded, np.where(exchanged < 0, 2**64 - 1, exchanged).astype("<u8"))
    with pytest.raises(StoreError, match="the digest of its pieces"):
        decode_shard(spoilt, np.empty_like(raw), USED, PIECE, zstd, "s")


def with_index(encoded: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Replace the index of a shard, with a right checksum."""
    content = index.astype("<u8").tobytes()
    crc = int(google_crc32c.value(content)).to_bytes(4, "little")
    body = encoded[: -index_bytes(PIECES)].tobytes()
    return np.frombuffer(body + content + crc, np.uint8)


@pytest.mark.trust(50)
@pytest.mark.parametrize(
    ("piece", "entry", "expected"),
    [
        (1, (2**64 - 1, 2**64 - 1), "3 pieces"),
        (1, (10, 404), "do not overlap"),
        (2, (808, 10**6), "inside"),
        (2, (2**63, 404), "inside"),
        (2, (808, 3), "inside"),
        (4, (0, 404), "3 pieces"),
    ],
)
def test_index_that_misses_overlaps_or_points_outside_is_refused(
    piece: int, entry: tuple[int, int], expected: str
) -> None:
    encoded = encode_shard(raw_block(), PIECE * 2 + 100, PIECE, zstd=False)
    index = np.frombuffer(encoded[-index_bytes(PIECES) : -4].tobytes(), "<u8").reshape(PIECES, 2)
    changed = index.copy()
    changed[piece] = entry
    spoilt = with_index(encoded, changed)
    with pytest.raises(StoreError, match=expected):
        decode_shard(spoilt, np.empty(PIECE * PIECES, np.uint8), USED, PIECE, False, "s")


@pytest.mark.trust(50)
@pytest.mark.parametrize("size", [PIECE - 1, PIECE + 1, 10**8])
def test_compressed_piece_of_another_length_is_refused_before_it_is_decoded(size: int) -> None:
    body = compress(np.zeros(size, np.uint8), 3)
    content = np.frombuffer(body + google_crc32c.value(body).to_bytes(4, "little"), np.uint8)
    with pytest.raises(StoreError, match=f"a piece of {PIECE} bytes"):
        decode_piece(content, np.empty(PIECE, np.uint8), True, "s")


def test_frame_that_is_no_zstd_is_refused() -> None:
    body = b"\x00" * 40
    content = np.frombuffer(body + google_crc32c.value(body).to_bytes(4, "little"), np.uint8)
    with pytest.raises(StoreError, match="damaged"):
        decode_piece(content, np.empty(PIECE, np.uint8), True, "s")


@pytest.mark.parametrize("size", [1, 255, 256, 300, 65_791, 65_792, 70_000])
def test_declared_length_of_a_frame_is_read_for_every_width(size: int) -> None:
    block = np.arange(size, dtype=np.uint8)
    body = compress(block, 3)
    content = np.frombuffer(body + google_crc32c.value(body).to_bytes(4, "little"), np.uint8)
    into = np.empty(size, np.uint8)
    decode_piece(content, into, True, "s")
    np.testing.assert_array_equal(block, into)


def test_pieces_are_narrower_where_rows_are_wide() -> None:
    assert 16384 == choose_piece_rows(60)
    assert choose_piece_rows(1000) * 1000 <= 1 << 20
    assert 512 == choose_piece_rows(10**6)


def test_codecs_of_other_programs_are_no_pieces_of_ours() -> None:
    layout = Layout(100, 100, (Member("X", "float32", 3),), shards=Shards(50, True))
    assert layout.shards is not None
    codecs = layout.shards.codecs([{"name": "bytes"}], 3)
    assert Shards(50, True) == shards_of(codecs, 100)
    assert shards_of(codecs, 120) is None
    assert shards_of([{"name": "bytes"}], 100) is None
    assert shards_of([{"name": "sharding_indexed", "configuration": 3}], 100) is None


def test_zarr_itself_reads_what_we_write(tmp_path: object) -> None:
    from streammc.stores.ingest.ingestion import ingest

    path = f"{tmp_path}/t.zarr"
    values = np.arange(9000.0)
    ingest(
        {"a": values, "y": np.arange(9000) % 7},
        path,
        response="y",
        layout="cloud",
        compression="zstd",
        shuffle=False,
        standardize=False,
        dtype="float64",
        chunk_rows=4096,
    )
    group = zarr.open_group(path, mode="r")
    array = group["X"]
    assert isinstance(array, zarr.Array)
    np.testing.assert_array_equal(values, np.asarray(array[:, 1]))
