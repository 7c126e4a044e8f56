"""Node types of the expressions in a formula."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    name: str


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class Text:
    """A string that a column is compared with."""

    value: str


@dataclass(frozen=True)
class Operation:
    """Arithmetic, a sign or a comparison."""

    operator: str
    """Such as ``+``, ``negative`` or ``<=``."""
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Call:
    """An allowed function of one expression, such as ``bs``, and its further arguments."""

    function: str
    argument: Node
    options: tuple[tuple[str, Any], ...]
    label: str = field(compare=False)
    """Text of the call, as formulaic writes it."""


Node = Column | Number | Text | Operation | Call


def label(node: Node) -> str:
    """Return the label of a column or call: a factor of a term is one of these two."""
    assert isinstance(node, (Column, Call))
    return node.label if isinstance(node, Call) else node.name


def columns_of(node: Node) -> list[str]:
    """Return the columns of the table that an expression needs."""
    return list(dict.fromkeys(part.name for part in walk(node) if isinstance(part, Column)))


def walk(node: Node) -> list[Node]:
    """Return the expression and all its parts, the innermost first."""
    if isinstance(node, Operation):
        return [*(part for child in node.arguments for part in walk(child)), node]
    return [*walk(node.argument), node] if isinstance(node, Call) else [node]
