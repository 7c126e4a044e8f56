"""Values and levels of random tables, of every type and format, as ingest reads them.

Run as ``python bench/files.py [--tables N] [--seed S] [--only NUMBER ...] [--write]``. A table has
columns of numbers, factors, at most one column of groups and one of row ids, in one to four parts.
Every part is written in a type and by a program of its own, and the table is ingested with a
formula; then the same table, in other types and another format, with ``--like`` the first.

What is expected comes from the values that were drawn; of CSV files, whose types are a matter of
their text, from the texts that Python's ``csv`` finds, by ``decimal`` and ``datetime``. Parquet
files are also read by DuckDB and Arrow files by polars, which have to find the values that were
drawn. Nothing of this shares code with streammc. A refusal is not wrong where the kind of values
explains it (:data:`REFUSALS`), and has to come where they cannot be told apart. ``--write`` renews
``docs/measurements/files.md``. Ends with status 1 if a table is wrong or a refusal not explained.
"""

from __future__ import annotations

import argparse
import bz2
import collections
import csv
import datetime as dt
import gzip
import io
import math
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

EXACT = 2**53
MANY = 30_000
"""Rows of a part that is more than one block of a CSV file, now and then."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
Part = dict[str, list[Any]]
REFUSALS = {
    "formats": ("sources of one format", "files of different formats"),
    "missing": (
        "found missing (values|group labels|row ids)",
        "missing values, without --drop-missing",
    ),
    "integers": ("found large integers", "integers beyond 2**53 as numbers"),
    "digits": (
        "levels of too many digits|numbers below 2\\*\\*53",
        "levels of more digits than float64 has",
    ),
    "zones": ("with a time zone in every source or in none", "times with a zone and without"),
    "spelling": (
        "one way of writing each value",
        "a number as text, in other digits than in another file",
    ),
    "labels": ("expected integers or text as", "decimals, or several types, as groups or row ids"),
    "kinds": (
        "as in the table that the formula was fitted|expected numbers in column",
        "numbers where the store has text, or the reverse",
    ),
    "folders": ("expected the same folders", "a folder for some files"),
}
"""By name: a pattern of the message, and the kind of values that explains it."""


# Values --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of values: how one is drawn, the Arrow types that hold it, and its roles."""

    draw: Callable[[random.Random], Any]
    types: tuple[Any, ...]
    roles: tuple[str, ...] = ("number", "factor")


def digits(rng: random.Random, low: int, high: int) -> int:
    """Return an integer of a random number of digits, of either sign."""
    size = rng.randint(low, high)
    return rng.choice((1, -1)) * rng.randrange(10 ** (size - 1), 10**size)


def moment(rng: random.Random) -> dt.datetime:
    """Return a time of some parts of a second, or midnight."""
    day = dt.datetime(2024, 1, 1) + dt.timedelta(days=rng.randint(-20_000, 9_000))
    if rng.random() < 0.3:
        return day
    micro = rng.choice((0, 0, 500_000, 1_000 * rng.randint(0, 999)))
    return day + dt.timedelta(seconds=rng.randrange(86_400), microseconds=micro)


