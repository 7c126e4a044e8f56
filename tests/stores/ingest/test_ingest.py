from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from table_files import FEATURES, WRITERS, design, make_table, rows_of, write_csv, write_parquet

from streammc.stores import open_store
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.rows.row_blocks import whole

PLAIN: dict[str, Any] = {"response": "late", "features": FEATURES, "shuffle": False}


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_equal_numpy_exactly_from_every_format(kind: str, tmp_path: Path) -> None:
    table = make_table()
    source = WRITERS[kind](table, tmp_path / "table")
    report = ingest(source, tmp_path / "s.zarr", offset="exposure", weight="share", **PLAIN)
    found = rows_of(tmp_path / "s.zarr")
    assert np.array_equal(design(table, FEATURES, report["standardization"]), found["X"])
    assert np.array_equal(table["late"].to_numpy(), found["y"])
    assert np.array_equal(table["exposure"].to_numpy(), found["offset"])
    assert np.array_equal(table["share"].to_numpy(), found["weight"])
    assert ("float32", "uint8") == (found["X"].dtype.name, found["y"].dtype.name)


def test_the_moments_are_those_of_numpy(tmp_path: Path) -> None:
    table = make_table()
    report = ingest(write_csv(table, tmp_path / "t.csv"), tmp_path / "s.zarr", **PLAIN)
    columns = [np.asarray(table[name].to_numpy(), np.float64) for name in FEATURES]
    record = report["standardization"]
    assert record["mean"] == pytest.approx([0, *(c.mean() for c in columns)], rel=1e-14)
    assert record["scale"] == pytest.approx([1, *(c.std() for c in columns)], rel=1e-14)


def test_every_format_gives_the_same_store_with_shuffle(tmp_path: Path) -> None:
    table = make_table()
    rows = []
    for kind, write in WRITERS.items():
        source, store = write(table, tmp_path / kind), tmp_path / f"{kind}.zarr"
        ingest(source, store, response="late", seed=9)
        rows.append(rows_of(store))
    for other in rows[1:]:
        assert rows[0]["X"].tobytes() == other["X"].tobytes()
        assert rows[0]["y"].tobytes() == other["y"].tobytes()


def test_shuffling_permutes_whole_rows(tmp_path: Path) -> None:
    table = make_table()
    source = write_parquet(table, tmp_path / "t")
    for name, shuffled in (("plain", False), ("random", True)):
        ingest(source, tmp_path / name, **PLAIN | {"shuffle": shuffled}, offset="exposure")
    plain, random = rows_of(tmp_path / "plain"), rows_of(tmp_path / "random")
    lines = [
        np.column_stack([rows["X"].astype(np.float64), rows["y"], rows["offset"]])
        for rows in (plain, random)
    ]
    assert not np.array_equal(lines[0], lines[1])
    ordered = [matrix[np.lexsort(matrix.T)] for matrix in lines]
    assert np.array_equal(ordered[0], ordered[1])


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    source = write_parquet(make_table(), tmp_path / "t")
    seeds = {"a": 4, "b": 4, "c": 5}
    for name, seed in seeds.items():
        ingest(source, tmp_path / name, response="late", seed=seed)
    fingerprints = {name: open_store(tmp_path / name).fingerprint for name in seeds}
    assert fingerprints["a"] == fingerprints["b"] != fingerprints["c"]
    assert open_store(tmp_path / "c").attributes["shuffle_seed"] == 5


def test_buckets_on_disk_give_a_permutation_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streammc.stores.ingest.prepare.LEAF_BYTES", 4_000)
    table = make_table(5_000).append_column("id", pa.array(np.arange(5_000)))
    phases: set[str] = set()
    ingest(
        table,
        tmp_path / "s",
        features=["id"],
        standardize=False,
        progress=lambda done, total, phase: phases.add(phase),
    )
    ids = rows_of(tmp_path / "s")["X"][:, 1]
    assert np.array_equal(np.arange(5_000), np.sort(ids))
    assert abs(np.corrcoef(ids, np.arange(5_000))[0, 1]) < 0.1
    assert phases == {"scan", "shuffle", "write"}


def test_several_files_follow_one_another(tmp_path: Path) -> None:
    table = make_table(1_000)
    first = write_csv(table.slice(0, 400), tmp_path / "1.csv")
    second = write_csv(table.slice(400).select(table.column_names[::-1]), tmp_path / "2.csv")
    report = ingest([first, second], tmp_path / "s.zarr", **PLAIN)
    found = rows_of(tmp_path / "s.zarr")["X"]
    assert np.array_equal(design(table, FEATURES, report["standardization"]), found)
    assert [str(first), str(second)] == report["sources"]


def test_a_directory_of_files_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    table = make_table(1_000)
    write_parquet(table.slice(500), tmp_path / "parts" / "b.parquet")
    write_parquet(table.slice(0, 500), tmp_path / "parts" / "a.parquet")
    (tmp_path / "parts" / "_SUCCESS").touch()
    ingest(tmp_path / "parts", tmp_path / "s.zarr", **PLAIN)
    assert np.array_equal(table["late"].to_numpy(), rows_of(tmp_path / "s.zarr")["y"])


