"""Random effects in a formula: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from streammc.errors import ConfigError
from streammc.stores.formula.parser import label, read_nodes, read_terms

ACCEPTED = {
    "y ~ x + (1 | g)": (("1",), True, ["", "x"]),
    "y ~ (1|g)": (("1",), True, [""]),
    "y ~ (1|g) + x": (("1",), True, ["", "x"]),
    "y ~ (1 | g) - 1 + x": (("1",), True, ["x"]),
    "y ~ 0 + x + (1 | g)": (("1",), True, ["x"]),
    "y ~ x + (1 | g) - 1": (("1",), True, ["x"]),
    "y ~ x + (x | g)": (("1", "x"), True, ["", "x"]),
    "y ~ x + (1 + x | g)": (("1", "x"), True, ["", "x"]),
    "y ~ x + (x + 1 | `g`)": (("1", "x"), True, ["", "x"]),
    "y ~ x + (1 + x || g)": (("1", "x"), False, ["", "x"]),
    "y ~ x + (x || g)": (("1", "x"), False, ["", "x"]),
    "y ~ x + (1 | g) + (0 + x | g)": (("1", "x"), False, ["", "x"]),
    "y ~ (0 + x | g) + x + (1 | g)": (("1", "x"), False, ["", "x"]),
    "y ~ x + (1 || g)": (("1",), True, ["", "x"]),
    "y ~ log(x) + (1 + log(x) | g)": (("1", "log(x)"), True, ["", "log(x)"]),
    "y ~ x + z + (x + z | g)": (("1", "x", "z"), True, ["", "x", "z"]),
    "y ~ x + z + (1 + x + z || g)": (("1", "x", "z"), False, ["", "x", "z"]),
    "y ~ x + z + (1 | g) + (0 + z | g) + (0 + x | g)": (("1", "z", "x"), False, ["", "x", "z"]),
    "y ~ x + (0 + x | g)": (("x",), True, ["", "x"]),
    "y ~ x + z + (0 + x + z | g)": (("x", "z"), True, ["", "x", "z"]),
    "y ~ (a + b)**2 + (1 | g)": (("1",), True, ["", "a", "b", "a:b"]),
    "y ~ x + (x - 1 | g)": (("x",), True, ["", "x"]),
    "y ~ a * b + (a * b || g)": (("1", "a", "b", "a:b"), False, ["", "a", "b", "a:b"]),
    "y ~ a * b + (1 + a + b:a | g)": (("1", "a", "b:a"), True, ["", "a", "b", "a:b"]),
    "y ~ C(a) * x + ((C(a) + x) ** 2 - x | g)": (
        ("1", "C(a)", "C(a):x"),
        True,
        ["", "C(a)", "x", "C(a):x"],
    ),
}


@pytest.mark.parametrize("formula", ACCEPTED)
def test_random_effects_are_cut_out_of_the_terms(formula: str) -> None:
    terms = read_terms(formula)
    (groups,) = terms.groups
    effects = groups.terms, groups.correlated
    design = [":".join(label(factor) for factor in term.factors) for term in terms.terms]
    assert ("g", *ACCEPTED[formula]) == (groups.column, *effects, design)
    assert "g" not in terms.columns
    assert read_nodes(formula)


def test_a_formula_without_groups_has_none() -> None:
    assert read_terms("y ~ (a + b)**2 + I(x > 1)").groups == ()


def test_several_grouping_columns_have_effects_of_their_own() -> None:
    terms = read_terms("y ~ x + (1 | g) + (1 + x || h) + (1 | g2)")
    found = [(groups.column, groups.terms) for groups in terms.groups]
    assert [("g", ("1",)), ("h", ("1", "x")), ("g2", ("1",))] == found
    assert ["x"] == terms.columns


def test_nested_and_combined_columns_are_factors_of_their_own() -> None:
    for formula, expected in {
        "y ~ x + (1 | a/b)": {"a": ("a",), "a:b": ("a", "b")},
        "y ~ x + (1 | a/b/c)": {"a": ("a",), "a:b": ("a", "b"), "a:b:c": ("a", "b", "c")},
        "y ~ x + (1 | a:b) + (1 | g)": {"a:b": ("a", "b"), "g": ("g",)},
        "y ~ x + (1 | `a:b`)": {"a:b": ("a:b",)},
    }.items():
        found = {each.column: each.table_columns for each in read_terms(formula).groups}
        assert expected == found, formula
        assert ["x"] == read_terms(formula).columns


REFUSED = {
    "y ~ x + (1 | g) + (1 + z | h)": "the slope 'z' of the groups also as a term of the formula",
    "y ~ x + (x + x | g)": "one random slope of 'x' of 'g' in the formula, found several",
    "y ~ x + z + (1 + x | g) + (0 + z | g)": "all effects of 'g' correlated, .* or none of them",
    "y ~ x + (1 | g) + (1 | g)": "one random intercept of 'g' in the formula, found several",
    "y ~ x + (1 | g) + (x | g)": "one random intercept of 'g' in the formula, found several",
    "y ~ x + (0 | g)": "a random intercept or slopes of 'g' in the formula, found neither",
    "y ~ x + (1 | a/b/)": "found 'a / b /': name a column, or factors as a:b",
    "y ~ x + (1 | a:b/c)": "found 'a : b / c': name a column, or factors as a:b",
    "y ~ x + (1 | a + b)": "found 'a [+] b': name a column, or factors as a:b",
    "y ~ x + (1 | a/`b:c`)": "without ':' in their names in a combined factor, found 'b:c'",
    "y ~ x + (1 | C(g))": "name a column",
    "y ~ x + (1 | g | h)": "name a column",
    "y ~ x + (1 | )": "one column of labels",
    "y ~ x + ( | g)": "write groups as",
    "y ~ x + (x * | g)": "a formula that combines terms by",
    "y ~ x + (1 + x:x2 | g)": "the slope 'x:x2' of the groups also as a term of the formula",
    "y ~ x + (2:x | g)": "the slope '2:x' of the groups also as a term of the formula",
    "y ~ x + (x x | g)": "write an operator such as [+] before it",
    "y ~ x + (1 + z | g)": "the slope 'z' of the groups also as a term of the formula",
    "y ~ x:z + (1 + x | g)": "add [+] x",
    "y ~ x + 1 | g": "in parentheses as a term of their own",
    "y ~ x * (1 | g)": "in parentheses as a term of their own",
    "y ~ (1 | g):x": "in parentheses as a term of their own",
    "y ~ x - (1 | g)": "in parentheses as a term of their own",
    "y ~ x + ((1 | g))": "in parentheses as a term of their own",
    "y ~ log(x | g)": "in parentheses as a term of their own",
    "y ~ I((x | g))": "in parentheses as a term of their own",
    "(1 | g) ~ x": "in parentheses as a term of their own",
}


@pytest.mark.parametrize("formula", REFUSED)
def test_wrong_random_effects_are_refused_in_one_line(formula: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[formula]) as caught:
        read_terms(formula)
    assert "\n" not in str(caught.value)
