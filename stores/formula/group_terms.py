"""Random effects in a formula: ``(1 | g)``, ``(1 + x | g)``, ``(1 + x || g)``.

They are cut out of the tokens of a formula before its other terms are expanded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from streammc.errors import ConfigError
from streammc.stores.formula.allowed_calls import parse_expression
from streammc.stores.formula.nodes import Call, Column, Node, label
from streammc.stores.formula.tokens import Token, refused

_BARS = ("|", "||")


@dataclass(frozen=True)
class GroupTerms:
    """The random effects of one grouping column: an intercept, and at most one slope."""

    column: str
    slope: Node | None = None
    """A column of the design, by its label."""
    correlated: bool = True

    @property
    def terms(self) -> tuple[str, ...]:
        """``("1",)``, or ``("1", name)`` with the name of the slope's column of the design."""
        return ("1",) if self.slope is None else ("1", label(self.slope))

    def describe(self) -> dict[str, Any]:
        """Return column and terms as in the attribute ``groups`` of a store."""
        return {"column": self.column, "terms": list(self.terms), "correlated": self.correlated}


class _Bar(NamedTuple):
    """One ``(... | g)`` of a formula."""

    column: str
    intercept: bool
    slopes: list[Node]
    double: bool


def cut_groups(tokens: list[Token]) -> tuple[list[Token], tuple[GroupTerms, ...]]:
    """Return the tokens of a formula without its random effects, and those of each column.

    Raises
    ------
    ConfigError
        If a random effect is written wrongly or there are more than one intercept and one slope
        of a grouping column; the message says what to write.
    """
    rest: list[Token] = []
    bars: list[_Bar] = []
    index = 0
    while index < len(tokens):
        if tokens[index].text == "(" and (end := _end(tokens, index)):
            bars.append(_read(tokens[index + 1 : end]))
            if not rest or rest[-1].text not in ("+", "~"):
                raise _misplaced(tokens[index])
            following = tokens[end + 1].text if end + 1 < len(tokens) else ""
            if following not in ("", "+", "-"):
                raise _misplaced(tokens[end + 1])
            alone = rest[-1].text == "~"
            if not alone:
                rest.pop()
            index = end + 1 + (alone and following == "+")
            continue
        if tokens[index].kind == "operator" and tokens[index].text in _BARS:
            raise _misplaced(tokens[index])
        rest.append(tokens[index])
        index += 1
    if bars and rest[-1].text == "~":
        rest.append(Token("number", "1", rest[-1].position))
    columns = dict.fromkeys(bar.column for bar in bars)
    return rest, tuple(_combine([bar for bar in bars if bar.column == name]) for name in columns)


def _end(tokens: list[Token], start: int) -> int:
    """Return the index of the end of the parenthesis at ``start`` if it has a bar, else 0."""
    depth, found = 0, False
    for index in range(start, len(tokens)):
        kind, text, _ = tokens[index]
        if kind == "operator":
            depth += (text in "([") - (text in ")]")
            found |= depth == 1 and text in _BARS
        if depth == 0:
            return index if found else 0
    return 0


def _read(tokens: list[Token]) -> _Bar:
    """Return the effects and the column of the text between the parentheses."""
    middle = next(i for i, token in enumerate(tokens) if token.text in _BARS)
    right = tokens[middle + 1 :]
    if len(right) != 1 or right[0].kind not in ("name", "column"):
        shown = " ".join(token.text for token in right)[:60]
        raise ConfigError(
            f"expected one column of labels right of '|' in the formula, found {shown!r}: name a "
            "column; nested or combined factors go into the table as one column of labels"
        )
    intercept = True
    slopes: list[Node] = []
    for part in _summands(tokens[:middle]):
        text = " ".join(token.text for token in part)
        if text in ("0", "1"):
            intercept = text == "1"
            continue
        node = parse_expression(part) if part else None
        if not isinstance(node, (Column, Call)):
            raise refused(repr(text), tokens[middle].position, "write groups as (1 + x | g)")
        slopes.append(node)
    return _Bar(right[0].text.strip("`"), intercept, slopes, tokens[middle].text == "||")


def _summands(tokens: list[Token]) -> list[list[Token]]:
    """Return the tokens between the plus signs outside of parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "operator":
            depth += (token.text in "([") - (token.text in ")]")
        if token.text == "+" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _combine(bars: list[_Bar]) -> GroupTerms:
    """Return the effects of one grouping column."""
    column = bars[0].column
    slopes = [slope for bar in bars for slope in bar.slopes]
    if len(slopes) > 1:
        raise ConfigError(
            f"expected at most one slope of {column!r} in the formula, found "
            f"{label(slopes[0])!r} and {label(slopes[1])!r}: keep one"
        )
    intercepts = sum(bar.intercept for bar in bars)
    if intercepts != 1:
        found = "none" if intercepts == 0 else f"{intercepts}"
        slope = label(slopes[0]) if slopes else "x"
        raise ConfigError(
            f"expected one random intercept of {column!r} in the formula, found {found}: "
            f"write (1 | {column}), (1 + {slope} | {column}), or "
            f"(1 + {slope} || {column}) for an uncorrelated slope"
        )
    correlated = len(bars) == 1 and not (slopes and bars[0].double)
    return GroupTerms(column, slopes[0] if slopes else None, correlated)


def _misplaced(token: Token) -> ConfigError:
    advice = "write groups in parentheses as a term of their own, y ~ x + (1 | g)"
    return refused(repr(token.text), token.position, advice)
