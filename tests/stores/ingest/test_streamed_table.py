"""A table that is only read in order: its rows, its draws, what it refuses."""

from __future__ import annotations

import gc
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammc
from streammc.errors import ConfigError, DataError, RefusedError, StreammcError
from streammc.protocols import Rows
from streammc.runs.job import run_job
from streammc.samplers import hmc_ecs, laplace, smh
from streammc.samplers.common.sampler import RunRequest
from streammc.stores.ingest import ingestion, streamed_table, table_blocks
from streammc.stores.ingest.ingest_options import IngestOptions
from streammc.stores.ingest.streamed_table import StreamedTable
from streammc.trace.run_directory import RunDirectory

N = 5000
FORMULA = "late ~ age + C(region)"
SIZES = {"draws": 500, "warmup": 200, "chains": 4, "seed": 1}


@pytest.fixture(autouse=True)
def nothing_fits(monkeypatch):
    monkeypatch.setattr(ingestion, "available_memory", lambda: 2000)
    monkeypatch.setattr(streamed_table, "_BLOCK_BYTES", 2**14)


@pytest.fixture
def columns():
    rng = np.random.default_rng(3)
    age, region = rng.normal(40.0, 10.0, N), rng.choice(["north", "south", "west"], N)
    late = rng.logistic(size=N) < 0.03 * (age - 30.0) + 0.5 * (region == "west")
    return {"age": age, "region": region, "late": late.astype(int)}


