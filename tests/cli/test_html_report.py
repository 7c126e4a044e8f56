from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import snapshot, streammc
from crossed_tables import CROSSED, FORMULA, SAMPLERS_OF_ROWS, crossed_table
from quick import quick
from report_page import Page

import streammc as api
from streammc import registry
from streammc.cli import html_report
from streammc.trace.run_directory import RunDirectory

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

HOSTILE = "<script>alert(1)</script>"
MARKS = "$x^2$ \"'&<!--"


def written(*words: str | Path) -> Page:
    done = streammc("report", *words, "-o", "report.html", "--quiet")
    assert (0, "") == (done.code, done.err)
    return Page(Path("report.html").read_text(encoding="utf-8"))


def test_report_has_no_fault_and_loads_nothing(run: Path) -> None:
    page = written(run)
    assert [] == page.faults
    assert [1, 2, 3, 2] == page.headings[:4]
    assert page.tags.count("svg") >= 2


def test_faults_of_a_page_are_found() -> None:
    bad = (
        '<h1>a</h1><h3 id="x">b</h3><p id="x" onclick="go()"><svg></svg><img src="http://a/b">'
        '<a href="#lost"></a><script>1</script><style>@import "a"</style>'
    )
    faults = "; ".join(Page(bad).faults)
    for fault in (
        "id x repeats",
        "h1 is followed by h3",
        "p has onclick",
        "svg without a text alternative",
        "img loads src=http://a/b",
        "no element lost",
        "script is there",
        "p is open",
        "the style loads something",
        "a figure has no text",
    ):
        assert fault in faults, fault


def test_numbers_of_the_report_are_those_of_diagnose(run: Path) -> None:
    from streammc.cli.report import parameter_table

    page, found = written(run), streammc("diagnose", run, "--json").json
    for line in parameter_table(found["parameters_original"]).splitlines()[1:]:
        for word in line.split():
            assert word in page.text, line
    assert f"{found['sampling']['rows_read']:,}" in page.text
    for text in found["priors"]["parameters"].values():
        assert text in page.text
    assert found["run"].rpartition("/")[2] in page.text
    assert "3,000" in page.text


def test_report_says_the_verdict_of_its_json(run: Path) -> None:
    done = streammc("report", run, "-o", "report.html", "--json", "--quiet")
    text = Page(Path("report.html").read_text(encoding="utf-8")).text
    assert done.json["sentence"] in text
    assert done.json["verdict"] == "care"  # 120 draws are fewer than 400
    assert [line for line in done.json["reasons"] if line not in text] == []
    assert Path("report.html").stat().st_size == done.json["bytes"]


def test_the_page_opens_with_the_answer(run: Path, store: Path) -> None:
    page = written(run, store)
    places = [
        page.text.index(words)
        for words in (
            "Use these numbers with care",
            "What changes y: model logistic, fitted to 3,000 rows.",
            "Odds ratios: medians and 90 % intervals",
            "Change of the mean of y",
            "columns of the design",
            "Coefficients, on the scale of the table's columns",
            "R-hat compares them, and is 1 where they agree",
            "chosen because",
        )
    ]
    assert sorted(places) == places
    found = streammc("comparisons", run, store, "--json").json["comparisons"]
    assert ["x1", "x2"] == [each["term"] for each in found]
    for each in found:
        assert f"{each['estimate']:+.4f}" in page.text
    (shown,) = [text for text in page.alternatives if text.startswith("Odds ratios")]
    ratios = streammc("diagnose", run, "--json").json["ratios"]["parameters"]
    assert f"x1 +1: {ratios['x1']['median']:.4g}" in shown


@pytest.mark.filterwarnings("ignore::streammc.errors.SamplingWarning")
def test_averages_over_new_levels_are_on_the_page_unless_they_take_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _, _ = crossed_table("logistic")
    monkeypatch.chdir(tmp_path)
    store = api.from_table(rows, path=Path("t.zarr"), formula=FORMULA, group_as=CROSSED)
    api.sample(store, api.models.logistic(), path=Path("r"), seed=1, draws=50, warmup=50, chains=2)
    words = ("--variables", f"x={rows['x'].std():.2g}", "--json")
    (found,) = streammc("comparisons", "r", "t.zarr", *words).json["comparisons"]
    page = written("r")
    assert "Change of the mean of y" in page.text
    assert f"{found['estimate']:+.3f}" in page.text
    pairs = (1 + 2) ** 2  # the predictor, and the scales of two factors
    monkeypatch.setattr(html_report, "_MOST_ROWS", pairs * len(rows["x"]) - 1)
    page = written("r", "--overwrite")
    assert "so large a table take a while: streammc comparisons" in page.text
    assert "Change of the mean of y" not in page.text