def test_default_features_are_all_other_columns(tmp_path: Path) -> None:
    report = ingest(
        make_table(50), tmp_path / "s", response="late", offset="exposure", weight="share"
    )
    assert ["Intercept", *FEATURES] == report["features"]
    assert np.all(rows_of(tmp_path / "s")["X"][:, 0] == 1)


def test_options_reach_the_store(tmp_path: Path) -> None:
    table = make_table(500)
    options = PLAIN | {"intercept": False, "standardize": False, "dtype": "float64"}
    report = ingest(table, tmp_path / "s", **options)
    expected = np.column_stack([np.asarray(table[name], np.float64) for name in FEATURES])
    assert np.array_equal(expected, rows_of(tmp_path / "s")["X"])
    assert (FEATURES, None, False) == tuple(
        report[key] for key in ("features", "standardization", "shuffle_seed")
    )


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0.0, 1.0, 255.0], "uint8"),
        ([0, 256], "int32"),
        ([-1, 1], "int32"),
        ([0, 2**40], "int64"),
        ([-0.0, 1.0], "uint8"),
        ([True, False], "uint8"),
        ([0.5, 1.0], "float32"),
        ([0.1, 1.0], "float64"),
        ([1e17, 1.0], "float64"),
    ],
)
def test_the_response_is_stored_exactly_in_the_smallest_type(
    values: list[Any], dtype: str, tmp_path: Path
) -> None:
    table = pa.table({"x": np.arange(len(values)), "y": values})
    ingest(table, tmp_path / "s", response="y", shuffle=False)
    found = rows_of(tmp_path / "s")["y"]
    assert dtype == found.dtype.name
    assert np.array_equal(np.asarray(values, np.float64), found.astype(np.float64))


def test_rows_with_missing_values_are_dropped_and_counted(tmp_path: Path) -> None:
    content = "a,b,y,w\n1,2,0,1\n,2,1,1\n3,NA,0,1\n4,5,1,\n7,3,1,2\n"
    (tmp_path / "t.csv").write_text(content)
    report = ingest(
        tmp_path / "t.csv",
        tmp_path / "s",
        response="y",
        weight="w",
        drop_missing=True,
        shuffle=False,
    )
    assert (2, 3) == (report["n_rows"], report["n_dropped"])
    assert [0, 4, 2.5] == report["standardization"]["mean"]
    assert [[1, -1, -1], [1, 1, 1]] == rows_of(tmp_path / "s")["X"].tolist()
    assert [0, 1] == rows_of(tmp_path / "s")["y"].tolist()


def test_missing_values_in_unused_columns_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y\n1,,0\n2,,1\n")
    report = ingest(tmp_path / "t.csv", tmp_path / "s", response="y", features=["a"])
    assert (2, 0) == (report["n_rows"], report["n_dropped"])


def test_a_constant_column_is_centred_with_a_warning(tmp_path: Path) -> None:
    table = pa.table({"a": [0.1] * 7, "b": np.arange(7), "y": np.arange(7) % 2})
    report = ingest(table, tmp_path / "s", response="y")
    assert np.all(rows_of(tmp_path / "s")["X"][:, 1] == 0)
    assert [1, 1, 2] == report["standardization"]["scale"]
    assert [True] == ["'a' is constant" in line for line in report["warnings"]]


def test_huge_values_are_standardised(tmp_path: Path) -> None:
    table = pa.table({"a": [1e300, -1e300, 0.0], "y": [0, 1, 0]})
    ingest(table, tmp_path / "s", response="y", shuffle=False)
    expected = np.float32(np.sqrt(1.5)) * np.array([1, -1, 0])
    assert rows_of(tmp_path / "s")["X"][:, 1] == pytest.approx(expected, rel=1e-6)


def test_a_column_with_few_digits_of_variation_warns(tmp_path: Path) -> None:
    values = 1e9 + 1e-3 * np.random.default_rng(1).normal(size=100)
    report = ingest(pa.table({"a": values}), tmp_path / "s")
    assert ["few digits" in line for line in report["warnings"]] == [True]


def test_the_report_is_json_and_names_the_store(tmp_path: Path) -> None:
    report = ingest(make_table(10_000), tmp_path / "s", response="late", chunk_rows=4_096)
    assert report == json.loads(json.dumps(report))
    store = open_store(tmp_path / "s")
    assert (10_000, 4_096, store.fingerprint) == tuple(
        report[key] for key in ("n_rows", "chunk_rows", "fingerprint")
    )


def test_progress_counts_rows_to_the_total(tmp_path: Path) -> None:
    seen: dict[str, list[tuple[int, int | None]]] = {}
    ingest(
        write_parquet(make_table(300_000), tmp_path / "t"),
        tmp_path / "s",
        response="late",
        progress=lambda done, total, phase: seen.setdefault(phase, []).append((done, total)),
    )
    assert {"scan", "write"} == set(seen)
    for steps in seen.values():
        assert steps == sorted(steps)
        assert (300_000, 300_000) == steps[-1]


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_table_in_memory_has_the_rows_of_its_store(shuffled: bool, tmp_path: Path) -> None:
    options = PLAIN | {"shuffle": shuffled, "offset": "exposure", "seed": 8}
    memory = from_table(make_table(), **options)
    store = from_table(make_table(), **options, path=tmp_path / "s")
    arrays = rows_of(tmp_path / "s")
    block = whole(memory.blocks()[0])
    assert np.array_equal(arrays["X"], block.X)
    assert np.array_equal(arrays["y"], block.y)
    assert np.array_equal(arrays["offset"], block.offset)
    assert dict(store.attributes) == dict(memory.attributes)


