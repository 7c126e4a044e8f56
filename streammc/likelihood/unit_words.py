"""Words for the units of a data set in texts for users, and the names of their probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

ROW: Final = "row"
GROUP: Final = "group"
_NAMED_ROWS: Final = re.compile(r"(?<![a-z])row(s?)(?![a-z])")
_ROWS: Final = re.compile(r"(?<![\[\w-])row(s?)(?![\]\w=-])")


def unit_of_model(described: Mapping[str, Any]) -> str:
    """Return the unit of the data of a model with this description by ``Model.describe``."""
    return GROUP if described.get("name") == "mixed" else ROW


def in_units(text: str, unit: str) -> str:
    """Return a text about rows as one about units; names in brackets and options stay.

    Examples
    --------
    >>> in_units("30 random rows, tau[row], row_id, --row", "group")
    '30 random groups, tau[row], row_id, --row'
    """
    return text if unit == ROW else _ROWS.sub(rf"{unit}\1", text)


def name_in_units(name: str, unit: str) -> str:
    """Return the name of a count of rows as one of units.

    Examples
    --------
    >>> name_in_units("certainty_rows", "group"), name_in_units("n_rows", "row")
    ('certainty_groups', 'n_rows')
    """
    return name if unit == ROW else _NAMED_ROWS.sub(rf"{unit}\1", name)


UNIFORM: Final = "uniform"
SCORES: Final = "scores"
