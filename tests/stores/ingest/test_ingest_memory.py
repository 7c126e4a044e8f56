from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_files import make_table

PEAK = """
import sys
from streammc.stores.ingest.ingestion import ingest
ingest(sys.argv[1], sys.argv[2], **{sys.argv[3]: sys.argv[4]})
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
"""


def peak_megabytes(
    source: Path, store: Path, option: str = "response", value: str = "late"
) -> float:
    run = [sys.executable, "-c", PEAK, str(source), str(store), option, value]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    piece = make_table(250_000)
    peaks = []
    for pieces in (20, 60):  # 125 and 375 MB of rows: two leaves of the shuffle, and six
        source = tmp_path / f"{pieces}.parquet"
        with pq.ParquetWriter(source, piece.schema) as sink:
            for _ in range(pieces):
                sink.write_table(piece)
        peaks.append(peak_megabytes(source, tmp_path / f"{pieces}.zarr"))
    assert peaks[1] < 600
    # 250 MB more in the table; the buffers of more threads fill with chance.
    assert peaks[1] - peaks[0] < 125


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_huge_batch_of_an_arrow_file_is_read_in_slices(tmp_path: Path) -> None:
    table = pa.concat_tables([make_table(250_000)] * 24).combine_chunks()
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as sink:
        sink.write_batch(table.to_batches()[0])
    assert table.nbytes > 240e6
    del table
    assert peak_megabytes(tmp_path / "t.arrow", tmp_path / "s.zarr") < 500


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_with_a_formula_does_not_grow_with_the_table(tmp_path: Path) -> None:
    formula = "late ~ C(share) * distance + bs(`air time`, df=8) + center(exp(exposure)) + night"
    piece = make_table(250_000)
    peaks = []
    for pieces in (8, 20):  # 176 and 440 MB of rows of the design: more leaves than threads
        source = tmp_path / f"{pieces}.parquet"
        with pq.ParquetWriter(source, piece.schema) as sink:
            for _ in range(pieces):
                sink.write_table(piece)
        peaks.append(peak_megabytes(source, tmp_path / f"{pieces}.zarr", "formula", formula))
    assert peaks[1] < 600
    # 264 MB more in the design; the buffers of more threads fill with chance.
    assert peaks[1] - peaks[0] < 132, peaks


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_with_groups_does_not_grow_with_the_table(tmp_path: Path) -> None:
    formula = "late ~ distance + (1 | user)"
    piece, rng = make_table(250_000), np.random.default_rng(1)
    peaks = []
    for pieces in (20, 60):  # 150 and 450 MB of rows; most groups have a few rows, one a third
        source = tmp_path / f"{pieces}.parquet"
        user = pa.field("user", pa.int64())
        with pq.ParquetWriter(source, piece.schema.append(user)) as sink:
            for _ in range(pieces):
                users = rng.integers(0, 100_000 * pieces, 250_000) * (rng.random(250_000) < 0.67)
                sink.write_table(piece.append_column(user, pa.array(users)))
        peaks.append(peak_megabytes(source, tmp_path / f"{pieces}.zarr", "formula", formula))
    assert peaks[1] < 600
    assert peaks[1] - peaks[0] < 125, peaks