def test_a_pandas_index_is_no_feature(tmp_path: Path) -> None:
    frame = make_table(100).to_pandas().set_index("share")
    store = from_table(frame.reset_index(drop=True), response="late")
    with pytest.warns(UserWarning, match="not used, as an index: column 'share'"):
        indexed = from_table(frame, response="late")
    assert store.feature_names == indexed.feature_names
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.warns(UserWarning, match="'share'"):
        indexed = from_table(tmp_path / "t.parquet", response="late")
    assert store.feature_names == indexed.feature_names


def test_unnamed_pandas_index_of_a_filtered_frame_is_left_out_silently(tmp_path: Path) -> None:
    frame = make_table(100).to_pandas()
    filtered = frame[frame.index % 3 != 0]  # no range of equal steps, which Arrow keeps none of
    assert 66 == from_table(filtered, response="late").n_rows  # a warning would be an error
    filtered.to_parquet(tmp_path / "t.parquet")
    store = from_table(tmp_path / "t.parquet", response="late")
    assert "__index_level_0__" not in store.feature_names
    named = filtered.set_index("share", append=True)
    with pytest.warns(UserWarning, match="as an index: column 'share'$"):
        from_table(named, response="late")


def test_pandas_missing_values_are_missing() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 4.0], "y": [0, 1, 0]})
    with pytest.warns(UserWarning, match="left out: 1"):
        assert from_table(frame, response="y", drop_missing=True).n_rows == 2


def test_arrow_stream_that_can_be_read_once_is_ingested(tmp_path: Path) -> None:
    table = make_table()

    class Once:
        """An Arrow stream that is empty the second time."""

        def __init__(self) -> None:
            self._reader = table.to_reader(max_chunksize=333)

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self._reader.__arrow_c_stream__(requested_schema)

    ingest(table, tmp_path / "table", response="late")
    for name, source in (("reader", table.to_reader()), ("once", Once())):
        ingest(source, tmp_path / name, response="late")
        assert rows_of(tmp_path / "table")["X"].tobytes() == rows_of(tmp_path / name)["X"].tobytes()


def test_decimals_and_half_floats_are_numbers(tmp_path: Path) -> None:
    table = pa.table(
        {
            "b": pa.array(np.array([1, 2, 0.5], np.float16)),
            "c": pa.array([1, 2, 3], pa.decimal128(9, 2)),
            "d": pa.array([1, 2, 9], pa.uint64()),
        }
    )
    ingest(table, tmp_path / "s", standardize=False, intercept=False, shuffle=False)
    expected = [[1, 1, 1], [2, 2, 2], [0.5, 3, 9]]
    assert expected == rows_of(tmp_path / "s")["X"].tolist()


def test_real_claims_from_a_compressed_csv(data_folder: Path, tmp_path: Path) -> None:
    source = data_folder / "norauto" / "norauto.csv.gz"
    if not source.exists():
        pytest.skip("no norauto")
    frame = pd.read_csv(source)
    numbers = frame.select_dtypes("number").dropna(axis=1)
    report = ingest(
        source,
        tmp_path / "s",
        features=list(numbers.columns),
        shuffle=False,
        standardize=False,
        dtype="float64",
        intercept=False,
    )
    assert np.array_equal(numbers.to_numpy(np.float64), rows_of(tmp_path / "s")["X"])
    assert len(frame) == report["n_rows"]


def test_columns_of_a_regression_without_intercept_are_scaled_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = pa.table(
        {"y": rng.normal(size=300), "x": rng.normal(50.0, 5.0, 300), "one": [1.0] * 300}
    )
    words: dict[str, Any] = {"intercept": False, "shuffle": False, "dtype": "float64"}
    plain = ingest(table, tmp_path / "a", response="y", features=["x", "one"], **words)
    formula = ingest(
        table, tmp_path / "b", formula="y ~ 0 + x + one", shuffle=False, dtype="float64"
    )
    found = rows_of(tmp_path / "a")["X"]
    x = table["x"].to_numpy()
    np.testing.assert_allclose(found, np.c_[x / x.std(), np.ones(300)], rtol=1e-12)
    assert [0.0, 0.0] == plain["standardization"]["mean"]
    assert plain["standardization"] == formula["standardization"]


def test_columns_without_a_response_are_centred(tmp_path: Path) -> None:
    table = pa.table({"x": np.random.default_rng(1).normal(50.0, 5.0, 300)})
    found = ingest(table, tmp_path / "s", intercept=False)
    assert abs(found["standardization"]["mean"][0] - 50.0) < 1.0