def test_another_interval_renews_the_page_and_is_named(run: Path) -> None:
    assert "90 % interval" in written(run).text
    text = written(run, "--interval", "0.8").text
    assert (True, False) == ("80 % interval" in text, "90 % interval" in text)
    ends = streammc("diagnose", run, "--json", "--interval", "0.8").json
    assert f"{ends['ratios']['parameters']['x1']['q90']:.4g}" in text


def test_report_twice_is_the_same_page(run: Path) -> None:
    written(run)
    first = Path("report.html").read_bytes()
    assert streammc("report", run, "-o", "report.html", "--overwrite", "--quiet").code == 0
    assert first == Path("report.html").read_bytes()


def test_the_same_command_leaves_the_page_and_renews_an_outdated_one(run: Path) -> None:
    words = ("report", run, "-o", "report.html", "--json")
    assert 0 == streammc(*words).code
    before = Path("report.html").stat()
    again = streammc(*words)
    assert (0, before) == (again.code, Path("report.html").stat())
    assert "up to date: nothing to do" in again.err
    with RunDirectory.open(run).lock() as opened:
        opened.set_attributes(
            {"summary": {**opened.attributes["summary"], "warnings": ["new one"]}}
        )
    done = streammc(*words)
    assert (0, True) == (done.code, before != Path("report.html").stat())
    assert "new one" in Path("report.html").read_text(encoding="utf-8")


def test_a_page_that_was_edited_or_is_of_another_run_is_refused(run: Path) -> None:
    written(run)
    shutil.copytree(run, "other")
    done = streammc("report", "other", "-o", "report.html")
    assert 78 == done.code
    assert "'run'" in done.err
    with open("report.html", "a") as file:
        file.write("<!-- a note -->")
    done = streammc("report", run, "-o", "report.html")
    assert 78 == done.code
    assert "another fingerprint" in done.err
    assert 0 == streammc("report", run, "-o", "report.html", "--overwrite").code


def test_a_page_names_the_versions_that_made_the_draws(run: Path) -> None:
    with RunDirectory.open(run).lock() as opened:
        first = {**opened.attributes["versions"][0], "numba": "0.0.1"}
        later = {**first, "iteration": 60, "numba": "0.0.2"}
        opened.set_attributes({"versions": [first, later]})
    text = written(run).text
    assert "0.0.1" in text
    assert "numba, from iteration 60 on" in text
    assert "from iteration 60 on: " in streammc("info", run).out
    with RunDirectory.open(run).lock() as opened:
        opened.set_attributes({"versions": None})
    assert "did not record them" in written(run).text
    assert "not recorded" in streammc("info", run).out


def test_a_page_says_that_the_audit_was_turned_off(run: Path, store: Path) -> None:
    few = ("--seed", "1", "--draws", "40", "--warmup", "40", "--chains", "2", "--quiet")
    words = ("--model", "logistic", "--sampler", "hmc-ecs", "--no-audit")
    assert 0 == streammc("sample", store, "-o", "unaudited", *words, *few).code
    page = written("unaudited")
    assert "not made, because it was turned off" in page.text
    assert "what subsampling changed was not measured" in page.text


