"""Facts of an object: a small table in a notebook, or items as in its JSON.

The table stands alone: its style is inside, in the colours of the page around it, so that it is
readable on a light and on a dark background.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from html import escape
from typing import Any, Final

_MOST: Final = 12
"""Items of a list that are shown; the rest is counted."""
_BOX: Final = (
    "border:1px solid color-mix(in srgb, currentColor 30%, transparent);border-radius:4px;"
    "padding:.4em .7em;display:inline-block;max-width:48em;overflow-x:auto"
)
_NAME: Final = (
    "text-align:left;vertical-align:top;padding:.1em 1em .1em 0;font-weight:normal;opacity:.75"
)
_VALUE: Final = "text-align:left;padding:.1em 0;overflow-wrap:anywhere"


class Shown:
    """Base class of objects that show themselves in a notebook."""

    __slots__ = ()

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return the title, and the facts to show: name -> text, number or list of texts."""
        return type(self).__name__, {}

    def _repr_html_(self) -> str:
        """Return the facts as an HTML table, for a notebook."""
        return html_table(*self._shown())


def options_of(owner: Any) -> dict[str, str]:
    """Return the fields of a dataclass that differ from their defaults: name -> text."""
    found = {}
    for each in fields(owner):
        value = getattr(owner, each.name)
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        if each.repr and value != default:
            found[each.name] = repr(value)
    return found


def html_table(title: str, facts: Mapping[str, Any]) -> str:
    """Return facts as HTML; everything is escaped, and ``None`` is left out.

    Examples
    --------
    >>> "&lt;b&gt;" in html_table("Store", {"features": ["<b>"]})
    True
    """
    rows = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(name)}</th>'
        f'<td style="{_VALUE}">{escape(value_text(value))}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return (
        f'<div class="streammc" style="{_BOX}"><strong>{escape(title)}</strong>'
        f'<table style="border:0;margin:.2em 0 0">{rows}</table></div>'
    )


def value_text(value: Any) -> str:
    """Return a fact as text: numbers with separators, long lists cut."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(value_text(item) for item in value[:_MOST])
        return f"{shown}, ... ({len(value):,} in all)" if len(value) > _MOST else shown
    return str(value)


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
