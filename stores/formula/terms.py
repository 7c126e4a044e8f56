"""The terms of a formula, expanded by formulaic unless it is a plain sum.

formulaic sees only placeholders for columns and calls, numbers and operators: it has nothing
to evaluate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streammc.errors import ConfigError
from streammc.stores.formula.allowed_calls import OUTER
from streammc.stores.formula.group_terms import GroupTerms, cut_groups
from streammc.stores.formula.nodes import Call, Column, Node, columns_of, label, walk
from streammc.stores.formula.placeholders import with_placeholders
from streammc.stores.formula.plain_sums import summed
from streammc.stores.formula.tokens import refused, tokenize

if TYPE_CHECKING:
    from formulaic import Formula

_MAX_TERMS: Final = 5000


class Term(NamedTuple):
    """A product of expressions, times a number."""

    factors: tuple[Node, ...]
    """Empty for the intercept."""
    scale: str


@dataclass(frozen=True)
class Terms:
    """A formula expanded into its response, offsets and terms."""

    text: str
    response: Node
    offsets: tuple[Call, ...]
    terms: tuple[Term, ...]
    groups: tuple[GroupTerms, ...] = ()
    """The random effects of each grouping column; they are no terms."""

    @property
    def intercept(self) -> bool:
        """Whether the formula has an intercept."""
        return any(not term.factors for term in self.terms)

    @property
    def factors(self) -> list[Node]:
        """The different expressions of the right side."""
        return list(dict.fromkeys(factor for term in self.terms for factor in term.factors))

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are needed to encode the right side."""
        nodes = [*self.factors, *self.offsets]
        return list(dict.fromkeys(name for node in nodes for name in columns_of(node)))


def read_nodes(text: object) -> list[Node]:
    """Check the columns and calls of a formula and return them, without expanding its terms.

    Raises
    ------
    ConfigError
        If something is not allowed; the message says what and where.
    """
    nodes: dict[Node, str] = {}
    with_placeholders(text, nodes)
    return list(nodes)


def read_groups(text: object) -> tuple[GroupTerms, ...]:
    """Return the random effects of a formula, of each grouping column.

    Raises
    ------
    ConfigError
        If they are not allowed; the message says what and where.
    """
    return cut_groups(tokenize(text))[1]


def read_terms(text: object) -> Terms:
    """Check a formula and expand it into terms.

    Raises
    ------
    ConfigError
        If something is not allowed; the message says what and where.
    """
    nodes: dict[Node, str] = {}
    pieces = with_placeholders(text, nodes)
    assert isinstance(text, str)
    if pieces.count("~") != 1 or pieces[0] == "~" or pieces[-1] == "~":
        raise ConfigError(
            f"expected a formula 'response ~ terms', found {text[:60]!r}: write one response left "
            "of one '~', and the terms right of it (1 for the intercept alone)"
        )
    by_name = {name: node for node, name in nodes.items()}
    plain = summed(pieces, by_name)
    if plain is not None:
        left, *sum_ = [Term((by_name[name],), "1") for name in (plain[0], *plain[1])]
        return _checked(text, [left], [Term((), "1"), *sum_])
    formula = _parse(" ".join(pieces), text)
    right = [_term(term, by_name) for term in formula.rhs]
    return _checked(text, [_term(term, by_name) for term in formula.lhs], right)


def _checked(text: str, left: list[Term], right: list[Term]) -> Terms:
    """Return both sides of a formula as :class:`Terms`; refuse what is not one model."""
    if len(left) != 1 or len(left[0].factors) != 1 or left[0].scale != "1":
        raise ConfigError(
            f"expected one response left of '~', found {text.split('~')[0].strip()[:60]!r}: "
            "write a calculation as I(...)"
        )
    offsets, terms = [], []
    for term in right:
        special = [node for node in term.factors if isinstance(node, Call) and _is_offset(node)]
        if special and (len(term.factors) > 1 or term.scale != "1"):
            raise ConfigError(
                "expected offset(...) as a term of its own, found it in a product"
                ": write it as + offset(...)"
            )
        if special:
            offsets.append(special[0])
        else:
            terms.append(term)
    if not terms:
        raise ConfigError(
            "expected at least one term or the intercept right of '~', found none"
            ": add a term, or 1 for the intercept alone"
        )
    groups = read_groups(text)
    found = Terms(text, left[0].factors[0], tuple(offsets), tuple(terms), groups)
    _check_response_and_names(found)
    return found


