"""A real data set that travels with the package; see ``ATTRIBUTION.md`` for its source."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

RESPONSE: Final = "signal"
"""Name of the response column: 1 for a Higgs boson, 0 for background."""


def path() -> Path:
    """Return the path of ``higgs11k.csv.gz``: 10,984 rows, a 0/1 response, 28 features.

    Examples
    --------
    >>> from streammc.demo_data import path
    >>> path().name
    'higgs11k.csv.gz'
    """
    return Path(str(files("streammc.demo_data") / "higgs11k.csv.gz"))
