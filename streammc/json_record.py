"""Records of results: frozen dataclasses with access by attribute, or by key as in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any


class Record(Mapping[str, Any]):
    """Base class of frozen dataclasses whose items are the entries of their JSON.

    A field whose default is ``None`` is in the JSON only if it is set.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object, with the fields in their order."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}  # type: ignore[arg-type]
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, (value, default) in values.items()
            if value is not None or default is not None
        }

    def __getitem__(self, key: str) -> Any:
        return self.to_json()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_json())

    def __len__(self) -> int:
        return len(self.to_json())
