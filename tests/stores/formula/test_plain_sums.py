"""A sum of columns is expanded as formulaic expands it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from streammc.likelihood.data_views import gather
from streammc.stores.formula import parser
from streammc.stores.formula.parser import read_terms
from streammc.stores.ingest.ingestion import from_table

FORMULAS = [
    "y ~ x",
    "y ~ 1 + x + z",
    "y ~ x + word + x",
    "I(y > 0) ~ `the month` + log(z) + I(x * z) + truth",
    "y ~ C(`the month`) + x + C(truth) + offset(z)",
    "y ~ C(word, contr.treatment('b')) + scale(x) + center(z) + C(share)",
    "y ~ C(`the month`, levels=[3, 1, 2]) + bs(x, df=4) + word",
]
OTHERS = ["y ~ x + 0", "y ~ x - 1", "y ~ x:z", "y ~ 1", "y ~ x + 2:z", "y ~ (x + z)", "y ~ x + 1"]


def table() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 3, 300),
            "x": rng.normal(size=300),
            "z": rng.uniform(1, 2, 300),
            "word": rng.choice(["c", "b", "a]"], 300),
            "the month": rng.integers(1, 4, 300),
            "truth": rng.random(300) < 0.5,
            "share": rng.choice([0.5, 1.0, 1e-7], 300),
        }
    )


def encoded(formula: str) -> tuple[list[str], np.ndarray]:
    store = from_table(table(), formula=formula, standardize=False, shuffle=False)
    return store.attributes["features"], gather(store, np.arange(store.n_rows)).X


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_sum_has_the_terms_and_columns_of_formulaic(formula, monkeypatch):
    found_terms, (names, design) = read_terms(formula), encoded(formula)
    from streammc.stores.formula import fitted

    fitted._columns.cache_clear()
    monkeypatch.setattr(parser, "summed", lambda *_: None)
    monkeypatch.setattr(fitted, "plain_columns", lambda *_: None)
    expected_names, expected_design = encoded(formula)
    fitted._columns.cache_clear()
    assert read_terms(formula) == found_terms
    assert expected_names == names
    np.testing.assert_array_equal(expected_design, design)


@pytest.mark.parametrize("formula", OTHERS)
def test_what_is_no_sum_of_columns_is_left_to_formulaic(formula):
    from streammc.stores.formula.parser import with_placeholders

    nodes: dict = {}
    assert parser.summed(with_placeholders(formula, nodes), nodes.values()) is None


def test_a_sum_does_not_import_formulaic():
    code = (
        "import sys\n"
        "from streammc.stores.formula.parser import read_terms\n"
        "read_terms('y ~ x + z')\n"
        "print('formulaic' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
