"""Formulas with placeholders for columns and calls, as formulaic is given them."""

from __future__ import annotations

import re
from typing import Final

from streammc.errors import ConfigError
from streammc.stores.formula.allowed_calls import parse_expression
from streammc.stores.formula.group_terms import cut_groups
from streammc.stores.formula.nodes import Call, Column, Node
from streammc.stores.formula.tokens import Token, refused, tokenize

_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def with_placeholders(text: object, nodes: dict[Node, str]) -> list[str]:
    """Return the tokens of a formula with a placeholder for each column and call."""
    tokens, _ = cut_groups(tokenize(text))
    if not tokens:
        raise ConfigError(
            "expected a formula 'response ~ terms', found an empty one: write one such as 'y ~ x'"
        )
    pieces: list[str] = []
    index = 0
    while index < len(tokens):
        kind, word, position = tokens[index]
        end = index + 1
        if kind in ("name", "column"):
            if pieces and pieces[-1] in nodes.values():
                advice, last = "write an operator such as + before it", tokens[index - 1]
                if kind == last.kind == "name":
                    name = f"`{last.text} {word}`"
                    advice += f", or one column whose name has spaces in backquotes: {name}"
                raise refused(repr(word), position, advice)
            if kind == "name" and end < len(tokens) and tokens[end].text == "(":
                end = _closing(tokens, end) + 1
            node = parse_expression(tokens[index:end])
            if isinstance(node, (Column, Call)):
                word = nodes.setdefault(node, f"v{len(nodes)}_")
            else:
                raise refused(repr(word), position, "write a calculation as I(...)")
        elif kind == "string" or word in (",", "=", "<", ">", "<=", ">=", "==", "!=", "[", "]"):
            advice = "combine only terms outside of a function"
            if word == "=" and all(token.text != "~" for token in tokens):
                advice = "write '~' between the response and the terms"
            raise refused(repr(word), position, advice)
        elif kind == "number" and not _DECIMAL.fullmatch(word):
            raise refused(repr(word), position, "write it without an exponent")
        pieces.append("**" if word == "^" else word)
        index = end
    return pieces


def _closing(tokens: list[Token], start: int) -> int:
    """Return the index of the parenthesis that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index].kind == "operator":
            depth += (tokens[index].text in "([") - (tokens[index].text in ")]")
        if depth == 0:
            return index
    raise AssertionError("the tokens were checked")
