"""Results: frozen dataclasses, read by attribute, or by key like the JSON that they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any


class Record(Mapping[str, Any]):
    """Base of a frozen dataclass whose items are the entries of its JSON.

    A field that is ``None`` by default stands in the JSON only where it was set.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON types: an entry per field, in the order of the fields."""
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
