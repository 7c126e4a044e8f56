"""A formula runs nothing: neither the user's own, nor one that a store brings along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import formulaic
import numpy as np
import pandas as pd
import pytest
from command_line import streammc

from streammc.errors import ConfigError, StoreError
from streammc.stores import open_store
from streammc.stores.formula.fitted import read_design
from streammc.stores.formula.parser import read_terms
from streammc.stores.ingest.ingestion import from_table, ingest
from streammc.stores.ingest.new_rows import encode_rows

CANARY = "canary"
RUN = f"__import__('os').mkdir('{CANARY}')"
"""What must not happen: Python that leaves a directory."""
HOSTILE = [
    f"y ~ {RUN}",
    f"y ~ I({RUN})",
    f"y ~ {{{RUN}}}",
    f"y ~ x + C({RUN})",
    f"{RUN} ~ x",
    f"log({RUN}) ~ x",
    "y ~ x.__class__",
    "y ~ I(x.__class__.__bases__[0].__subclasses__())",
    "y ~ np.random.rand()",
    f"y ~ np.os.mkdir('{CANARY}')",
    f"y ~ I((lambda: {RUN})())",
    f"y ~ I([{RUN} for i in x])",
    f"y ~ I({{{RUN}: 1}})",
    f"y ~ I(x if {RUN} else x)",
    f"y ~ I(z := {RUN})",
    f"y ~ I(f'{{{RUN}}}')",
    f'y ~ I(x == f"{{{RUN}}}")',
    f'y ~ eval("{RUN.replace(chr(39), "")}")',
    "y ~ I(exec('import os; os.mkdir(1)'))",
    f"y ~ open('{CANARY}', 'w')",
    f"y ~ C(x, levels=[open('{CANARY}', 'w')])",
    f"y ~ C(x, contr.treatment(open('{CANARY}', 'w')))",
    "y ~ C(x, contr.poly.__init__)",
    f"y ~ C(x, contr.sum(open('{CANARY}', 'w')))",
    "y ~ C(x, contr.treatment.__init__)",
    f"y ~ bs(x, df=open('{CANARY}', 'w'))",
    f"y ~ bs(x, **{{'df': {RUN}}})",
    f"y ~ bs(*[{RUN}])",
    f"y ~ bs(x, _state={RUN})",
    "y ~ hashed(x, levels=2, hash_func=open)",
    f"y ~ `x`; {RUN}",
    f"y ~ I(`x`)[{RUN}]",
    f"y ~ log(`x\\` + {RUN} + \\``)",
    f"y ~ [x ~ {RUN}]",
    "y ~ x | z",
    "y ~ .",
    "y ~ I(x)\n\nimport os",
    "y ~ I(x # comment\n)",
    "y ~ I('%s' % x)",
    "y ~ I(x ^ x)",
    "y ~ I(x and x)",
    "y ~ I(not x)",
    "y ~ I(x < x < x)",
    "y ~ I(1j)",
    "y ~ I(x, x)",
    "y ~ I((x, x))",
    "y ~ I(...)",
    "y ~ I(await_ (x))",
    "y ~ ｏｐｅｎ(x)",
    "y ~ I(\u202ex)",
    "y ~ __builtins__",
    "y ~ None",
    "y ~ " + "(" * 200 + "x" + ")" * 200,
    "y ~ " + "I(" * 50 + "x" + ")" * 50,
    "y ~ x" + " + x" * 10_000,
    "y ~ " + "x+" * 4_000 + "x",
    "y ~ " + "x:" * 4_000 + "x",
    "y ~ I(" + "x+" * 4_000 + "x)",
    "y ~ I(" + "-" * 4_000 + "x)",
    "y ~ I(" + "x**" * 2_000 + "x)",
    "y ~ I(" + "x<" * 4_000 + "x)",
    "y ~ (a + b + c + d + e + f + g) ** 99",
    "y ~ " + " * ".join(f"x{i}" for i in range(40)),
    "y ~ I(9" + "9" * 5_000 + " * x)",
]
COLUMNS = ["y ~ I(np)", "y ~ os", f'y ~ I(`x") + {RUN} + ("`)', f"y ~ I(`{RUN}`)"]
"""Names, whatever is in them: there is no such column."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work where a canary would appear, and look that there is none."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / CANARY).exists()


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {"y": rng.integers(0, 2, 50), "x": rng.normal(size=50), "g": ["a", "b"] * 25}
    )


def test_the_canary_appears_where_formulaic_runs_the_formula(folder: Path) -> None:
    formulaic.model_matrix(f"y ~ {{{RUN}}}", frame())
    (folder / CANARY).rmdir()


@pytest.mark.parametrize("formula", HOSTILE)
def test_a_hostile_formula_is_refused_before_anything_is_read(formula: str) -> None:
    with pytest.raises(ConfigError, match="formula") as error:
        read_terms(formula)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError):
        from_table({"y": [1.0]}, formula=formula)