WORDS = (
    "Bern",
    "Bern ",
    "bern",
    "S\xe3o Paulo",
    "a,b",
    "c;d",
    'say "x"',
    "two\nlines",
    "None",
    "x",
    "T\t1",
    "p|q",
    "\u6771\u4eac",
    "=1+1",
    "-",
    "TRUEish",
    "2024-01",
    "1.2.3",
    "10%",
    "e5",
)
CODES = ("07", "7", "7.0", "1e3", "A7", "0x1F", "true", "012")
DECIMALS = (pa.decimal128(38, 10), pa.decimal128(30, 4), pa.decimal256(60, 20), pa.float64())
STAMPS = (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.string())
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "+05:45")
FACTOR, LABEL = ("factor",), ("factor", "group", "id")
INTEGERS = (pa.int64(), pa.int32(), pa.float64())
KINDS: dict[str, Kind] = {
    "whole": Kind(
        lambda rng: digits(rng, 1, 9),
        (*INTEGERS, pa.decimal128(38, 0), pa.decimal128(20, 5)),
        ("number", "factor", "group", "id"),
    ),
    "small": Kind(
        lambda rng: rng.randint(-100, 100),
        (pa.int8(), pa.int16(), pa.float16(), pa.float32(), *INTEGERS, pa.decimal128(9, 2)),
    ),
    "unsigned": Kind(
        lambda rng: rng.randint(0, 200), (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    ),
    "large": Kind(
        lambda rng: digits(rng, 12, 15),
        (pa.int64(), pa.float64(), pa.decimal128(38, 9)),
        ("number", "factor", "group", "id"),
    ),
    "account": Kind(
        lambda rng: abs(digits(rng, 17, 25)), (pa.decimal128(38, 0), pa.string()), LABEL
    ),
    "account as a number": Kind(
        lambda rng: digits(rng, 17, 25), (pa.decimal128(38, 0),), ("number",)
    ),
    "price": Kind(
        lambda rng: Decimal(digits(rng, 1, 6)).scaleb(-rng.randint(0, 4)),
        (*DECIMALS, pa.float32(), pa.decimal128(10, 4)),
    ),
    "exact": Kind(
        lambda rng: Decimal(digits(rng, 1, 38)).scaleb(-rng.randint(15, 38)),
        (pa.decimal128(38, 38), pa.decimal256(76, 38)),
        ("number",),
    ),
    "exact levels": Kind(
        lambda rng: Decimal(digits(rng, 1, 20)).scaleb(-20), (pa.decimal128(38, 20),), FACTOR
    ),
    "money": Kind(
        lambda rng: Decimal(digits(rng, 1, 18)).scaleb(-2),
        (pa.decimal128(38, 2), pa.decimal128(18, 2)),
    ),
    "double": Kind(lambda rng: rng.gauss(0, 1) * 10.0 ** rng.randint(-12, 12), (pa.float64(),)),
    "extreme": Kind(
        lambda rng: rng.gauss(0, 1) * 10.0 ** rng.randint(-300, 100), (pa.float64(),), ("number",)
    ),
    "single": Kind(lambda rng: np.float32(rng.gauss(0, 100)), (pa.float32(),)),
    "half": Kind(lambda rng: np.float16(rng.gauss(0, 10)), (pa.float16(),)),
    "truth": Kind(lambda rng: rng.random() < 0.5, (pa.bool_(),)),
    "word": Kind(
        lambda rng: rng.choice(WORDS),
        (pa.string(), pa.large_string(), pa.binary(), pa.string_view()),
        LABEL,
    ),
    "code": Kind(
        lambda rng: rng.choice(CODES), (pa.string(), pa.large_string()), ("factor", "group")
    ),
    "number or word": Kind(
        lambda rng: rng.choice((1, 7, 10, 2.5, "x", "y", *("07",) * (rng.random() < 0.2))),
        (pa.string(), pa.int64(), pa.float64(), pa.decimal128(9, 3)),
        FACTOR,
    ),
    "day": Kind(
        lambda rng: moment(rng).date(), (pa.date32(), pa.date64(), *STAMPS), ("factor", "group")
    ),
    "moment": Kind(moment, STAMPS, ("factor", "group")),
    "instant": Kind(
        lambda rng: moment(rng).replace(tzinfo=dt.UTC),
        (pa.timestamp("us", "UTC"), pa.string()),
        ("factor", "group"),
    ),
    "zones": Kind(moment, (pa.timestamp("us"),), FACTOR),
    "clock": Kind(
        lambda rng: moment(rng).time().replace(microsecond=0),
        (pa.time32("s"), pa.time64("us")),
        FACTOR,
    ),
}


RARE = ("account as a number", "exact levels", "zones")
"""Kinds that are always refused, or mostly."""


@dataclass
class Column:
    """A column of a table: its kind and role, and whether a folder has its value."""

    name: str
    kind: str
    role: str
    pool: list[Any]
    categories: bool = False
    folder: bool = False


@dataclass
class Table:
    """A random table: columns, and the values of each part."""

    columns: list[Column]
    parts: list[Part]
    drop: bool
    hive: bool

    @property
    def formula(self) -> str:
        """The formula of the table."""
        terms = [each.name for each in self.columns if each.role == "number"]
        terms += [f"C({each.name})" for each in self.columns if each.role == "factor"]
        terms += [f"(1 | {each.name})" for each in self.columns if each.role == "group"]
        return f"y ~ {' + '.join(terms) or '1'}"

    @property
    def row_id(self) -> str | None:
        """The column of row ids."""
        return next((each.name for each in self.columns if each.role == "id"), None)


def draw_table(rng: random.Random) -> Table:
    """Return a random table."""
    sizes = [rng.randint(12, 50) for _ in range(rng.choice((1, 1, 2, 3, 4)))]
    if rng.random() < 0.03:
        sizes[-1] = MANY
    columns: list[Column] = []
    roles = [rng.choice(("number", "factor")) for _ in range(rng.randint(2, 5))]
    roles += ["group"] * (rng.random() < 0.25) + ["id"] * (rng.random() < 0.3)
    for place, role in enumerate(roles):
        known = [name for name, each in KINDS.items() if role in each.roles]
        (kind,) = rng.choices(known, [0.2 if name in RARE else 1.0 for name in known])
        pool = [KINDS[kind].draw(rng) for _ in range(5 if role in ("factor", "group") else 0)]
        pool = [value for k, value in enumerate(pool) if value not in pool[:k]]
        while len(pool) < 2 and role in ("factor", "group"):
            pool += [value for value in [KINDS[kind].draw(rng)] if value not in pool]
        if kind in ("code", "number or word"):  # the first part has a letter
            pool = [{"code": "A7", "number or word": "x"}[kind], *pool]
        columns.append(Column(f"c{place}", kind, role, pool, rng.random() < 0.2))
    hive = rng.random() < 0.25
    if hive:
        pool = rng.choice(
            (
                ["01", "02", "10", "11"],
                ["A 1", "012", "12", "\xe9"],
                ["2024-01-10", "2024-02-01", "x", "y"],
            )
        )
        role = "group" if "group" not in roles and rng.random() < 0.4 else "factor"
        columns.append(Column("folder", "folder", role, list(pool), folder=True))
        sizes = sizes if len(sizes) > 1 else [*sizes, 20]
    gaps = rng.random() < 0.35
    parts = []
    for number, size in enumerate(sizes):
        part: Part = {"y": [rng.randint(0, 1) for _ in range(size)]}
        for each in columns:
            values = [
                rng.choice(each.pool) if each.pool else KINDS[each.kind].draw(rng)
                for _ in range(size)
            ]
            if each.role in ("factor", "group") and not each.folder and number == 0:
                values[: len(each.pool)] = each.pool  # every level, the letter first
            if each.kind == "price" and size == MANY and not each.pool:  # decimals far below
                values[:-99] = [int(value) for value in values[:-99]]
            if each.kind == "number or word" and number and rng.random() < 0.6:
                values = [7 if isinstance(value, str) else value for value in values]
            if each.folder:
                values = [each.pool[number % len(each.pool)]] * size
            elif each.role == "id":
                values = distinct(each, values, parts, rng)
            elif gaps and rng.random() < 0.5:
                low = len(each.pool) if number == 0 else 0
                values = [
                    None if k >= low and rng.random() < 0.1 else v for k, v in enumerate(values)
                ]
            part[each.name] = values
        parts.append(part)
    if hive:  # in the order of the folders
        parts.sort(key=lambda part: f"folder={quote(part['folder'][0])}")
    return Table(columns, parts, gaps and rng.random() < 0.85, hive)


def distinct(
    column: Column, values: list[Any], before: list[Part], rng: random.Random
) -> list[Any]:
    """Return ids that occur once in the table."""
    seen = {value for part in before for value in part[column.name]}
    out = []
    for value in values:
        while value in seen:
            value = (
                f"{value}{rng.randint(0, 9)}"
                if isinstance(value, str)
                else KINDS[column.kind].draw(rng)
            )
        seen.add(value)
        out.append(value)
    return out


# Files ---------------------------------------------------------------------------------------


@dataclass
class Written:
    """A part as it was written: what is given to ingest, its format, and the values in it."""

    given: Any
    form: str
    values: Part
    """Values as their type holds them; of CSV the texts, ``None`` for missing."""
    types: dict[str, Any] = field(default_factory=dict)
    checked: int = 0
    """Values that another reader has found in the file."""


def arrow_column(column: Column, values: list[Any], rng: random.Random) -> tuple[Any, list[Any]]:
    """Return values as an Arrow array of a random type that holds them, and as it holds them."""
    if column.folder:
        return None, values
    kind, present = KINDS[column.kind], [value for value in values if value is not None]
    fits = [type_ for type_ in kind.types if all(holds(type_, value) for value in present)]
    if column.role in ("group", "id"):
        fits = [t for t in fits if not pa.types.is_decimal(t) or rng.random() < 0.1] or fits
    type_ = rng.choice(fits or [pa.string()])
    zone = rng.choice(ZONES) if column.kind == "instant" else None
    if column.kind == "zones" and rng.random() < 0.5:
        zone = "UTC"
        values = [value and value.replace(tzinfo=dt.UTC) for value in values]
    if zone and pa.types.is_timestamp(type_):
        type_ = pa.timestamp(type_.unit, zone)
    if pa.types.is_string(type_):
        values = [None if value is None else as_text(value, rng) for value in values]
    held = [None if value is None else as_held(type_, value) for value in values]
    missing = None if not pa.types.is_float64(type_) or rng.random() < 0.5 else math.nan
    array = pa.array([missing if value is None else value for value in held], type_)
    plain = not pa.types.is_decimal(type_) and type_ != pa.string_view() and column.role != "number"
    if column.categories and plain and missing is None and zone is None:
        array = array.dictionary_encode()
    return array, held


def holds(type_: Any, value: Any) -> bool:
    """Return whether a type holds a value, or in single precision its digits."""
    types = pa.types
    if types.is_string(type_):
        return True
    if isinstance(value, str):
        return not (types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_))
    if types.is_float16(type_) or types.is_float32(type_):
        return Decimal(str(as_held(type_, value))) == Decimal(str(value))
    if types.is_float64(type_):
        return Decimal(repr(float(value))) == Decimal(str(value))
    if types.is_decimal(type_) or types.is_integer(type_):
        try:
            pa.scalar(as_held(type_, value), type_)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return False
        return types.is_decimal(type_) or value == int(value)
    if types.is_date(type_):
        return type(value) is dt.date
    if types.is_timestamp(type_) and isinstance(value, dt.datetime):
        return type_.unit != "ms" or value.microsecond % 1000 == 0
    return True


