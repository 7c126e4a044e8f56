"""One value is one level, whatever type, format or spelling a file gives it."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from table_files import write_csv, write_parquet

from streammc.errors import DataError
from streammc.stores.ingest.column_values import iso_text, iso_word
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.ingest.new_rows import encode_rows

NOON = datetime.datetime(2024, 1, 10, 12, 30, tzinfo=datetime.UTC)
DAYS = [datetime.datetime(2024, 1, 10, 12, 30), datetime.datetime(2024, 1, 11)]


def levels(*columns: Any, formula: str = "y ~ C(g)", **options: Any) -> list[Any]:
    """Return the levels of a column that comes in parts of several types."""
    parts = [pa.table({"g": each, "y": np.arange(len(each)) % 2}) for each in columns]
    state = from_table(parts, formula=formula, **options).attributes["formula"]["states"]
    return list(state["C(g)"]["levels"])


NUMBERS = {
    "float64": pa.array([7.0, 0.1]),
    "float32": pa.array([7.0, 0.1], pa.float32()),
    "decimal": pa.array([Decimal("7.00"), Decimal("0.10")]),
    "categories": pa.array([7.0, 0.1]).dictionary_encode(),
}


@pytest.mark.parametrize("pair", [*permutations(NUMBERS, 2)])
def test_a_number_is_one_level_in_every_type(pair: tuple[str, str]) -> None:
    assert [0.1, 7] == levels(*(NUMBERS[kind] for kind in pair))


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("text", [pa.string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
def test_a_number_is_the_level_of_its_text_in_another_file(kind: str, text: Any) -> None:
    found = levels(NUMBERS[kind], pa.array(["7", "0.1", "x"]).cast(text))
    categories = kind == "categories" and pa.types.is_dictionary(text)
    assert (["7", "0.1", "x"] if categories else ["0.1", "7", "x"]) == found


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_small_number_is_one_level_of_digits_without_an_exponent(order: tuple[int, ...]) -> None:
    decimals = pa.array([Decimal("0.00001"), Decimal("0.50000")])
    parts = [pa.array([1e-5, 0.5]), decimals, pa.array(["0.00001", "a"])]
    assert ["0.00001", "0.5", "a"] == levels(*(parts[k] for k in order))
    parts[2] = pa.array(["1e-05", "a"])
    with pytest.raises(DataError, match=r"expected one way of writing .*'1e-05'"):
        levels(*(parts[k] for k in order))


@pytest.mark.parametrize("formula", ["y ~ C(g)", "y ~ 1 + (1 | g)"])
def test_numbers_that_pandas_writes_as_decimals_are_the_same_in_csv_files(
    tmp_path: Path, formula: str
) -> None:
    texts = {"a.csv": ["7.0", "8.0", "2.50"], "b.csv": ["7", "9", "8"], "c.csv": ["7", "2.5", "x7"]}
    for name, each in texts.items():
        lines = [f"{text},{k % 2}" for k, text in enumerate(each)]
        (tmp_path / name).write_text("\n".join(["g,y", *lines, ""]))
    for names, expected in (("ab", {"7", "8", "2.5", "9"}), ("abc", {"7", "8", "2.5", "9", "x7"})):
        store = from_table([tmp_path / f"{name}.csv" for name in names], formula=formula)
        if store.groups is None:
            found = map(str, store.attributes["formula"]["states"]["C(g)"]["levels"])
            assert sorted(expected) == sorted(found)
        else:
            assert {text.encode() for text in expected} == set(store.row_groups().tolist())


def test_codes_with_zeros_are_the_same_in_csv_files_with_and_without_letters(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("g,y\n01,0\n1,1\n")
    (tmp_path / "b.csv").write_text("g,y\n01,0\nx7,1\n")
    store = from_table([tmp_path / "a.csv", tmp_path / "b.csv"], formula="y ~ C(g)")
    assert ["01", "1", "x7"] == store.attributes["formula"]["states"]["C(g)"]["levels"]


def test_missing_numbers_beside_text_are_missing() -> None:
    with pytest.raises(DataError, match="found missing values in 1 row"):
        levels(pa.array([7.0, np.nan]), pa.array(["7", "x"]))
    with pytest.warns(UserWarning, match="left out: 1"):
        found = levels(pa.array([7.0, np.nan]), pa.array(["7", "x"]), drop_missing=True)
    assert ["7", "x"] == found


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (pa.array([7]), "07"),
        (pa.array([7.0]), "7.0"),
        (pa.array([7]), " 7"),
        (pa.array([True]), "true"),
        (pa.array([DAYS[0]]), "2024-01-10T12:30Z"),
        (pa.array([NOON]), "2024-01-10 12:30"),
        (pa.array([DAYS[0].date()]), "2024-01-10T00:00:00+02:00"),
    ],
)
def test_a_text_that_may_be_a_value_of_another_file_is_refused(typed: Any, text: str) -> None:
    with pytest.raises(DataError, match="expected one way of writing each value of column 'g'"):
        levels(typed, pa.array([text]))
    assert 2 == len(levels(typed, pa.array(["another"])))


@pytest.mark.parametrize("zones", [("UTC", "Europe/Berlin"), ("Asia/Kolkata", "-03:30")])
@pytest.mark.parametrize("units", [("s", "ns"), ("ms", "us")])
def test_a_moment_is_one_level_in_every_time_zone(
    zones: tuple[str, str], units: tuple[str, str]
) -> None:
    types = [pa.timestamp(unit, zone) for unit, zone in zip(units, zones, strict=True)]
    one, other = ([NOON + k * datetime.timedelta(hours=h) for h in range(3)] for k in (1, 12))
    found = levels(pa.array(one, types[0]), pa.array(other, types[1]))
    moments = sorted({*one, *other})
    assert [f"{each:%Y-%m-%d %H:%M:%S}Z" for each in moments] == found


def test_moments_with_and_without_a_zone_are_refused() -> None:
    with pytest.raises(DataError, match="'g' with a time zone in every source or in none"):
        levels(pa.array([NOON]), pa.array([DAYS[0]]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-10T12:30:00", "2024-01-10 12:30:00"),
        ("2024-01-10 12:30", "2024-01-10 12:30:00"),
        ("2024-01-10T12", "2024-01-10 12:00:00"),
        ("2024-01-10T00:00:00.000", "2024-01-10"),
        ("2024-01-10 12:30:00.250", "2024-01-10 12:30:00.25"),
        ("2024-01-10T23:30:00-02:00", "2024-01-11 01:30:00Z"),
        ("2024-01-10T00:00:00Z", "2024-01-10 00:00:00Z"),
        ("2024-03-01T00:15+0545", "2024-02-29 18:30:00Z"),
        ("12:30:05.250000", "12:30:05.25"),
        ("12:30:00.000000000", "12:30:00"),
        *((each, each) for each in ("2024-01-10", "2024-13-10 12:30", "12:30", "10.1.2024", "")),
    ],
)
def test_texts_of_moments_are_written_in_one_way(text: str, expected: str) -> None:
    assert expected == iso_word(text)
    for type_ in (pa.string(), pa.large_string(), pa.binary()):
        array = pa.array([text, None, "other"]).cast(type_)
        wanted = pa.array([expected, None, "other"]).cast(type_)
        assert wanted.equals(iso_text(array))
        assert wanted.equals(iso_text(array.dictionary_encode()).dictionary_decode())


def moments(zone: str | None) -> pa.Table:
    """Return a table of a few moments, with a zone or without."""
    at = [datetime.datetime(2024, 1, day, 12 * (day % 2), 30 * (day % 2)) for day in range(1, 6)]
    if zone is not None:
        at = [each.replace(tzinfo=datetime.UTC) for each in at]
    column = pa.array(at * 4, pa.timestamp("us", zone))
    rng = np.random.default_rng(1)
    return pa.table({"x": rng.normal(size=20), "g": column, "y": np.arange(20) % 2})


def spark_csv(table: pa.Table, path: Path) -> Path:
    """Write a CSV file with T between date and time, as Spark and pandas.isoformat do."""
    frame = table.to_pandas()
    frame["g"] = [each.isoformat() for each in frame["g"]]
    frame.to_csv(path, index=False)
    return path


def write_feather(table: pa.Table, path: Path) -> Path:
    feather.write_feather(table, path)
    return path


FORMATS: dict[str, Any] = {
    "csv": write_csv,
    "csv with T": spark_csv,
    "parquet": write_parquet,
    "feather": write_feather,
    "frame": lambda table, path: table.to_pandas(),
    "text": lambda table, path: table.to_pandas().assign(
        g=lambda frame: [str(each) for each in frame["g"]]
    ),
}


ZONES = [None, "UTC", "America/New_York"]


@pytest.mark.parametrize(
    ("pair", "zone"),
    [
        ((one, two), ZONES[(i + j + (i > j)) % 3])  # every format in every zone
        for i, one in enumerate(FORMATS)
        for j, two in enumerate(FORMATS)
        if one != two and "csv" in one + two
    ],
)
def test_moments_of_new_rows_are_known_in_every_format(
    tmp_path: Path, pair: tuple[str, str], zone: str | None
) -> None:
    first, second = (FORMATS[name](moments(zone), tmp_path / name) for name in pair)
    old = from_table(first, formula="y ~ x + C(g)", shuffle=False)
    new = from_table(second, like=old)
    assert old.rows().arrays[0].tolist() == new.rows().arrays[0].tolist()
    (encoded,) = encode_rows(old.attributes, second)
    np.testing.assert_array_equal(old.rows().arrays[0], encoded.X.astype(np.float32))


@pytest.mark.parametrize("pair", [*permutations(("csv", "csv with T", "parquet", "text"), 2)])
def test_moments_are_the_same_groups_in_every_format(tmp_path: Path, pair: tuple[str, str]) -> None:
    first, second = (FORMATS[name](moments("UTC"), tmp_path / name) for name in pair)
    old = from_table(first, formula="y ~ x + (1 | g)")
    new = from_table(second, like=old)
    assert set(old.row_groups().tolist()) == set(new.row_groups().tolist())


def test_a_formula_may_write_a_moment_in_any_way() -> None:
    table = moments(None)
    options = {"shuffle": False, "standardize": False}
    text = "2024-01-01T12:30"
    X = from_table(table, formula=f"y ~ I(g == '{text}')", **options).rows().arrays[0]
    assert 4 == X[:, 1].sum()
    formula = f"y ~ C(g, contr.treatment('{text}'))"
    names = from_table(table, formula=formula, **options).feature_names
    assert not any("01-01" in name.split("[T.")[1] for name in names[1:])


def test_times_of_day_of_a_csv_are_those_of_a_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g,y\n12:30,0\n08:00,1\n")
    old = from_table(tmp_path / "t.csv", formula="y ~ C(g)", shuffle=False)
    times = pa.array([datetime.time(12, 30), datetime.time(8)], pa.time32("s"))
    new = from_table(pa.table({"g": times, "y": [0, 1]}), like=old)
    assert old.rows().arrays[0].tolist() == new.rows().arrays[0].tolist()


def test_a_store_of_an_earlier_version_has_the_levels_that_were_written() -> None:
    table = moments(None)
    store = from_table(table, formula="y ~ C(g)", shuffle=False)
    state = store.attributes["formula"]["states"]["C(g)"]
    for key in ("levels", "reference"):
        before = state[key]
        each = [word.replace(" ", "T") for word in ([before] if key == "reference" else before)]
        state[key] = each[0] if key == "reference" else each
    new = from_table(table, like=store)
    assert store.rows().arrays[0].tolist() == new.rows().arrays[0].tolist()


def test_groups_of_folders_are_those_of_text_with_zeros(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    parts = []
    for month in range(8, 12):
        folder = tmp_path / "t" / f"month={month:02}"
        folder.mkdir(parents=True)
        part = pd.DataFrame({"x": rng.normal(size=9), "y": rng.integers(0, 2, 9)})
        part.to_parquet(folder / "a.parquet")
        parts.append(part.assign(month=f"{month:02}"))
    text = pd.concat(parts)
    from streammc.prediction.row_effects import UNKNOWN, LabelIndex

    for first, second in ((tmp_path / "t", text), (text, tmp_path / "t")):
        old = from_table(first, formula="y ~ x + (1 | month)")
        found = LabelIndex(old.groups).find(from_table(second, like=old).row_groups())
        assert UNKNOWN not in found
        assert 4 == len(set(found.tolist()))


def test_ids_and_groups_of_csv_files_in_folders_are_read(tmp_path: Path) -> None:
    for month in ("01", "02"):
        folder = tmp_path / "t" / f"month={month}"
        folder.mkdir(parents=True)
        lines = [f"{k},{'07' if k % 2 else 8},{month}{k},{k % 2}" for k in range(4)]
        (folder / "a.csv").write_text("\n".join(["x,g,id,y", *lines, ""]))
    store = from_table(tmp_path / "t", formula="y ~ x + (1 | g)", row_id="id")
    assert {b"07", b"8"} == set(store.row_groups().tolist())
    assert {f"0{m}{k}".encode() for m in (1, 2) for k in range(4)} == set(store.row_ids().tolist())
    report = ingest(tmp_path / "t", tmp_path / "s.zarr", response="y", row_id="month")
    assert "month" == report["row_id"]


@pytest.mark.parametrize("missing", [[], [None]])
def test_categories_of_truth_values_are_levels_of_truth_values(missing: list[None]) -> None:
    truths = pa.array([True, False, *missing])
    options = {"drop_missing": True} if missing else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = levels(truths, truths.dictionary_encode(), **options)
        alone = levels(truths.dictionary_encode(), **options)
    assert "[False, True]" == str(both)
    assert "[True, False]" == str(alone)  # categories keep their order
