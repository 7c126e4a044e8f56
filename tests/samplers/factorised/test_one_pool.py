"""The rows of ``smh``, read at once or not, by threads or workers, killed or not: one digest."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pool_job
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clusters import cluster
from pool_job import FORMULA, SETTINGS, job, opened, short_sheets

import streammc
from streammc.samplers.factorised import pool
from streammc.trace.run_directory import RunDirectory

ROWS = 30_000
KINDS = ("store", "table")
KILLS = ("first read", "commit", "first read", "later read", "commit")
"""Of one run, one after the other."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a store and a Parquet file of the same rows, each of several blocks."""
    folder = tmp_path_factory.mktemp("pool")
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, ROWS))
    table = {"a": a, "b": b, "y": (rng.logistic(size=ROWS) < a - 0.5 * b).astype(int)}
    pq.write_table(pa.table(table), folder / "t.parquet", row_group_size=3000)
    streammc.ingest(table, folder / "s.zarr", formula=FORMULA, chunk_rows=4096)
    return {"store": str(folder / "s.zarr"), "table": str(folder / "t.parquet")}


@pytest.fixture(scope="module")
def wholes(sources, tmp_path_factory):
    """Return the digests of runs by one thread, for which each read filled a single sheet."""

    def made(kind):
        filled, fill = [], pool.Pool._fill

        def counted(self, first, read):
            filled.append(first)
            return fill(self, first, read)

        with pytest.MonkeyPatch.context() as patched:
            short_sheets(patched)
            patched.setattr(pool.Pool, "_fill", counted)
            data = opened(kind, sources[kind], patched)
            run = job(data, tmp_path_factory.mktemp("whole") / "run", scheduler="sync")
        assert max(filled) > pool_job.LATER
        return run.digest()

    return {kind: made(kind) for kind in KINDS}


@pytest.mark.trust(12)
@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_the_sheets_of_a_read_change_no_bit(
    kind, wholes, sources, tmp_path, monkeypatch, record_property
):
    data = opened(kind, sources[kind], monkeypatch)
    for sheets, threads in ((1, 8), (3, 2), (100, 1)):
        with monkeypatch.context() as patched:
            short_sheets(patched, sheets)
            run = job(data, tmp_path / str(sheets), scheduler=threads, threads=threads)
        assert wholes[kind] == run.digest()
    record_property("figure", f"smh, {kind}: 1, 2, 8 threads, 1, 3, 100 sheets a read: one digest")
    monkeypatch.setitem(SETTINGS, "seed", 4)
    with monkeypatch.context() as patched:
        short_sheets(patched)
        assert wholes[kind] != job(data, tmp_path / "other").digest()
    record_property("caught", "draws of another seed")


def test_a_read_of_a_table_in_order_ends_when_the_run_is_interrupted(
    wholes, sources, tmp_path, monkeypatch
):
    short_sheets(monkeypatch)
    data, read, begun = opened("table", sources["table"], monkeypatch), pool.PoolTask.map, []

    def later(task, block):
        if task.first > pool_job.LATER:
            begun.append(block.index)
        return read(task, block)

    with monkeypatch.context() as patched:
        patched.setattr(pool.PoolTask, "map", later)
        until = {"interrupted": lambda: bool(begun), "progress": lambda *_: None}
        run = job(data, tmp_path / "run", scheduler="sync", **until)
    blocks = -(-ROWS // data.block_rows())
    assert 0 < len(begun) < blocks // 2
    assert 0 < run.committed_draws < SETTINGS["draws"]
    assert wholes["table"] == job(data, tmp_path / "run").digest()


@pytest.mark.trust(12)
@pytest.mark.slow
def test_two_workers_change_no_bit(wholes, sources, tmp_path, monkeypatch, record_property):
    pytest.importorskip("distributed")
    short_sheets(monkeypatch)
    with cluster(tmp_path / "cluster") as made:
        for kind, place in (("store", "here"), ("store", "workers"), ("table", "here")):
            data = opened(kind, sources[kind], monkeypatch)
            run = job(data, tmp_path / f"{kind}-{place}", scheduler=made.address, chains_on=place)
            assert wholes[kind] == run.digest()
    record_property("figure", "smh: reads of a store and of a table, and chains: two workers")


@pytest.mark.trust(17)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_in_reads_and_between_them_ends_with_its_draws(
    kind, wholes, sources, tmp_path, monkeypatch, record_property
):
    path, committed = tmp_path / "run", [0]
    for where in KILLS:
        words = [sys.executable, pool_job.__file__, kind, sources[kind], path, where]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert -signal.SIGKILL == done.returncode, done.stderr
        held = RunDirectory.exists(path)
        committed.append(RunDirectory.open(path).committed_draws if held else 0)
    first, after_commit, again, later, last = committed[1:]
    assert 0 == first < after_commit == again < later < last < SETTINGS["draws"]
    short_sheets(monkeypatch)
    assert wholes[kind] == job(opened(kind, sources[kind], monkeypatch), path).digest()
    record_property("figure", f"smh, {kind}: {len(KILLS)} of {len(KILLS)} kills, same digest")