def as_held(type_: Any, value: Any) -> Any:
    """Return a value as an Arrow type holds it, as Python has it."""
    types = pa.types
    if types.is_float16(type_):
        return np.float16(float(value))
    if types.is_float32(type_):
        return np.float32(float(value))
    if types.is_float64(type_):
        return float(value)
    if types.is_decimal(type_):
        return Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    if types.is_integer(type_):
        return int(value)
    if types.is_timestamp(type_) and type(value) is dt.date:
        return dt.datetime(value.year, value.month, value.day)
    return value


def as_text(value: Any, rng: random.Random) -> str:
    """Return a value as some program would write it."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(
                dt.timezone(dt.timedelta(minutes=rng.choice((0, 60, -300, 345))))
            )
        text = value.isoformat(rng.choice(" T"))
        if value.tzinfo is not None and value.utcoffset() == dt.timedelta(0):
            text = text.replace("+00:00", rng.choice(("Z", "+00:00", "+0000")))
        return text
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return str(int(value))
    return str(value)


def in_csv(kind: str, value: Any, rng: random.Random) -> str:
    """Return a value as a CSV file of Python has it."""
    if kind == "truth":
        return rng.choice(("true", "True", "TRUE")) if value else rng.choice(("false", "False"))
    if isinstance(value, Decimal) and kind != "number or word":
        return rng.choice((f"{value:f}", f"{value:f}" + "0" * ("." in f"{value:f}"), f"{value:e}"))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, np.floating):
        return str(value)
    return as_text(value, rng)


def write_csv(table: Table, part: Part, path: Path, rng: random.Random) -> Written:
    """Write a part as a CSV file by Python."""
    names = [*(each.name for each in table.columns if not each.folder), "y"]
    kinds = {each.name: each.kind for each in table.columns} | {"y": "whole"}
    style = {name: rng.choice(("first", "any")) for name in names}
    order = rng.sample(names, len(names))
    sink = io.StringIO(newline="")
    full = all(value is not None for name in names for value in part[name])
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL if full else csv.QUOTE_MINIMAL))
    writer = csv.writer(
        sink,
        delimiter=rng.choice(",,;\t|"),
        lineterminator=rng.choice(("\n", "\r\n")),
        quoting=quoting,
    )
    writer.writerow(order)
    for k in range(len(part["y"])):
        line = []
        for name in order:
            own = random.Random(style[name]) if style[name] == "first" else rng
            value = part[name][k]
            line.append("" if value is None else in_csv(kinds[name], value, own))
        writer.writerow(line)
    path.write_bytes((b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + sink.getvalue().encode())
    return Written(path, "csv", {})


def csv_of(program: str) -> Callable[..., None]:
    """Return the function of a program that writes an Arrow table as a CSV file."""

    def write(table: pa.Table, path: Path, rng: random.Random) -> None:
        if program == "pyarrow":
            import pyarrow.csv

            pyarrow.csv.write_csv(table, path)
        elif program == "pandas":
            table.to_pandas().to_csv(path, index=False)
        elif program == "polars":
            polars_frame(table).write_csv(path)
        else:
            import duckdb

            duckdb.from_arrow(table).write_csv(str(path))

    return write


def write_parquet(table: pa.Table, path: Path, rng: random.Random) -> None:
    """Write a Parquet file by one of four programs."""
    program = rng.choice(("pyarrow", "pyarrow", "pandas", "polars", "duckdb"))
    if program == "pandas":
        table.to_pandas().to_parquet(path, index=False)
    elif program == "polars":
        polars_frame(table).write_parquet(path)
    elif program == "duckdb":
        import duckdb

        duckdb.from_arrow(table).write_parquet(str(path))
    else:
        plain_parquet(table, path, rng)


def plain_parquet(table: pa.Table, path: Path, rng: random.Random) -> None:
    """Write a Parquet file by Arrow."""
    import pyarrow.parquet as pq

    pq.write_table(
        table,
        path,
        row_group_size=rng.choice((7, 30, 1000)),
        compression=rng.choice(("none", "snappy", "zstd", "gzip")),
        use_dictionary=rng.random() < 0.5,
        write_page_checksum=rng.random() < 0.5,
        data_page_version=rng.choice(("1.0", "2.0")),
    )


def write_arrow(table: pa.Table, path: Path, rng: random.Random) -> None:
    """Write an Arrow file or stream, by Arrow or polars."""
    if rng.random() < 0.3:
        frame = polars_frame(table)
        rng.choice((frame.write_ipc, frame.write_ipc_stream))(path)
        return
    plain_arrow(table, path, rng)


def plain_arrow(table: pa.Table, path: Path, rng: random.Random) -> None:
    """Write an Arrow file or stream by Arrow."""
    make = rng.choice((pa.ipc.new_file, pa.ipc.new_stream))
    options = pa.ipc.IpcWriteOptions(
        compression=rng.choice((None, "lz4", "zstd")), emit_dictionary_deltas=False
    )
    table = table.unify_dictionaries()
    with make(path, table.schema, options=options) as sink:
        sink.write_table(table, max_chunksize=rng.choice((9, 1000)))


def in_memory(table: pa.Table, rng: random.Random) -> Any:
    """Return a table in memory of one of eight kinds."""
    import duckdb
    import pandas

    ways: list[Callable[[], Any]] = [
        lambda: table,
        lambda: table.to_batches()[0],
        lambda: table.to_reader(9),
        lambda: table.to_pandas(),
        lambda: table.to_pandas(types_mapper=pandas.ArrowDtype),
    ]
    if pa.float16() not in table.schema.types:  # which these convert
        ways += [lambda: table.to_pandas().convert_dtypes(), lambda: polars_frame(table)]
        ways += [lambda: duckdb.connect().from_arrow(table)]
    return rng.choice(ways)()


def write_part(
    table: Table, part: Part, form: str, folder: Path, number: int, rng: random.Random
) -> Written:
    """Write a part in a format."""
    place = folder
    if table.hive:
        value = part["folder"][0]
        place = folder / f"folder={NULL_FOLDER if value is None else quote(value, safe='')}"
        place.mkdir(parents=True, exist_ok=True)
    path = place / f"part-{number}.{form}"
    if form == "csv" and rng.random() < 0.5:
        written = write_csv(table, part, path, rng)
    else:
        arrays, held = {}, {"y": part["y"]}
        for each in table.columns:
            array, held[each.name] = arrow_column(each, part[each.name], rng)
            if array is not None:
                arrays[each.name] = array
        arrays["y"] = pa.array(part["y"], rng.choice((pa.int64(), pa.int8(), pa.float64())))
        content = pa.table(arrays)
        types = {name: array.type for name, array in arrays.items()}
        written = Written(path, form, held, types)
        if form == "memory":
            written.given = attempt(lambda: in_memory(content, rng), lambda: content)
        elif form == "csv":
            text = pa.table([text_of(each) for each in content.columns], content.column_names)
            program = rng.choice(("pyarrow", "pandas", "polars", "duckdb"))
            attempt(
                lambda: csv_of(program)(text, path, rng), lambda: csv_of("pandas")(text, path, rng)
            )
        elif form == "parquet":
            attempt(
                lambda: write_parquet(content, path, rng), lambda: plain_parquet(content, path, rng)
            )
        else:
            attempt(
                lambda: write_arrow(content, path, rng), lambda: plain_arrow(content, path, rng)
            )
    if form == "csv":
        written.values = read_csv(path)
        if table.hive:
            written.values["folder"] = part["folder"]
        pack(written, path, rng)
    elif form != "memory":
        written.checked = check_reader(written, path)
    return written


def text_of(column: Any) -> Any:
    """Return a column that other programs do not write in CSV as one that they do."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == pa.float16():
        texts = [str(value) for value in column.to_numpy()]
        return pa.array([None if text == "nan" else text for text in texts])
    return column.cast(pa.string()) if column.type in (pa.binary(), pa.string_view()) else column