@pytest.mark.parametrize("formula", HOSTILE)
def test_the_command_line_exits_with_2(formula: str, folder: Path) -> None:
    if "\0" in formula:
        pytest.skip("no argument of a program")
    frame().to_csv(folder / "t.csv", index=False)
    result = streammc("ingest", "t.csv", "s.zarr", "--formula", formula)
    assert (2, "") == (result.code, result.out)
    assert 1 == result.err.count("\n")
    assert not (folder / "s.zarr").exists()


@pytest.mark.parametrize("formula", COLUMNS)
def test_a_hostile_name_is_a_column_that_does_not_exist(formula: str, folder: Path) -> None:
    frame().to_csv(folder / "t.csv", index=False)
    result = streammc("ingest", "t.csv", "s.zarr", "--formula", formula)
    assert (65, "") == (result.code, result.out)
    assert "expected the column" in result.err


@pytest.mark.parametrize("formula", [*HOSTILE, *COLUMNS])
def test_a_store_with_a_hostile_formula_is_refused(
    formula: str, folder: Path, edit: Callable[..., None]
) -> None:
    ingest(frame(), folder / "s.zarr", formula="y ~ center(x) + C(g)")
    attributes = dict(open_store(folder / "s.zarr").attributes)

    def tamper(document: dict[str, Any]) -> None:
        document["attributes"]["streammc"]["formula"]["text"] = formula

    edit(folder / "s.zarr", "zarr.json", tamper)
    for command in (["info"], ["verify"], ["summarize", "--model", "logistic"]):
        result = streammc(command[0], "s.zarr", *command[1:])
        assert 65 == result.code
        assert "Traceback" not in result.err
    attributes["formula"] = attributes["formula"] | {"text": formula}
    with pytest.raises(StoreError, match="formula"):
        list(encode_rows(attributes, frame()))


def tampered(**changes: Any) -> dict[str, Any]:
    document = from_table(
        frame(), formula="y ~ center(x) + C(g) + bs(x, df=5) + poly(x, 2) + cr(x, df=4)"
    ).attributes["formula"]
    for name, value in changes.items():
        states = {key: dict(state) for key, state in document["states"].items()}
        document = document | {"states": states} | ({name: value} if name in document else {})
        for state in states.values():
            if name in state:
                state[name] = value
    return document


STATES: list[dict[str, Any]] = [
    {"text": None},
    {"text": ["y ~ x"]},
    {"text": {"y ~ x": 1}},
    {"columns": None},
    {"columns": {"x": RUN}},
    {"columns": {}},
    {"states": None},
    {"states": {}},
    {"states": {"os": {}}},
    {"levels": []},
    {"levels": "ab"},
    {"levels": ["a", "a"]},
    {"levels": [["a"], "b"]},
    {"levels": [{"a": RUN}, "b"]},
    {"levels": [None]},
    {"levels": list(range(5_000))},
    {"levels": [float("nan"), "b"]},
    {"reference": "c"},
    {"center": "0"},
    {"center": float("inf")},
    {"scale": 0},
    {"knots": RUN},
    {"knots": [0.0]},
    {"knots": [1.0, 0.0]},
    {"knots": [0.0, None]},
    {"knots": [0.0] * 20_000},
    {"lower_bound": "0"},
    {"upper_bound": None},
    {"alpha": [0.0]},
    {"alpha": {"0": RUN}},
    {"norms2": [1.0, -1.0, 1.0]},
    {"constraints": RUN},
    {"cyclic": True},
]


@pytest.mark.parametrize("changes", STATES)
def test_a_tampered_state_is_refused(changes: dict[str, Any]) -> None:
    read_design(tampered(), "a store")
    with pytest.raises(StoreError, match="formula"):
        read_design(tampered(**changes), "a store")


def test_an_allowed_formula_is_never_evaluated_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("evaluated")

    monkeypatch.setattr(formulaic.materializers.base, "stateful_eval", never)
    formula = "log(y + 1) ~ C(g, contr.treatment('b')) * bs(x, df=5) + I(x ** 2) + poly(x, 2)"
    assert 13 + 1 + 0 <= len(from_table(frame(), formula=formula).feature_names)
    with pytest.raises(formulaic.errors.FormulaicError):
        formulaic.model_matrix(formula, frame())


@pytest.mark.parametrize("name", ["a b", "a.b", "lambda", "__import__", "1", "a'b", 'a"b', "x~y"])
def test_a_column_of_any_name_is_only_looked_up(name: str) -> None:
    table = frame().rename(columns={"x": name})
    if name == "1":
        with pytest.raises(ConfigError, match="rename"):
            from_table(table, formula=f"y ~ `{name}`")
        return
    for formula, expected in ((f"y ~ `{name}`", name), (f"y ~ exp(`{name}`)", f"exp(`{name}`)")):
        assert ("Intercept", expected) == from_table(table, formula=formula).feature_names
