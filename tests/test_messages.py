"""The list of error messages: every case passes its check, and the check finds faults."""

import numpy as np
import pytest
from bad_inputs import check, outcome, parts


@pytest.fixture(scope="module")
def areas():
    return check.run_areas()


@pytest.mark.slow
def test_every_case_makes_an_error_whose_message_has_three_parts(areas):
    outcomes = [each for found in areas.values() for each in found]
    assert len(outcomes) > 900
    assert [] == [(each.case, each.faults, each.message) for each in outcomes if each.faults]


def test_cases_of_priors_and_samplers_are_right():
    from streammc import models, priors, samplers

    names = {"models": models, "np": np, "priors": priors, "samplers": samplers}
    cases = [case for area in ("priors", "samplers") for case in check.cases_of(area)]
    assert len(cases) > 150
    found = [outcome.run_case(case, names) for case in cases]
    assert [] == [(each.case, each.faults, each.message) for each in found if each.faults]


MESSAGES = {
    "expected 3 columns, found 2: drop it or not": ["does not say what to do"],
    "expected 3 columns, found 2": ["does not say what to do"],
    "the file is damaged; restore it from a copy": [
        "does not say what was expected",
        "does not say what was found",
    ],
    "expected a store at 'a', found nothing: check\nthe path": ["is not one line"],
    "": [
        "is not one line",
        "does not say what was expected",
        "does not say what was found",
        "does not say what to do",
    ],
    "expected a store at 'a', found nothing: check the path": [],
    "draws must be at least 1, found 0; give a larger number": [],
    "Invalid value for '--draws': 0 is not in the range x>=1 (see 'streammc sample --help')": [],
}


@pytest.mark.parametrize("message", MESSAGES)
def test_check_reports_a_message_without_one_of_its_three_parts(message):
    assert MESSAGES[message] == parts.missing_parts(message)


def test_check_reports_foreign_errors_and_cases_without_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"priors": __import__("streammc.priors").priors}
    run = outcome.run_case
    assert run("{}['a']", names).faults == ("is no error of streammc",)
    assert run("None < 1", names).faults == ("is no error of streammc",)
    assert run("1 + 1", names).faults == ("makes no error",)
    assert run("streammc models", names).faults == ("makes no error",)
    assert run("priors.normal(scale=-1)", names).faults == ()


def test_an_internal_error_of_a_command_is_a_fault(tmp_path, monkeypatch):
    from streammc.cli import inspect

    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    monkeypatch.setattr(inspect, "kind_of", lambda path: {}["kind"])
    assert "is an internal error" in outcome.run_case("streammc info s", {}).faults
