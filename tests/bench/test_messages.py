"""The list of error messages: every case passes its check, and the check finds faults."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from bench.messages import check, outcome, page, parts, sites, without_case

        yield SimpleNamespace(
            check=check, outcome=outcome, page=page, parts=parts, sites=sites,
            without_case=without_case,
        )  # fmt: skip
    for name in [name for name in sys.modules if name.split(".")[0] == "bench"]:
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def areas(bench):
    return bench.check.run_areas()


@pytest.mark.slow
def test_every_case_makes_an_error_whose_message_has_three_parts(areas):
    outcomes = [each for found in areas.values() for each in found]
    assert len(outcomes) > 900
    assert [] == [(each.case, each.faults, each.message) for each in outcomes if each.faults]


@pytest.mark.slow
def test_every_error_of_the_sources_has_a_case_or_a_reason(bench, areas):
    assert [] == bench.check.uncovered(each for found in areas.values() for each in found)


def test_cases_of_priors_and_samplers_are_right(bench):
    from streammc import models, priors, samplers

    names = {"models": models, "np": np, "priors": priors, "samplers": samplers}
    cases = [case for area in ("priors", "samplers") for case in bench.check.cases_of(area)]
    assert len(cases) > 150
    found = [bench.outcome.run_case(case, names) for case in cases]
    assert [] == [(each.case, each.faults, each.message) for each in found if each.faults]


def test_the_tables_list_every_case_of_their_area(bench):
    listed = {path: path.read_text() for path in bench.page.FOLDER.glob("*.md")}
    cases = {area: list(bench.check.cases_of(area)) for area in bench.check.AREAS}
    assert sum(map(len, cases.values())) > 900
    assert set(listed) == set(bench.page.pages(dict.fromkeys(cases, ()))) - {bench.page.PAGE}
    for area, found in cases.items():
        table = listed[bench.page.FOLDER / f"{area.replace('_', '-')}.md"]
        rows = [f"\n| {bench.page.cell(case)} | " for case in found]
        assert [] == [row for row in rows if row not in table], area


def test_a_table_has_one_line_for_an_input(bench):
    message = "expected | or *x*,\nfound <~"
    outcome = bench.outcome.Outcome("a | b\nc `d`", "65", message, frozenset(), ())
    pages = bench.page.pages({"some_area": [outcome]})
    table = pages[bench.page.FOLDER / "some-area.md"].splitlines()
    row = "| `` a \\| b c `d` `` | exit 65: expected \\| or \\*x\\*, found &lt;&#126; |"
    assert row == table[-1]
    assert "(messages/some-area.md) | 1 |" in pages[bench.page.PAGE]


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
def test_check_reports_a_message_without_one_of_its_three_parts(bench, message):
    assert MESSAGES[message] == bench.parts.missing_parts(message)


def test_check_reports_foreign_errors_and_cases_without_an_error(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"priors": __import__("streammc.priors").priors}
    run = bench.outcome.run_case
    assert run("{}['a']", names).faults == ("is no error of streammc",)
    assert run("None < 1", names).faults == ("is no error of streammc",)
    assert run("1 + 1", names).faults == ("makes no error",)
    assert run("streammc models", names).faults == ("makes no error",)
    assert run("priors.normal(scale=-1)", names).faults == ()


def test_an_internal_error_of_a_command_is_a_fault(bench, tmp_path, monkeypatch):
    from streammc.cli import inspect

    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    monkeypatch.setattr(inspect, "kind_of", lambda path: {}["kind"])
    assert "is an internal error" in bench.outcome.run_case("streammc info s", {}).faults


SOURCE = """
def check(value):
    if value < 1:
        raise ConfigError(f"value must be at least 1, found {value!r}: raise it")
    raise refused(value)

def refused(value):
    return DataError("expected a value")
"""


def test_sites_are_raise_statements_and_errors_made_elsewhere(bench):
    found = bench.sites.sites_of(SOURCE, "a.py", {"ConfigError", "DataError"})
    assert [
        ("check", 4, "value must be at least 1, found '{}': raise it"),
        ("check", 5, "refused(value)"),
        ("refused", 8, "expected a value"),
    ] == [(site.function, site.first, site.text) for site in found]


def test_check_reports_a_raise_site_without_case_or_reason(bench):
    sites = bench.sites.sites_of(SOURCE, "a.py", {"ConfigError", "DataError"})
    outcome = bench.outcome.Outcome("", "", "", frozenset({("a.py", 4), ("a.py", 5)}), ())
    known = bench.without_case.REASONS
    left = [line for line in bench.check.uncovered([outcome], sites) if line.startswith("no case")]
    assert ["no case: a.py:8 refused: expected a value"] == left
    stale = [line for line in bench.check.uncovered([outcome], sites) if "any more" in line]
    assert len(known) == len(stale)


@pytest.mark.slow
def test_check_reports_a_new_raise_site_in_the_sources(bench, areas):
    outcomes = [each for found in areas.values() for each in found]
    new = bench.sites.Site("streammc/new.py", "new", 1, 2, "expected nothing")
    problems = bench.check.uncovered(outcomes, [*bench.sites.all_sites(), new])
    assert ["no case: streammc/new.py:1 new: expected nothing"] == problems