def polars_frame(table: pa.Table) -> Any:
    """Return an Arrow table as a frame of polars."""
    import polars

    if any(map(beyond_polars, table.schema.types)):
        raise TypeError("a type that polars panics at")
    return polars.from_arrow(table)


def beyond_polars(type_: Any) -> bool:
    """Return whether polars panics at a type: decimals of 256 bits, zones without a name."""
    if pa.types.is_dictionary(type_):
        return beyond_polars(type_.value_type)
    zone = type_.tz if pa.types.is_timestamp(type_) else None
    return pa.types.is_decimal256(type_) or (zone or "").startswith("+")


def attempt(first: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Return the result of another program, or of ``otherwise`` if it does not have the types."""
    from polars.exceptions import PanicException

    try:
        return first()
    except (Exception, PanicException):
        return otherwise()


def pack(written: Written, path: Path, rng: random.Random) -> None:
    """Compress a CSV file, or leave it."""
    content = path.read_bytes()
    kind = rng.choice(("", "", "gz", "bz2", "zst"))
    if kind == "gz":  # of two members, as gzip -c a.csv >> all.gz makes them
        content = gzip.compress(content[:100]) + gzip.compress(content[100:])
    elif kind == "bz2":
        content = bz2.compress(content)
    elif kind == "zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as out:
            out.write(content)
        content = sink.getvalue().to_pybytes()
    path.write_bytes(content)


# Readers -------------------------------------------------------------------------------------


def read_csv(path: Path) -> Part:
    """Return the texts of a CSV file by Python's reader, ``None`` for the empty one and NaN."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        head = file.readline()
        file.seek(0)
        mark = max(",\t;|", key=head.count)
        rows = list(csv.reader(file, delimiter=mark))
    names = rows[0]
    return {
        name: [None if row[k] in ("", "nan", "NaN") else row[k] for row in rows[1:]]
        for k, name in enumerate(names)
    }


def check_reader(written: Written, path: Path) -> int:
    """Compare a file with the values that were drawn, by DuckDB or polars; return their number.

    A type that the reader does not have is left out.
    """
    known = [name for name, type_ in written.types.items() if not beyond_polars(type_)]
    found = attempt(lambda: other_reader(written.form, path, known), dict)
    count = 0
    for name in set(known) & set(found):
        for mine, other in zip(written.values[name], found[name], strict=True):
            if not same_value(mine, other):
                raise AssertionError(f"{path}: {name} has {other!r} for {mine!r} by its own reader")
            count += 1
    return count


def other_reader(form: str, path: Path, names: list[str]) -> dict[str, Any]:
    """Return the columns of a Parquet file by DuckDB, or of an Arrow file by polars."""
    if form == "parquet":
        import duckdb

        relation = duckdb.sql(f"SELECT * FROM read_parquet('{path}', hive_partitioning=false)")
        return dict(zip(relation.columns, zip(*relation.fetchall(), strict=True), strict=True))
    import polars

    whole = path.read_bytes()[:6] == b"ARROW1"
    frame = (polars.read_ipc if whole else polars.read_ipc_stream)(path, columns=names)
    return {name: frame[name].to_list() for name in frame.columns}


def same_value(mine: Any, other: Any) -> bool:
    """Return whether another reader has found a value."""
    if isinstance(other, bytes):
        other = other.decode()
    if isinstance(other, float) and math.isnan(other):
        other = None
    if mine is None or other is None:
        return mine is other
    if isinstance(mine, dt.datetime) and mine.tzinfo is None and type(other) is dt.date:
        other = dt.datetime(other.year, other.month, other.day)
    if type(mine) is dt.date and isinstance(other, dt.datetime):
        other = other.date()
    if isinstance(mine, np.floating | float):
        return bool(float(mine) == float(other))
    return bool(mine == other)


# What is expected ----------------------------------------------------------------------------


def number_text(text: str) -> bool:
    """Return whether a text is a finite number."""
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None


def exact(value: Any) -> Decimal:
    """Return a number as its type writes it: 0.1 in every precision."""
    double = isinstance(value, float) and not isinstance(value, np.floating)
    return Decimal(repr(value) if double else str(value))


def plain(value: Decimal) -> str:
    """Return a number as a level is named."""
    return str(int(value)) if value == int(value) else repr(float(value))


def level(value: Any, kind: str) -> str:
    """Return the name of a value as a level."""
    if kind == "truth":
        return str(value if isinstance(value, bool) else value.lower() == "true")
    if kind in ("day", "moment", "instant", "zones"):
        if isinstance(value, str):
            value = dt.datetime.fromisoformat(value)
        if type(value) is dt.date:
            return value.isoformat()
        zoned = value.tzinfo is not None
        value = value.astimezone(dt.UTC).replace(tzinfo=None) if zoned else value
        fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        text = f"{value:%Y-%m-%d %H:%M:%S}{fraction}"
        return f"{text}Z" if zoned else text.removesuffix(" 00:00:00")
    if kind == "clock":
        value = dt.time.fromisoformat(value[:15]) if isinstance(value, str) else value
        return str(value.isoformat())
    return value if isinstance(value, str) else plain(exact(value))


@dataclass
class Expected:
    """What streammc should find in a column, over all parts; ``None`` for missing."""

    values: list[float | str | None]
    """Numbers, or names of levels."""
    refusals: set[str]


def expectation(column: Column, written: list[Written], fitted: str | None) -> Expected:
    """Return what should be found in a column, and what has to be refused.

    ``fitted``: kind of the column in the store that the table has to be like.
    """
    found: list[float | str | None] = []
    refusals: set[str] = set()
    texts = [each.form == "csv" or column.folder for each in written]
    given = [each.values[column.name] for each in written]
    present = [[value for value in values if value is not None] for values in given]
    truth, dated = (
        column.kind == "truth",
        column.kind in ("day", "moment", "instant", "zones", "clock"),
    )
    numeric = [
        truth
        or (not dated and all(not isinstance(v, str) or (text and number_text(v)) for v in values))
        for values, text in zip(present, texts, strict=True)
    ]
    all_numeric = all(numeric) and any(present) and not truth
    all_numeric = all_numeric and not (fitted == "text" and all(texts))
    for values, own, is_number, text in zip(given, present, numeric, texts, strict=True):
        # A column of a CSV file with a decimal in it is one of decimals.
        decimals = (
            text
            and not truth
            and is_number
            and not column.folder
            and not all(re.fullmatch(r"-?\d+", value) for value in own)
        )
        for value in values:
            if value is None:
                found.append(None)
                continue
            if column.role == "number":
                found.append(float(level(value, "truth") == "True") if truth else float(value))
                whole = not truth and (
                    re.fullmatch(r"[+-]?\d+", value) is not None and abs(int(value)) >= EXACT
                    if text
                    else isinstance(value, int | Decimal)
                    and value == int(value)
                    and abs(value) > EXACT
                )
                refusals |= {"integers"} if whole else set()
                continue
            if all_numeric and (column.role == "factor" or column.folder):
                number = exact(value)
                size = abs(number) >= EXACT if isinstance(value, float) else abs(number) > EXACT
                if size or Decimal(repr(float(number))) != number:
                    refusals.add("digits")
                found.append(plain(number))
            elif decimals:
                shortest = re.sub(r"^([+-]?\d+)\.0*$", r"\1", value)
                found.append(re.sub(r"^([+-]?\d*\.\d*[1-9])0+$", r"\1", shortest))
            else:
                found.append(level(value, column.kind))
    if column.kind == "zones":
        zoned = {name.endswith("Z") for name in found if name is not None}
        refusals |= {"zones"} if len(zoned) > 1 else set()
    types = [each.types.get(column.name) for each in written if each.form != "csv"]
    labels = column.role in ("group", "id") and not column.folder
    inner = [t.value_type if t is not None and pa.types.is_dictionary(t) else t for t in types]
    if labels and (len({label_kind(t) for t in inner}) > 1 or any(map(is_decimal, inner))):
        refusals.add("labels")
    if column.kind == "number or word" and not all_numeric and not any(texts):
        typed = any(t is not None and not pa.types.is_string(t) for t in inner)
        odd = any(
            isinstance(v, str) and number_text(v) and plain(Decimal(v)) != v
            for own in present
            for v in own
        )
        refusals |= {"spelling"} if typed and odd else set()
    if fitted is not None:
        text = any(
            not own if each.form == "csv" or column.folder else holds_text(each.types[column.name])
            for each, own in zip(written, numeric, strict=True)
        )
        text = text or (fitted == "text" and all(texts))
        refusals |= {"kinds"} if text != (fitted == "text") else set()
    return Expected(found, refusals)


def holds_text(type_: Any) -> bool:
    """Return whether a type is of texts, dates or times."""
    if pa.types.is_dictionary(type_):
        return holds_text(type_.value_type)
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return not (number or pa.types.is_decimal(type_) or pa.types.is_boolean(type_))


def is_decimal(type_: Any) -> bool:
    """Return whether a type is decimal."""
    return type_ is not None and pa.types.is_decimal(type_)


def label_kind(type_: Any) -> str:
    """Return whether labels of a type are numbers or texts."""
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return "number" if number else "text"


# The comparison ------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of one table: ``right``, ``refused``, ``wrong``, ``unexplained``, ``crashed``."""

    verdict: str
    detail: str = ""
    reason: str = ""
    forms: tuple[str, ...] = ()
    values: int = 0
    levels: int = 0
    checked: int = 0
    warned: int = 0


def judge(table: Table, written: list[Written], like: Any) -> tuple[Outcome, Any]:
    """Ingest a table and compare it with what is expected; return the verdict and the data set."""
    from streammc.errors import StreammcError
    from streammc.stores.ingest.ingestion import from_table

    kinds = {} if like is None else like.attributes["formula"]["columns"]
    expected = {
        each.name: expectation(each, written, kinds.get(each.name)) for each in table.columns
    }
    reasons = set().union(*(each.refusals for each in expected.values()))
    forms = tuple(each.form for each in written)
    gaps = any(value is None for each in expected.values() for value in each.values)
    reasons |= {"missing"} if gaps and not table.drop else set()
    reasons |= {"formats"} if len(set(forms)) > 1 else set()
    ids = next((expected[each.name] for each in table.columns if each.role == "id"), None)
    reasons |= {"missing"} if ids is not None and None in ids.values else set()
    given = [each.given for each in written]
    if table.hive:
        given = [str(Path(given[0]).parents[1])]
    grouped = any(each.role == "group" for each in table.columns)
    options: dict[str, Any] = {"formula": table.formula, "standardize": False, "shuffle": grouped}
    options |= {"dtype": "float64", "row_id": table.row_id}
    if like is not None:
        options = {"like": like, "dtype": "float64"}
    found = Outcome("", forms=forms, checked=sum(each.checked for each in written))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data = from_table(given, drop_missing=table.drop, **options)
        except StreammcError as error:
            named = [name for name, (text, _) in REFUSALS.items() if re.search(text, str(error))]
            found.reason = next((name for name in named if name in reasons), "")
            found.verdict = "refused" if found.reason else "unexplained"
            found.detail = str(error)
            return found, None
        except Exception as error:  # a defect of any kind is a finding
            found.verdict, found.detail = "crashed", f"{type(error).__name__}: {error}"
            return found, None
    found.warned = len(caught)
    if reasons:
        found.verdict, found.detail = "wrong", f"accepted in spite of {', '.join(sorted(reasons))}"
        return found, None
    compare(table, written, expected, data, like is not None, found)
    found.verdict = "wrong" if found.detail else "right"
    return found, data


def compare(
    table: Table,
    written: list[Written],
    expected: dict[str, Expected],
    data: Any,
    again: bool,
    found: Outcome,
) -> None:
    """Compare every value and level of a data set; the first difference becomes the detail."""
    y = [float(value) for each in written for value in each.values["y"]]
    names = [each.name for each in table.columns]
    kept = [k for k in range(len(y)) if all(expected[name].values[k] is not None for name in names)]
    X, response = (np.asarray(array) for array in data.rows().arrays[:2])
    if len(X) != len(kept):
        found.detail = f"{len(X)} rows for {len(kept)}"
        return
    ids = np.asarray(data.row_ids()) if data.row_ids() is not None else np.arange(len(X))
    row_id = table.row_id
    if row_id is not None:
        place = {text: k for k, text in enumerate(expected[row_id].values)}
        order = [place.get(label_text(each), -1) for each in ids]
    else:
        order = [int(each) for each in ids] if data.row_ids() is not None else kept
    if sorted(order) != kept:
        found.detail = "other row ids"
        return

    def differ(name: str, shown: Iterable[Any], wanted: list[Any]) -> None:
        for k, (one, other) in enumerate(zip(shown, (wanted[row] for row in order), strict=True)):
            if one != other and not found.detail:
                found.detail = f"{name} is {one!r} for {other!r} in row {order[k]}"

    differ("y", response.tolist(), y)
    features = data.feature_names
    for column in table.columns:
        name, own = column.name, expected[column.name]
        if column.role == "number":
            differ(name, X[:, features.index(name)].tolist(), own.values)
            found.values += len(X)
        elif column.role == "factor":
            state = data.attributes["formula"]["states"][f"C({name})"]
            shown = np.full(len(X), shown_level(state["reference"]), object)
            for each in state["levels"]:
                if each != state["reference"]:
                    # A whole number among others is named as formulaic does.
                    shown_as = (f"C({name})[T.{each}]", f"C({name})[T.{each}.0]")
                    indicator = X[:, next(k for k, one in enumerate(features) if one in shown_as)]
                    shown[indicator == 1] = shown_level(each)
            differ(name, shown.tolist(), own.values)
            if not again:
                wanted = {own.values[row] for row in kept}
                if wanted != {shown_level(each) for each in state["levels"]} and not found.detail:
                    found.detail = f"{name} has the levels {state['levels']} for {sorted(wanted)}"
            found.levels += len(X)
        elif column.role == "group":
            differ(name, map(label_text, data.row_groups()), own.values)
            found.levels += len(X)


def shown_level(value: Any) -> str:
    """Return a level of a formula's state as a text."""
    return value if isinstance(value, str) else str(value)


def label_text(label: Any) -> str:
    """Return a label or an id as a text."""
    return label.decode() if isinstance(label, bytes) else str(label)


def run_table(number: int, seed: int) -> list[Outcome]:
    """Make one table, ingest it, and ingest it again in another format, like the first."""
    rng = random.Random(f"{seed}/{number}")
    table = draw_table(rng)
    outcomes = []
    like = None
    with TemporaryDirectory() as place:
        for turn in ("first", "like"):
            folder = Path(place) / turn
            folder.mkdir()
            files = ("csv", "csv", "parquet", "parquet", "arrow")
            form = rng.choice(files if table.hive else (*files, "memory", "memory"))
            forms = [form] * len(table.parts)
            if turn == "first" and rng.random() < 0.04 and not table.hive and len(forms) > 1:
                forms[-1] = rng.choice(
                    [each for each in ("csv", "parquet", "arrow") if each != form]
                )
            written = [
                write_part(table, part, form, folder, k, rng)
                for k, (part, form) in enumerate(zip(table.parts, forms, strict=True))
            ]
            outcome, like = judge(table, written, like)
            outcomes.append(outcome)
            if like is None or any(each.kind == "zones" for each in table.columns):
                break
    return outcomes


# The page ------------------------------------------------------------------------------------


def page_lines(outcomes: list[tuple[int, int, Outcome]], tables: int, seed: int) -> list[str]:
    """Return the tables of the page."""
    from page import machine

    verdicts = ("right", "refused", "wrong", "unexplained", "crashed")
    lines = [f"{machine()}; {tables} tables, seed {seed}:", ""]
    lines += [
        "| format | tables | values | levels | found by another reader | right | refused | wrong |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    by_form: dict[str, list[Outcome]] = collections.defaultdict(list)
    for _, turn, each in outcomes:
        form = each.forms[0] if len(set(each.forms)) == 1 else "several"
        by_form[form + (", `--like`" if turn else "")].append(each)
    order = [*sorted(by_form), "all"]
    by_form["all"] = [each for _, _, each in outcomes]
    for form, own in ((form, by_form[form]) for form in order):
        count = collections.Counter(each.verdict for each in own)
        bad = sum(count[name] for name in verdicts[2:])
        sums = (
            sum(getattr(each, name) for each in own) for name in ("values", "levels", "checked")
        )
        cells = [form, f"{len(own):,}", *(f"{total:,}" for total in sums), str(count["right"])]
        lines.append(f"| {' | '.join([*cells, str(count['refused']), str(bad)])} |")
    lines += ["", "| refused | tables |", "|---|---|"]
    reasons = collections.Counter(each.reason for _, _, each in outcomes if each.reason)
    lines += [f"| {REFUSALS[name][1]} | {count} |" for name, count in reasons.most_common()]
    return lines


def main() -> int:
    """Run the tables asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    outcomes: list[tuple[int, int, Outcome]] = []
    for number in asked.only or range(asked.tables):
        for turn, each in enumerate(run_table(number, asked.seed)):
            outcomes.append((number, turn, each))
            if each.verdict not in ("right", "refused") or asked.only:
                print(number, turn, each.verdict, each.forms, each.detail, flush=True)
    lines = page_lines(outcomes, asked.tables, asked.seed)
    print("\n".join(lines))
    if asked.write:
        from page import publish

        publish("files.md", "files", lines)
    return any(each.verdict not in ("right", "refused") for _, _, each in outcomes)


if __name__ == "__main__":
    sys.exit(main())
