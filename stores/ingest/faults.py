"""Faults in the values of a table, collected over a whole pass and raised as one error."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streammc.errors import DataError

_OMIT: Final = "leave the column out with --features"
# Text that can stand between quotes in a formula, in the advice for a command line.
_IN_A_FORMULA: Final = re.compile(r"""[^'"\\`\x00-\x1f\x7f]{1,40}""")
_YES: Final = re.compile(
    "yes|y|true|t|1|positive|pos|success(ful)?|succeeded|pass(ed)?|won|win|present|case|event|on"
)
_NO: Final = re.compile(
    "no|n|false|f|0|negative|neg|failure|fail(ed)?|lost|lose|absent|control|none|off"
)
_NOT: Final = re.compile(r"(?:not|no|non|un|in|dis)[ _-]?")
_MOST_TEXTS: Final = 9
LATE_TEXT: Final = (
    "correct the row, leave the column out, or, for a factor, save it as text in a Parquet file, "
    "as pandas.read_csv(..., dtype={'column': str}) reads it"
)
"""Advice for text below the rows that decide the type of a column in a CSV file."""
FITTED_TEXT: Final = "write numbers, as in the table that the store was made of"
"""Advice for text in a column of numbers of the store that the table has to be like."""
_DAYS: Final = "a column of numbers (days since the first)"

QUOTE: Final = (
    "where NA, null or the like is a label, quote it in the file, or name the spellings that are "
    "missing, --missing '' (in Python missing=[]) if none is"
)
"""Advice for missing values in a column of text of a CSV file."""

# Kinds of faults, worded to follow "found", in the order of their report: the expected values
# and the advice of each.
_KINDS: Final[dict[str, tuple[str, str]]] = {
    "text": ("numbers", _OMIT + ", or take it as a factor: --formula 'y ~ C(column)'"),
    "numbers with a decimal comma": (
        "numbers",
        "write them with a point, as by pandas.read_csv(..., decimal=','), or by "
        "thousands=',' if the comma groups digits",
    ),
    "dates": (
        "numbers",
        "leave it out (--features, or not in the formula), or take numbers of it in a formula, "
        "days(column), year(column), month(column), weekday(column) or hour(column), or a factor, "
        "C(column)",
    ),
    "something else": ("true or false", "write the column in one way"),
    "large integers": ("integers up to 2**53", f"float64 would round them: {_OMIT}, or rescale it"),
    "levels of too many digits": (
        "levels of at most 15 digits",
        "float64 would take several for one: save the column as text in a Parquet file, as "
        "pandas.read_csv(..., dtype={'column': str}) reads it",
    ),
    "infinite values": ("finite numbers", "remove or replace them"),
    "negative weights": ("weights of at least 0", "correct the column given to --weight"),
    "fractions or negative numbers": (
        "whole numbers of at least 0",
        "correct the counts; proportions go into --response, their trials into --weight and not "
        "into --trials",
    ),
    "more successes than trials": ("at most as many successes as trials", "correct the counts"),
    "marks of censoring other than 0 and 1": (
        "0 or 1",
        "write 1 where the event had not happened by the time of the row, and 0 where it had",
    ),
    "times of 0 or less": (
        "times above 0 with --censored",
        "correct the times, or leave such rows out",
    ),
    "huge weights": ("weights of at most 2**53", "rescale the column given to --weight"),
    "unseen levels": (
        "levels that were there when the formula was fitted",
        "recode them, or ingest a table that has them",
    ),
    "values out of bounds": (
        "values within the bounds of the spline",
        "give bounds and extrapolation in the formula, or leave such rows out",
    ),
    "undefined results": ("finite numbers", "correct the data, or the formula"),
    "missing row ids": (
        "an id in every row",
        "fill them in, or name another column with --row-id (in Python row_id=...)",
    ),
    "unusable row ids": (
        "whole numbers within 64 bits, or texts of at most 256 bytes",
        "name another column with --row-id (in Python row_id=...)",
    ),
    "missing group labels": (
        "a label in every row",
        "leave such rows out with --drop-missing (in Python drop_missing=True), or fill them in",
    ),
    "unusable group labels": (
        "whole numbers within 64 bits, or texts of at most 256 bytes",
        "write shorter labels into the table, or name another column",
    ),
    "missing values without a stand-in": (
        "no missing values",
        "of a factor of text they become a level and of numbers their mean stands for them, right "
        "of the formula and where the table of the fit had some; leave such rows out with "
        "--drop-missing (in Python drop_missing=True), or fill them in",
    ),
    "missing texts": (
        "no missing values",
        "leave such rows out with --drop-missing (in Python drop_missing=True), or keep them with "
        f"--missing-as level (missing_as='level'); or, {QUOTE}",
    ),
    "missing values": (
        "no missing values",
        "leave such rows out with --drop-missing (in Python drop_missing=True), keep them in a "
        "formula with --missing-as (missing_as=), or fill them in",
    ),
}


@dataclass
class Fault:
    """One kind of fault in one column."""

    count: int
    row: int
    """Number of the first row with the fault, from 0, over all sources."""
    example: str


class Faults:
    """Faults by kind and column."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Fault] = {}
        self._texts: dict[str, dict[str, None]] = {}

    def __bool__(self) -> bool:
        """Return whether any fault was recorded."""
        return bool(self._found)

    def add(
        self, kind: str, column: str, start: int, bad: NDArray[np.bool_], values: object
    ) -> None:
        """Record the rows with ``bad`` (m,) true; ``start`` is the number of the first row.

        ``values`` is indexed by position for an example.
        """
        positions = np.flatnonzero(bad)
        if positions.size == 0:
            return
        first = int(positions[0])
        self.count(kind, column, start + first, int(positions.size), values[first])  # type: ignore[index]

    def note_texts(self, column: str, texts: Callable[[], Iterable[str]]) -> None:
        """Keep the first different texts of a column of which some rows are faults."""
        known = self._texts.setdefault(column, {})
        if len(known) < _MOST_TEXTS:
            known |= dict.fromkeys(islice(texts(), _MOST_TEXTS))

    def count(self, kind: str, column: str, row: int, count: int, example: object) -> None:
        """Record ``count`` rows with a fault; ``row`` is the number of the first of them."""
        assert kind in _KINDS, kind  # another would never be refused
        key = (kind, column)
        if key in self._found:
            self._found[key].count += count
        else:
            # Columns are float64 here: 3.0 may be 3 in the table.
            self._found[key] = Fault(count, row, str(example).removesuffix(".0"))

    def refuse(
        self,
        locate: Callable[[int], str],
        roles: Mapping[str, str] | None = None,
        of_text: str | None = None,
    ) -> None:
        """Raise an error for the first kind of fault recorded, with its columns; else return.

        ``locate`` returns ``"row 3 of flights.csv, counted from 1"`` or the like for a row number.
        ``roles`` has ``"response"``, ``"weight"`` and so on, of each column that is not a feature.
        ``of_text`` is the advice for text and dates, where the usual one does not help.
        """
        for kind, (expected, _) in _KINDS.items():
            columns = {
                column: fault for (what, column), fault in self._found.items() if what == kind
            }
            if not columns:
                continue
            column, fault = next(iter(columns.items()))
            rows = "1 row" if fault.count == 1 else f"{fault.count} rows"
            shown = "" if kind.startswith("missing") else f" ({_short(fault.example)})"
            others = [repr(name) for name in columns if name != column]
            more = f"; also in {', '.join(others[:3])}" if others else ""
            more += f" and {len(others) - 3} more columns" if len(others) > 3 else ""
            texts = self._texts.get(column, ())
            advice = advice_for(kind, column, (roles or {}).get(column), texts)
            if of_text is not None and kind in ("text", "dates"):
                advice = of_text.replace("'column'", repr(column))
            raise DataError(
                f"expected {expected} in column {column!r}, found {kind} in {rows}, "
                f"first in data {locate(fault.row)}{shown}{more}: {advice}"
            )


def advice_for(kind: str, column: str, role: str | None = None, texts: Collection[str] = ()) -> str:
    """Return the advice for a kind of fault in a column; without ``role`` it is a feature.

    ``texts`` are different texts in the column.
    """
    name = column if column.isidentifier() else f"`{column}`"
    if role is None or kind not in ("text", "dates", "large integers"):
        return _KINDS[kind][1].replace("(column)", f"({name})")
    if kind == "dates":
        return f"write {_DAYS} into the table first"
    if kind == "large integers":
        return "float64 would round them: rescale the column"
    if role != "response":
        return f"correct the column given to --{role}"
    if not all(_IN_A_FORMULA.fullmatch(text) for text in (column, *texts)):
        return "write the response as 0 and 1"
    one = success_of(texts)
    if len(texts) == 2 and one is not None:
        (other,) = {*texts} - {one}
        what = f"count {one!r} as 1 and {other!r} as 0"
    else:
        what = "name the value that counts as 1"
    return (
        f"write the response as 0 and 1, or {what} in a formula: "
        f"--formula 'I({name} == \"{one or 'VALUE'}\") ~ ...'"
    )


def success_of(texts: Collection[str]) -> str | None:
    """Return the text that names the success of a yes/no response; ``None`` if none does.

    Of two texts without such a word, it is the second in their order, as in R's ``glm``.

    Examples
    --------
    >>> success_of(["Yes", "no"]), success_of(["late", "not late"]), success_of(["a", "b", "c"])
    ('Yes', 'late', None)
    """
    words = {text: text.strip().casefold() for text in texts}
    yes = [text for text, word in words.items() if _YES.fullmatch(word)]
    if len(yes) == 1:
        return yes[0]
    others = [text for text, word in words.items() if not _NO.fullmatch(word)]
    if len(words) != 2:
        return None
    if len(others) == 1:
        return others[0]
    for text, word in words.items():
        (other,) = (each for each in words.values() if each != word)
        if other.endswith(word) and _NOT.fullmatch(other.removesuffix(word)):
            return text
    return max(texts)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