def refuse_powers(text: str) -> None:
    """Refuse ``x ** 2`` as a term: formula algebra reduces it to ``x``.

    Only new formulas are refused; stores that already have such a formula are still read.

    Raises
    ------
    ConfigError
        If there is such a term; the message says where, and what was probably meant.
    """
    tokens, depth = tokenize(text), 0
    for before, here, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        depth += (before.text == "(") - (before.text == ")")
        lone = before.kind in ("name", "column") and after.kind == "number" and depth == 0
        if lone and here.text in ("**", "^"):
            x, power = before.text, after.text
            advice = (
                f"a power of a term is the term itself; write I({x} ** {power}) or poly({x}, 2)"
            )
            raise refused(repr(here.text), here.position, advice)


@lru_cache(maxsize=16)
def _parse(source: str, text: str) -> Formula:
    """Return the terms of ``source``, the formula ``text`` with placeholders; nobody changes them.

    50 terms take 20 ms.
    """
    from formulaic import Formula
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(feature_flags={"twosided"})
    try:
        if _bound(parser.get_ast(source, context={})) > _MAX_TERMS:
            raise ConfigError(
                f"expected a formula of at most {_MAX_TERMS} terms, found more: leave out "
                "interactions, or write a lower power"
            )
        return Formula(source, _parser=parser)
    except RecursionError:
        raise ConfigError(
            "expected a formula of at most some hundred terms in a row, found more: put "
            "parentheses around groups of them"
        ) from None
    except (FormulaicError, ValueError, SyntaxError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"expected a formula that combines terms by + - : * / ** and ( ), found {text[:80]!r}: "
            "a number may only multiply a term, as in 2:x; write a product of columns with ':'"
        ) from None


def _bound(tree: Any) -> float:
    """Return an upper bound of the number of terms in the expansion of a syntax tree."""
    operator = getattr(tree, "operator", None)
    if operator is None:
        return 1
    sizes = [_bound(child) for child in tree.args]
    symbol = operator.symbol
    if symbol == "**" and len(sizes) == 2:
        power = str(tree.args[1])
        return float(min(sizes[0] ** int(power), 1e9)) if re.fullmatch("[0-9]{1,2}", power) else 1e9
    if symbol == ":":
        return prod(sizes)
    if symbol in ("*", "/"):
        return sum(sizes) + prod(sizes)
    return sum(sizes)


def _term(term: Any, by_name: dict[str, Node]) -> Term:
    nodes, scale = [], "1"
    for factor in term.factors:
        if factor.expr in by_name:
            nodes.append(by_name[factor.expr])
        else:
            scale = factor.expr
    return Term(tuple(nodes), scale)


def _is_offset(node: Call) -> bool:
    return node.function == "offset"


def _check_response_and_names(terms: Terms) -> None:
    """Refuse a multi-column response, a response on both sides, and ambiguous names.

    A slope of the groups must also be a term.
    """
    response = terms.response
    slopes = [groups.slope for groups in terms.groups if groups.slope is not None]
    slope = next((each for each in slopes if Term((each,), "1") not in terms.terms), None)
    if slope is not None:
        raise ConfigError(
            f"expected the slope {label(slope)!r} of the groups also as a term of the formula, "
            f"found none: add + {label(slope)}"
        )
    if isinstance(response, Call) and response.function in OUTER:
        raise ConfigError(
            f"expected one number per row left of '~', found {label(response)!r}: "
            "write a column or a calculation"
        )
    own = columns_of(response)
    if len(own) == 1 and own[0] in terms.columns:
        raise ConfigError(
            f"expected the response only left of '~', found {own[0]!r} also right of it: "
            "leave it out there"
        )
    nodes: dict[str, Node] = {}
    numbers = {"1", *(term.scale for term in terms.terms)}
    for factor in [*terms.factors, *terms.offsets, response]:
        for node in walk(factor):
            if isinstance(node, (Call, Column)):
                name = label(node)
                if nodes.setdefault(name, node) != node or name in numbers:
                    raise ConfigError(
                        f"expected different names of columns and terms, found {name!r} as a "
                        "column and a term: rename the column"
                    )