@pytest.fixture
def parquet(columns, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


def streamed(table, **options):
    made = ingestion.rows_of(table, IngestOptions(**options), None, overwrite=False)
    assert isinstance(made, StreamedTable)
    return made


def gathered(data, rows):
    out = Rows(np.empty((len(rows), data.n_features)), *(np.empty(len(rows)) for _ in range(3)))
    data.rows().gather(np.asarray(rows, np.int64), 1, out)
    return out


def draws(tree):
    return tree["sampled_posterior"]["beta"].values


def test_rows_are_those_of_the_table_in_its_order(parquet):
    data = streamed(parquet, formula=FORMULA)
    kept = streammc.from_table(parquet, formula=FORMULA, shuffle=False)
    rows = np.random.default_rng(1).integers(-1, N + 2, 400)
    for own, other in zip(gathered(data, rows), gathered(kept, rows), strict=True):
        assert np.array_equal(own, other)
    assert data.n_rows == N
    assert data.feature_names == kept.feature_names
    own, other = (streammc.control_variates(x, streammc.models.logistic()) for x in (data, kept))
    assert own.theta_star == pytest.approx(other.theta_star, abs=1e-9)
    assert own.hessian == pytest.approx(other.hessian, rel=1e-12)


def test_a_table_without_a_sample_reads_the_rows_that_are_asked_for(parquet):
    options = IngestOptions(formula=FORMULA)
    data = ingestion.rows_of(parquet, options, None, overwrite=False, sampled=False)
    before, rows = data.reads, [3, N - 1, -1]
    for own, other in zip(
        gathered(data, rows), gathered(streamed(parquet, formula=FORMULA), rows), strict=True
    ):
        assert np.array_equal(own, other)
    assert data.reads == before + 1


@pytest.mark.filterwarnings("ignore:rows with missing values")
@pytest.mark.parametrize("case", ["codes", "missing", "weights"])
def test_codes_missing_values_and_weights(case, columns, tmp_path):
    rng = np.random.default_rng(5)
    options = {"formula": FORMULA}
    if case == "codes":
        columns["shop"] = rng.integers(0, 90, N).astype(str)
        options = {"formula": "late ~ age + C(shop)", "codes_above": 10}
    if case == "missing":
        columns["age"] = np.where(rng.random(N) < 0.1, np.nan, columns["age"])
        options |= {"drop_missing": True}
    if case == "weights":
        columns["times"] = rng.integers(0, 4, N)
        options |= {"weight": "times"}
    data = streamed(columns, **options)
    kept = streammc.from_table(columns, **options, shuffle=False)
    rows = np.arange(0, kept.n_rows, 7)
    for own, other in zip(gathered(data, rows), gathered(kept, rows), strict=True):
        assert np.array_equal(own, other)
    model = streammc.models.logistic()
    own, other = (streammc.control_variates(x, model) for x in (data, kept))
    assert own.theta_star == pytest.approx(other.theta_star, abs=1e-8)


def test_draws_are_those_of_the_posterior_and_no_thread_changes_a_bit(parquet, columns):
    tree = streammc.fit(parquet, FORMULA, "logistic", **SIZES)
    for scheduler in ("sync", 1, 8):
        again = streammc.fit(parquet, FORMULA, "logistic", scheduler=scheduler, **SIZES)
        assert np.array_equal(draws(again), draws(tree))
    kept = streammc.fit(columns, FORMULA, "logistic", **SIZES)
    assert np.array_equal(draws(kept), draws(tree))
    data = streammc.from_table(columns, formula=FORMULA)
    reference = streammc.sample(
        data, streammc.models.logistic(), sampler=streammc.samplers.hmc(), **SIZES
    )
    for j in range(4):
        own, other = draws(tree)[..., j], draws(reference)[..., j]
        error = np.hypot(*(x.std() / np.sqrt(1000.0) for x in (own, other)))
        assert abs(own.mean() - other.mean()) < 4.5 * error
        assert abs(own.std() / other.std() - 1.0) < 4.5 / np.sqrt(1000.0)


def test_an_interrupted_run_goes_on_with_the_same_draws(parquet, tmp_path):
    whole = streammc.fit(parquet, FORMULA, "logistic", **SIZES)
    finished = []
    for polls in (12, 10**9):
        left = iter(range(polls))
        data = streamed(parquet, formula=FORMULA)
        request = RunRequest(
            data, streammc.models.logistic(), None, path=tmp_path / "run", batch_iterations=32,
            interrupted=lambda left=left: next(left, None) is None, **SIZES,
        )  # fmt: skip
        finished.append(run_job(request).finished)
    assert finished == [False, True]
    assert np.array_equal(RunDirectory.open(tmp_path / "run").draws_matrix(), draws(whole))


@pytest.mark.parametrize("rows", ["all in memory", "a sample"])
def test_reads_of_a_table(rows, parquet, monkeypatch):
    """The first keeps the sample, the last draws the pool; each pass keeps its extreme rows."""
    if rows == "a sample":
        monkeypatch.setattr(streamed_table, "SUBSET_ROWS", 1500)
        monkeypatch.setattr("streammc.likelihood.data_views.SUBSET_ROWS", 1500)
    model, found = streammc.models.logistic(), []
    for least in (10**9, 1):
        monkeypatch.setattr(ingestion, "WATCHED_ROWS", least)
        data = streamed(parquet, formula=FORMULA)
        found.append(draws(streammc.sample(data, model, **SIZES)))
        passes = {"all in memory": 1, "a sample": 2}[rows]
        assert data.reads == passes + (2 if least == 10**9 else 1)
    assert np.array_equal(*found)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a read of 341 rows, those of a pass of a part of them, and units of two or more."""
    monkeypatch.setattr(table_blocks, "_BLOCK_BYTES", 2**13)
    monkeypatch.setattr(streamed_table, "_BLOCK_BYTES", 2**12)
    monkeypatch.setattr(streamed_table, "_UNIT_ROWS", 600)


@pytest.mark.parametrize("case", ["one file", "many small blocks", "folders"])
def test_threads_and_workers_read_parts(
    case, parquet, columns, tmp_path, small_blocks, monkeypatch
):
    source, formula = parquet, FORMULA
    if case == "many small blocks":  # 64 of 5 or 6 rows in a block of the read
        monkeypatch.setattr(streamed_table, "_BLOCK_BYTES", 2**7)
    if case == "folders":
        source, formula = tmp_path / "parts", "late ~ age + C(year)"
        for year, rows in ((2001, slice(0, 1900)), (2002, slice(1900, None))):
            (source / f"year={year}").mkdir(parents=True)
            part = pa.table({name: columns[name][rows] for name in ("age", "late")})
            pq.write_table(part, source / f"year={year}" / "t.parquet", row_group_size=700)
    one = streamed(source, formula=formula)
    raw_rows = one._blocks.reader.source.raw_rows
    of_a_read = [block for block in one.blocks() if block.start < raw_rows]
    assert len(of_a_read) == {"many small blocks": 64}.get(case, 2)
    assert 4 < len(one._blocks.units(16)) < 10
    tree = streammc.fit(source, formula, "logistic", scheduler="sync", **SIZES)
    for scheduler in (1, 2, 8, "local:2"):
        again = streammc.fit(source, formula, "logistic", scheduler=scheduler, **SIZES)
        assert np.array_equal(draws(again), draws(tree)), scheduler


def test_a_part_that_changed_is_found_by_who_reads_it(parquet, columns, small_blocks, monkeypatch):
    data = streamed(parquet, formula=FORMULA)
    columns["age"][4017] += 1.0
    pq.write_table(pa.table(columns), parquet, row_group_size=700)
    monkeypatch.setattr(type(data._blocks.reader.table), "check_unchanged", lambda self: None)
    for scheduler in ("sync", 2):
        with pytest.raises(DataError, match=r"expected the rows of the first read"):
            streammc.sample(data, streammc.models.logistic(), scheduler=scheduler, **SIZES)


def test_texts_that_change_places_are_another_table(columns):
    """Means, scales and codes are the same: the first text has the code 0, the second 1."""
    halves = np.array(["north", "south"] * (N // 2))
    one, two = (
        streamed({**columns, "region": region}, formula="late ~ age + I(region == 'north')")
        for region in (halves, np.where(halves == "north", "south", "north"))
    )
    assert one._blocks.reader.checksums == two._blocks.reader.checksums
    assert one.fingerprint != two.fingerprint


def test_a_table_that_changes_between_reads_is_an_error(parquet, columns):
    data = streamed(parquet, formula=FORMULA)
    columns["age"][17] += 1.0
    pq.write_table(pa.table(columns), parquet, row_group_size=700)
    with pytest.raises(DataError, match=r"expected .*t\.parquet' to stay as it is"):
        streammc.sample(data, streammc.models.logistic(), **SIZES)


def touched(path):
    os.utime(path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def removed(path):
    path.unlink()


def another_value(path):
    """Another number in place of one, with the size and the time of before."""
    before, table = path.stat(), pq.read_table(path)
    other = table.set_column(0, "age", pa.array(table["age"].to_numpy() + 1.0))
    pq.write_table(other, path, **PLAIN)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}
CHANGES = {
    touched: r"expected .*/b\.parquet' to stay as it is .* another modification time",
    cut: r"expected .*/b\.parquet' to stay as it is .* another size",
    removed: r"expected a file at .*/b\.parquet', found nothing",
    another_value: r"expected the rows of the first read of .*, found others",
}


@pytest.mark.parametrize("named", ["pattern", "folders"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_several_that_changes_between_reads_is_an_error(change, named, columns, tmp_path):
    whole = pa.table(columns)
    for part, name in enumerate("abc"):
        folder = tmp_path / f"part={name}" if named == "folders" else tmp_path
        folder.mkdir(exist_ok=True)
        rows = whole.slice(part * N // 3, N // 3)
        pq.write_table(rows, folder / f"{name}.parquet", **PLAIN)
    table = tmp_path if named == "folders" else tmp_path / "*.parquet"
    data = streamed(table, formula=FORMULA)
    change(next(tmp_path.rglob("b.parquet")))
    with pytest.raises(StreammcError, match=CHANGES[change]):
        streammc.sample(data, streammc.models.logistic(), **SIZES)


def test_rows_that_change_without_a_trace_are_found(columns):
    data = streamed(columns, formula=FORMULA)
    columns["age"][17] += 1.0
    with pytest.raises(DataError, match="expected the rows of the first read"):
        streammc.sample(data, streammc.models.logistic(), **SIZES)


def test_what_needs_rows_at_random_names_the_store(parquet, columns, monkeypatch):
    data, model = streamed(parquet, formula=FORMULA), streammc.models.logistic()
    with pytest.raises(RefusedError, match=r"found hmc-ecs, .* --store NAME\.zarr"):
        streammc.sample(data, model, sampler=hmc_ecs(), **SIZES)
    with pytest.raises(RefusedError, match=r"one linear predictor .* --store NAME\.zarr"):
        streammc.fit(parquet, FORMULA, "negative-binomial", **SIZES)
    with pytest.raises(ConfigError, match=r"found groups, .* --store NAME\.zarr"):
        streammc.fit(parquet, "late ~ age + (1 | region)", "logistic", **SIZES)
    with pytest.raises(ConfigError, match=r"Parquet files .* --store NAME\.zarr"):
        streammc.fit(columns, FORMULA, "logistic", scheduler="local:2", **SIZES)
    monkeypatch.setattr(streamed_table, "SUBSET_ROWS", 100)
    monkeypatch.setattr(streamed_table, "_MOST_GATHERED", 200)
    few = streamed(parquet, formula=FORMULA)
    gathered(few, np.arange(90))
    with pytest.raises(ConfigError, match=r"needs no rows out of their order, such as smh"):
        gathered(few, np.arange(90, 300))


def test_a_plan_of_too_many_rows_is_refused_unless_named(parquet, monkeypatch):
    monkeypatch.setattr("streammc.samplers.factorised.kernel._FEW_ROWS", 0)
    monkeypatch.setattr("streammc.samplers.factorised.kernel._SHARE", 1e-5)
    with pytest.raises(RefusedError, match=r"of 5,000, .* --store NAME\.zarr"):
        streammc.fit(parquet, FORMULA, "logistic", **SIZES)
    assert draws(streammc.fit(parquet, FORMULA, "logistic", sampler="smh", **SIZES)).size


def test_other_samplers_that_make_passes_alone_do(parquet, columns):
    model = streammc.models.logistic()
    exact = streammc.sample(streamed(parquet, formula=FORMULA), model, sampler=smh(), **SIZES)
    weighed = streammc.sample(streamed(parquet, formula=FORMULA), model, sampler=laplace(), **SIZES)
    assert draws(weighed).mean((0, 1)) == pytest.approx(draws(exact).mean((0, 1)), abs=0.02)
    tree = streammc.fit(parquet, "age ~ C(region)", "gaussian", **SIZES)
    assert '"sampler": "hmc"' in tree.attrs["summary"]


def test_a_sampler_of_passes_alone_reads_large_tables_in_order(parquet, monkeypatch):
    only_in_order = streammc.fit(parquet, FORMULA, "logistic", **SIZES)
    monkeypatch.setattr(ingestion, "available_memory", lambda: 10**10)
    monkeypatch.setattr(ingestion, "KEPT_BYTES", 1000)
    by_name = streammc.fit(parquet, FORMULA, "logistic", sampler="smh", **SIZES)
    assert np.array_equal(draws(by_name), draws(only_in_order))
    kept = streammc.fit(parquet, FORMULA, "logistic", **SIZES)
    assert '"sampler": "smh"' not in kept.attrs["summary"]
    monkeypatch.setattr(ingestion, "KEPT_BYTES", 10**9)
    shuffled = streammc.fit(parquet, FORMULA, "logistic", sampler="smh", **SIZES)
    assert not np.array_equal(draws(shuffled), draws(by_name))


def test_temporary_files_are_gone_with_the_data_set(columns, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    data = streamed(path, formula=FORMULA)
    assert len(os.listdir(tmp_path)) == 2
    assert len(gathered(data, np.arange(10)).y) == 10
    del data
    gc.collect()
    assert os.listdir(tmp_path) == ["t.csv"]