def test_names_from_the_data_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 2))
    y = (rng.random(500) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    lines = [f"{b},{u},{v}" for b, (u, v) in zip(y, x, strict=True)]
    quoted = MARKS.replace('"', '""')
    Path("table.csv").write_text("\n".join([f'y,{HOSTILE},"{quoted}"', *lines]))
    assert streammc("ingest", "table.csv", "s.zarr", "--response", "y", "--quiet").code == 0
    words = ("--model", "logistic", "--seed", "1", "--draws", "20", "--warmup", "20")
    assert streammc("sample", "s.zarr", "-o", "run", *words, "--quiet").code == 0
    page = written("run")
    assert [] == page.faults  # a script would be one
    assert f"beta[{HOSTILE}]" in page.text
    assert f"per unit of {MARKS}" in page.text


def test_predictions_are_shown(run: Path, store: Path) -> None:
    words = ("--by", "x1", "--bins", "5", "--quiet")
    assert streammc("predict", run, store, "-o", "p.zarr", *words).code == 0
    before = written(run).tags.count("svg")
    shutil.move("report.html", "before.html")
    page = written(run, "--predictions", "p.zarr")
    assert [] == page.faults
    assert page.tags.count("svg") == before + 3
    assert "Calibration by x1" in page.text
    auc = json.loads(streammc("info", "p.zarr", "--json").out)["auc"]["mean"]
    assert f"{auc:.4g}" in page.text


def test_predictions_of_another_run_are_refused(run: Path, store: Path) -> None:
    shutil.copytree(run, "other")
    assert streammc("predict", "other", store, "-o", "p.zarr", "--quiet").code == 0
    done = streammc("report", run, "-o", "report.html", "--predictions", "p.zarr")
    assert 78 == done.code
    assert "found those of" in done.err
    assert not Path("report.html").exists()


def test_a_moved_store_is_given_and_another_refused(run: Path, store: Path) -> None:
    recorded = Path(streammc("info", run, "--json").json["store"])
    assert recorded != store.resolve()
    page = written(run, store)
    assert str(store.resolve()) in page.text
    words = ("--rows", "500", "--dim", "2", "--seed", "1", "--quiet")
    assert streammc("simulate", "logistic", "other.zarr", *words).code == 0
    done = streammc("report", run, "other.zarr", "-o", "b.html")
    assert 78 == done.code
    assert "expected the store of" in done.err
    assert not Path("b.html").exists()


def test_a_run_whose_store_is_gone_has_a_report(made: Path, run: Path) -> None:
    hidden = made / "away.zarr"
    (made / "store.zarr").rename(hidden)
    try:
        page = written(run)
    finally:
        hidden.rename(made / "store.zarr")
    assert "not at its place any more" in page.text
    assert [] == page.faults


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("run", "-o", "store.zarr"), 78, "replace a report with --overwrite"),
        (("run", "-o", "note.txt", "--overwrite"), 78, "found something else"),
        (("run", "-o", "nowhere/report.html"), 73, "expected an existing folder"),
        (("lost", "-o", "report.html"), 66, "found nothing"),
        (("store.zarr", "-o", "report.html"), 65, "expected a run"),
        (("run", "lost.zarr", "-o", "report.html"), 66, "found nothing"),
        (("run", "-o", "report.html", "--predictions", "lost"), 66, "found nothing"),
    ],
)
def test_refusals_leave_nothing_behind(
    run: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    Path("note.txt").write_text("mine")
    before = snapshot(run.parent)
    done = streammc("report", *words)
    assert (code, 1) == (done.code, len(done.err.splitlines()))
    assert message in done.err
    assert before == snapshot(run.parent)


def test_a_missing_package_is_named_before_any_work(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.plots import axes

    monkeypatch.setattr(axes, "find_spec", lambda name: None if name == "jinja2" else name)
    done = streammc("report", run, "-o", "report.html")
    assert 2 == done.code
    assert "jinja2" in done.err
    assert "pip install 'streammc[plots]'" in done.err


QUICK = ("hmc-ecs", "laplace", "mh", "mintee", "sgld", "pt")
"""One of every family."""
FAMILY_CHECKS = {
    "hmc": "divergent transitions",
    "hmc-ecs": "variance of the log-likelihood estimate",
    "hmc-ecs-signed": "mean sign",
    "laplace": "Pareto k of the weights",
    "smh": "rows an iteration",
    "mint": "variance of the carried estimates",
    "mintee": "smallest rate of jumps between levels",
    "pt": "restarts from the prior",
    "spt": "restarts from the prior",
    "sghmc": "predicted bias of the variances",
    "sgld": "predicted bias of the variances",
    "stt": "accepted tempered transitions",
    "tt": "accepted tempered transitions",
}
"""A check of every sampler; those of acceptance tests have the error of a decision."""


@pytest.mark.parametrize("name", quick(SAMPLERS_OF_ROWS, *QUICK))
def test_every_sampler_fills_its_part_of_the_report_finished_or_not(store: Path, name: str) -> None:
    words = ("--seed", "1", "--draws", "30", "--warmup", "30", "--chains", "2", "--quiet")
    sampled = streammc("sample", store, "-o", "r", "--model", "logistic", "--sampler", name, *words)
    assert 0 == sampled.code, sampled.err
    page = written("r")
    assert [] == page.faults
    assert FAMILY_CHECKS.get(name, "error of a decision") in page.text
    if registry.sampler(name)().target in ("biased", "approximate"):
        assert "Take these draws with care" in page.text
    opened = RunDirectory.open("r")
    with opened.lock():
        opened.extend(100)
        opened.set_attributes({"summary": None})
    done = streammc("diagnose", "r")
    assert 0 == done.code, done.err
    assert [] == written("r").faults


def test_an_unfinished_run_has_a_report_without_a_verdict(run: Path, store: Path) -> None:
    opened = RunDirectory.open(run)
    with opened.lock():
        opened.set_attributes({"summary": None})
    page = written(run, store)
    assert "No verdict yet" in page.text
    assert [] == page.faults


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_damaged_predictions_are_refused(fault: str, run: Path, store: Path) -> None:
    assert streammc("predict", run, store, "-o", "p.zarr", "--quiet").code == 0
    chunk = Path("p.zarr/mean/c.0")
    if fault == "missing":
        chunk.unlink()  # which zarr alone reads as NaN
    else:
        chunk.write_bytes(b"\1" + chunk.read_bytes()[1:])
    done = streammc("report", run, "-o", "report.html", "--predictions", "p.zarr")
    assert 65 == done.code
    assert "p.zarr/mean" in done.err
    assert not Path("report.html").exists()
