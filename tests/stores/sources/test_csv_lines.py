"""Lines of a CSV file inside of quotes, which may be rows that two stray quotes have swallowed."""

from __future__ import annotations

import csv
import gzip
import random
import warnings
from pathlib import Path

import pytest

from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.ingest.new_rows import encode_rows

MANY = "5,e,1\n" * 250_000  # more than one block of the CSV reader


def found(path: Path, content: str | bytes, **options: object) -> list[str]:
    """Return the warnings of a file of the columns ``x`` and ``y``, and others."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_table(path, **({"response": "y", "features": ["x"]} | options))  # type: ignore[arg-type]
    return [str(each.message) for each in caught if "quote" in str(each.message)]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("content", "values", "breaks", "line"),
    [
        ('x,name,y\n1,a,0\n2,"b,1\n3,c",0\n4,d,1\n', "1 quoted value", "1 line break", 3),
        ('x,name,y\n1,a,0\n\n2,"b,1\n3,c,1\n4,c",0', "1 quoted value", "2 line breaks", 4),
        ('name,x,y\n"a,1,0\nb,2,0\nc",3,0\nd,4,1\n', "1 quoted value", "2 line breaks", 2),
        ('x,y,name\n1,0,"a\n2,0,""b"\n4,1,d\n', "1 quoted value", "1 line break", 2),
        ('x,name,y\n1,a,0\n2,"b,1\n3,c",0\n4,d,1', "1 quoted value", "1 line break", 3),
        ('x;y;name\n1;0;"a\n2;0;b"\n4;1;"d\n3;1;"\n1;1;c\n', "2 quoted values", "2 line breaks", 2),
        (f'x,n,y\n{MANY}2,"b,1\n3,c",0\n{MANY}', "1 quoted value", "1 line break", 250_002),
    ],
)
def test_values_that_may_be_swallowed_rows_are_counted_with_their_line(
    tmp_path: Path, content: str, values: str, breaks: str, line: int, ends: str
) -> None:
    (text,) = found(tmp_path / "t.csv", content.replace("\n", ends))
    assert f"has {values} with separators and {breaks} inside" in text
    if ends != "\r":  # there, the line is that of the row
        assert f"the first in line {line}:" in text


def test_rows_swallowed_in_a_single_column_are_counted(tmp_path: Path) -> None:
    content = 'y\n1\n"0\n1\n"\n0\n'
    with pytest.raises(Exception, match="numbers"):
        found(tmp_path / "t.csv", content, features=[])
    options = {"features": None, "response": None, "formula": "I(y == '1') ~ 1"}
    (text,) = found(tmp_path / "t.csv", content, **options)
    assert "has 1 quoted value with 2 line breaks inside" in text
    assert "the first in line 3:" in text


@pytest.mark.parametrize(
    "content",
    [
        'x,name,y\n1,"a\nb",0\n2,c,1\n',
        "x,name,y\n\n1,a,0\n\n2,c,1\n\n",
        "\ufeffx,name,y\r\n1,a,0\r\n2,c,1",
        '"x","the\nname","y"\n1,a,0\n2,"b,c",1\n',
        'x,name,y\n1,a"b,0\n2,c"d,1\n',
    ],
)
def test_other_lines_and_quotes_are_no_warning(tmp_path: Path, content: str) -> None:
    assert [] == found(tmp_path / "t.csv", content)


def test_compressed_files_files_in_folders_and_new_rows_are_warned_of(tmp_path: Path) -> None:
    content = 'x,name,y\n1,a,0\n2,"b,1\n3,c",0\n4,d,1\n'
    (tmp_path / "t" / "k=1").mkdir(parents=True)
    path = tmp_path / "t" / "k=1" / "t.csv.gz"
    path.write_bytes(gzip.compress(content.encode()))
    report = ingest(tmp_path / "t", tmp_path / "s.zarr", response="y", features=["x"])
    assert any("the first in line 3:" in text for text in report["warnings"])
    with pytest.warns(UserWarning, match="the first in line 3:"):
        list(encode_rows(report, path))


def test_random_values_are_counted_as_their_writer_counts_them(tmp_path: Path) -> None:
    rng = random.Random(5)
    for _ in range(12):
        rows = [
            [k, *("".join(rng.choices('ab,;"\n \r', k=rng.randint(0, 6))) for _ in range(2)), k % 2]
            for k in range(40)
        ]
        with open(tmp_path / "t.csv", "w", newline="") as file:
            ends = rng.choice(["\n", "\r\n"])
            writer = csv.writer(file, lineterminator=ends, quoting=csv.QUOTE_NONNUMERIC)
            writer.writerows([["x", "a", "b", "y"], *rows])
        texts = [text for row in rows for text in row[1:3]]
        wanted = sum("," in text and ("\n" in text or "\r" in text) for text in texts)
        shown = found(tmp_path / "t.csv", (tmp_path / "t.csv").read_bytes())
        number = f"has {wanted} quoted value{'s' * (wanted > 1)} with" if wanted else ""
        assert (1 if wanted else 0) == len(shown)
        assert all(number in text for text in shown)
