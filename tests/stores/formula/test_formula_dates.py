"""Columns of dates: a factor where the formula says C(), and refused elsewhere."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from table_files import write_parquet

from streammc.errors import ConfigError, DataError
from streammc.stores.ingest.column_values import iso_text
from streammc.stores.ingest.ingestion import from_table

DAYS = ["2024-02-29", "2023-12-31", "2024-01-10", "2023-12-31"]
LEVELS = ["2023-12-31", "2024-01-10", "2024-02-29"]
SOURCES = ("csv", "parquet", "text", "datetime")
ADVICE = (
    "found dates.*: leave it out .--features, or not in the formula., or take numbers of it in a "
    r"formula, days\(day\), .* or hour\(day\), or a factor, C\(day\)"
)


@pytest.fixture(params=SOURCES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    frame = pd.DataFrame({"y": [0, 1, 1, 0], "x": [0.5, 1.5, 3.0, 2.0], "day": DAYS})
    if request.param == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path / "t.csv"
    if request.param == "parquet":
        days = pa.array([datetime.date.fromisoformat(day) for day in DAYS])
        return write_parquet(pa.table({"y": [0, 1, 1, 0], "day": days}), tmp_path / "t")
    return frame.assign(day=pd.to_datetime(frame["day"])) if request.param == "datetime" else frame


def test_dates_are_a_factor_with_iso_levels_in_order(table: Any) -> None:
    store = from_table(table, formula="y ~ C(day)", standardize=False, shuffle=False)
    states = store.attributes["formula"]["states"]
    assert {"levels": LEVELS, "reference": LEVELS[0]} == states["C(day)"]
    assert [[0, 1], [0, 0], [1, 0], [0, 0]] == store.rows().arrays[0][:, 1:].tolist()


def test_dates_are_compared_with_iso_text(table: Any) -> None:
    formula = "y ~ I(day == '2023-12-31')"
    store = from_table(table, formula=formula, standardize=False, shuffle=False)
    assert [0, 1, 0, 1] == store.rows().arrays[0][:, 1].tolist()


def test_levels_of_dates_are_used_again_for_new_rows(table: Any) -> None:
    store = from_table(table, formula="y ~ C(day)", shuffle=False)
    again = from_table(pd.DataFrame({"y": [1] * 4, "day": DAYS[::-1]}), like=store)
    assert store.rows().arrays[0][::-1].tolist() == again.rows().arrays[0].tolist()


@pytest.mark.parametrize(
    "options", [{"response": "y", "features": ["day"]}, {"formula": "y~log(day)"}]
)
def test_dates_where_numbers_are_needed_are_refused_with_what_works(
    table: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(DataError, match=ADVICE):
        from_table(table, **options)


def test_dates_as_response_or_weight_are_refused_without_advice_for_features(table: Any) -> None:
    for role in ("response", "weight"):
        with pytest.raises(DataError, match=r"found dates.*: write a column") as error:
            from_table(table, **{"features": [], role: "day"})
        assert "leave it out" not in str(error.value)


def test_dates_without_c_are_no_silent_factor(table: Any) -> None:
    if isinstance(table, pd.DataFrame) and table["day"].dtype.kind != "M":
        with pytest.warns(
            UserWarning, match=r"day is text, a factor of 3 .*dates .*write C\(day\)"
        ):
            from_table(table, formula="y ~ day")
    else:
        with pytest.raises(DataError, match=ADVICE):
            from_table(table, formula="y ~ day")


def test_times_keep_what_is_not_midnight() -> None:
    moment = datetime.datetime(2020, 1, 10, 12, 30, 0, 500_000)
    stamps = pa.array([datetime.datetime(2020, 1, 10), moment, None])
    assert ["2020-01-10", "2020-01-10 12:30:00.5", None] == iso_text(stamps).to_pylist()
    zoned = pa.array([moment.replace(microsecond=0)], pa.timestamp("ns", "UTC"))
    assert ["2020-01-10 12:30:00Z"] == iso_text(zoned).to_pylist()
    assert ["00:00:00"] == iso_text(pa.array([datetime.time(0, 0)])).to_pylist()


def test_numbers_of_dates_are_those_of_pandas(table: Any) -> None:
    names = ["year(day)", "month(day)", "weekday(day)", "days(day)"]
    formula = "y ~ " + " + ".join(names)
    store = from_table(table, formula=formula, standardize=False, shuffle=False, dtype="float64")
    day = pd.to_datetime(pd.Series(DAYS))
    days = (day - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    expected = np.c_[day.dt.year, day.dt.month, day.dt.day_of_week, days]
    assert names == store.attributes["features"][1:]
    np.testing.assert_array_equal(expected, store.rows().arrays[0][:, 1:])


def test_moments_have_hours_in_utc_and_months_are_factors() -> None:
    rng = np.random.default_rng(1)
    seconds = rng.integers(0, 2_000_000_000, 5_000)
    moment = pd.Series(seconds.astype("M8[s]"))
    frame = pd.DataFrame({"y": 1, "t": moment, "z": moment.dt.tz_localize("UTC")})
    frame["z"] = frame["z"].dt.tz_convert("America/New_York")
    formula = (
        "y ~ hour(t) + hour(z) + days(t) + C(month(t)) + bs(hour(t), df=4) + I(year(t) > 2000)"
    )
    store = from_table(frame, formula=formula, standardize=False, shuffle=False, dtype="float64")
    X = store.rows().arrays[0]
    np.testing.assert_array_equal(moment.dt.hour, X[:, 1])
    np.testing.assert_array_equal(X[:, 1], X[:, 2])
    np.testing.assert_allclose(X[:, 3], seconds / 86400.0, rtol=1e-15)
    levels = store.attributes["formula"]["states"]["C(month(t))"]["levels"]
    assert list(range(1, 13)) == levels
    assert {0.0, 1.0} == set(X[:, -1])
    again = from_table(frame[:100], like=store, dtype="float64")
    np.testing.assert_array_equal(X[:100], again.rows().arrays[0])


def test_numbers_of_what_is_no_date_are_refused() -> None:
    frame = pd.DataFrame({"y": [0, 1, 1], "x": [1.0, 2.0, 4.0], "t": ["2024-01-31", "31/1", "b"]})
    with pytest.raises(DataError, match=r"expected dates in column 'x'.*found numbers"):
        from_table(frame, formula="y ~ year(x)")
    with pytest.raises(DataError, match=r"column 'year\(t\)', found undefined results in 2 rows"):
        from_table(frame, formula="y ~ year(t)")
    with pytest.raises(ConfigError, match=r"give year\(\) a column of dates"):
        from_table(frame, formula="y ~ year(log(x))")
