"""Files of a table that are named more than once are read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streammc.stores.sources.input_files import InputFile
from streammc.trace.local_path import real_place


def distinct_files(parts: Sequence[Any]) -> list[Any]:
    """Return parts of a table without files that a path, a pattern or a link names again.

    A file below other folders ``name=value`` is kept, since their columns differ.
    """
    once: dict[Any, Any] = {}
    for part in parts:
        known = isinstance(part, InputFile)
        once.setdefault((real_place(part.path), part.partitions) if known else object(), part)
    return list(once.values())
