"""A table with another offset or another response than the run is refused, or warned of."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from mixed_runs import make_run

import streammc
from streammc import facts, from_table
from streammc.errors import IdentityError
from streammc.models import gaussian, poisson
from streammc.prediction import predictors
from streammc.runs.record import describe_design

rng = np.random.default_rng(1)
FRAME = pd.DataFrame({"x": rng.normal(size=80), "E": rng.uniform(1, 50, 80)})
FRAME["E2"], FRAME["lE"], FRAME["c"] = FRAME.E + 1, np.log(FRAME.E), rng.poisson(FRAME.E)
FRAME["y"] = np.exp(FRAME.x)
FRAME["z"] = FRAME.y


def a_run(folder, data):
    model = poisson() if data.attributes["offset"] else gaussian()
    size = len(model.labels(data.feature_names))
    return make_run(folder / "run", model, data, 0.1 * rng.normal(size=(2, 10, size)))


def checked(run, table):
    return predictors.check(
        *(describe_design(from_table(FRAME, **each).attributes) for each in (run, table))
    )


OTHERS = {
    "function": ({"formula": "c ~ x + offset(log(E))"}, {"formula": "c ~ x + offset(E)"}),
    "sum": (
        {"formula": "c ~ x + offset(log(E)) + offset(lE)"},
        {"formula": "c ~ x + offset(log(E)) + offset(log(lE + 1))"},
    ),
    "column": (
        {"response": "c", "features": ["x"], "offset": "lE"},
        {"response": "c", "features": ["x"], "offset": "E"},
    ),
    "column beside one formula": (
        {"formula": "c ~ x", "offset": "lE"},
        {"formula": "c ~ x", "offset": "E"},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_offset_is_refused_with_both_names(name):
    run, table = OTHERS[name]
    names = [from_table(FRAME, **each).attributes["offset"] for each in (run, table)]
    with pytest.raises(IdentityError) as refused:
        checked(run, table)
    assert f"expected the offset {names[0]!r} of the run, found {names[1]!r}" in str(refused.value)


@pytest.mark.parametrize(
    "written", ["c~offset( log( E ) )+x+offset(lE)", "c ~ x + offset(lE) + offset(log(E))"]
)
def test_the_same_offsets_in_another_order_fit(written):
    run = {"formula": "c ~ x + offset(log(E)) + offset(lE)"}
    assert checked(run, {"formula": written}) == []


@pytest.mark.parametrize("written", ["y ~ x", "I(y > 5) ~ x"])
def test_another_expression_of_the_response_is_refused(tmp_path, written):
    run = a_run(tmp_path, from_table(FRAME, formula="log(y) ~ x"))
    table = from_table(FRAME, formula=written)
    expected = rf"response 'log\(y\)' of the run, found '{written[0]}.* in the store: ingest"
    with pytest.raises(IdentityError, match=expected):
        streammc.predict(run, table, tmp_path / "p")
    with pytest.raises(IdentityError, match=expected):
        streammc.posterior_predictive(run, table)


@pytest.mark.parametrize(
    "options",
    [
        {"formula": "c ~ x + offset(log(E))"},
        {"response": "c", "features": ["x"], "offset": "lE"},
        {"formula": "log(y) ~ bs(x, df=4)"},
    ],
)
def test_a_table_made_like_the_store_fits(tmp_path, options):
    data = from_table(FRAME, **options)
    run = a_run(tmp_path, data)
    made = streammc.predict(run, from_table(FRAME, like=data), tmp_path / "p")
    assert np.isfinite(facts(made)["log_score"])
    lacking = FRAME.drop(columns=["c", "y"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing is scored
        table = from_table(lacking, like=data)
    assert facts(streammc.predict(run, table, tmp_path / "q"))["log_score"] is None


def test_another_column_as_the_response_is_scored_with_a_warning(tmp_path):
    run = a_run(tmp_path, from_table(FRAME, response="y", features=["x"]))
    other = from_table(FRAME, response="z", features=["x"])
    line = "response of the table is 'z', that of the run 'y': the scores hold only if"
    with pytest.warns(UserWarning, match=line):
        made = streammc.predict(run, other, tmp_path / "p")
    assert facts(made)["log_score"] is not None
    assert line in facts(made)["warnings"][0]
    with pytest.warns(UserWarning, match=line):
        streammc.posterior_predictive(run, other)


def test_an_offset_without_a_name_is_predicted_with_a_warning(tmp_path):
    named = {"response": "c", "features": ["x"], "offset": "lE"}
    data = from_table(FRAME, **named)
    arrays = from_table(FRAME.rename(columns={"lE": "offset"}), **named | {"offset": "offset"})
    run = a_run(tmp_path, data)
    with pytest.warns(UserWarning, match="offset of the table is 'offset', that of the run 'lE'"):
        made = streammc.predict(run, arrays, tmp_path / "p")
    assert np.isfinite(facts(made)["log_score"])


def test_a_run_that_does_not_record_its_response_predicts_as_before():
    run = describe_design(from_table(FRAME, formula="log(y) ~ x").attributes)
    table = describe_design(from_table(FRAME, formula="y ~ x").attributes)
    del run["response"]
    assert predictors.check(run, table) == []


def test_trials_are_asked_for_with_a_response_alone():
    counts = FRAME.assign(n=20, k=rng.integers(0, 20, len(FRAME)))
    fitted = from_table(counts, response="k", trials="n", features=["x"])
    with pytest.warns(UserWarning, match="can be predicted, not scored"):
        new = from_table(counts[["x"]], like=fitted)
    assert new.response is None
    assert [] == predictors.check(
        describe_design(fitted.attributes), describe_design(new.attributes)
    )
    other = from_table(counts, response="k", features=["x"])
    with pytest.raises(IdentityError, match="expected trials as in the store of the run"):
        predictors.check(describe_design(fitted.attributes), describe_design(other.attributes))
