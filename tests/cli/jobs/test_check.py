"""``streammc check``: the faults and the plan of a job; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import snapshot, streammc
from job_tables import write_job, write_table

from streammc.stores.ingest import value_checks


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_job(tmp_path)


def states(found: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {each["stage"]: each["state"] for each in found["stages"]}


def test_the_plan_of_a_new_job_foretells_rows_passes_memory_disk_and_time(job: Path) -> None:
    before = snapshot(job.parent)
    done = streammc("check", job, "--json")
    assert 0 == done.code, done.err
    found = done.json
    assert {"ingest": "to do", "sample": "to do", "predict": "to do"} == states(found)
    ingest, sample = found["stages"][:2]
    assert (2000, 4, False) == tuple(ingest[name] for name in ("rows", "columns", "rows_estimated"))
    assert found["passes"] == sample["passes"] >= 1
    assert found["memory_bytes"] > 0
    assert found["seconds"] > 0
    assert before == snapshot(job.parent)
    text = streammc("check", job).out
    assert all(word in text for word in ("passes", "memory", "disk", "time", "work/run"))


def test_disk_and_rows_of_a_plan_are_those_of_the_job(job: Path) -> None:
    write_table(job.parent / "flights.csv", rows=20_000)
    path = write_job(job.parent, files='["flights.csv"]', predictions="")
    planned = streammc("check", path, "--json").json
    assert planned["stages"][0]["rows_estimated"]
    assert 18_000 < planned["stages"][0]["rows"] < 22_000
    path = write_job(job.parent, predictions="")
    planned = streammc("check", path, "--json").json
    assert 0 == streammc("run", path).code
    store = sum(each.stat().st_size for each in Path("work/flights.zarr/X").rglob("*"))
    assert 0.5 * store < planned["stages"][0]["disk_bytes"] < 2.0 * store
    again = streammc("check", path, "--json").json
    assert {"ingest": "there, verified", "sample": "finished, 50 draws per chain"} == states(again)
    more = streammc("check", write_job(job.parent, predictions="", draws="80"), "--json").json
    assert "partial, 50 draws per chain, to be resumed" == states(more)["sample"]
    assert "hmc" in more["stages"][1]["sampler"]


def test_a_plan_names_a_store_far_larger_than_its_tables(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [] == streammc("check", job, "--json").json["notes"]
    monkeypatch.setattr(value_checks, "LARGE_BYTES", 100)
    monkeypatch.setattr(value_checks, "TIMES_SOURCE", 0.1)
    (note,) = streammc("check", job, "--json").json["notes"]
    assert note.startswith("the store takes about ")
    assert note.endswith("codes_above, layout and compression of [ingest]")


@pytest.mark.parametrize(
    ("change", "code", "key", "text"),
    [
        ({"draws": '"many"'}, 78, "sampler.draws", "expected a whole number"),
        ({"chains": "5000"}, 78, "sampler.chains", "at most 1024"),
        ({"distance": '"normol(0, 1)"'}, 78, "priors.distance", "normol"),
        ({"name": '"logit"'}, 78, "model", "logit"),
        ({"seed": '1\nname = "hmcc"'}, 78, "sampler", "hmcc"),
        ({"seed": "1\noptions = {banana = 1}"}, 78, "sampler", "banana"),
        ({"files": '["nowhere.csv"]'}, 66, "source.files[0]", "nowhere.csv', found nothing"),
        ({"files": '["*.feather"]'}, 66, "source.files[0]", "*.feather"),
        (
            {"formula": '"late ~ distance"\nresponse = "lat"'},
            78,
            "ingest.response",
            "did you mean 'late'?",
        ),
        ({"formula": '"late ~ distence"'}, 78, "ingest.formula", "did you mean 'distance'?"),
        ({"formula": '"late ~ (distance"'}, 78, "ingest.formula", "expected"),
        ({"formula": '"origin ~ distance"'}, 65, "ingest", "origin"),
        ({"store": ""}, 78, "outputs.store", "expected the store to make of source.files"),
        ({"run": '"work/flights.zarr"'}, 78, "outputs.store", "that of outputs.run"),
        ({"run": '"work/run.partial-7"'}, 78, "outputs.run", "expected a name of its own"),
        ({"seed": "1\n[stop]\ntime = '2h'"}, 78, "stop", "limit ess or rhat"),
        ({"name": '"poisson"\noptions = {banana = 1}'}, 78, "model.options.banana", "no option"),
        ({"seed": '1\nsubsample_size = 9999\nname = "hmc-ecs"'}, 78, "sampler", "at most 2000"),
        ({"seed": '1\ntemperature = "4:sqrt"'}, 78, "sampler.temperature", "constant"),
        ({"seed": "1\n[stop]\ness = 400\ndraws = 10"}, 78, "stop", "at least the 50 draws"),
        ({"distance": '"normal(0, 1)"\nnosuch = "normal(0, 1)"'}, 78, "priors", "'nosuch'"),
        ({"seed": "1\n[predict]\nby = 'nosuch'"}, 78, "predict.by", "'nosuch'"),
        (
            {"seed": "1\n[predict]\nfiles = ['new.csv']", "run": "'work/run'\nrows = 'work/rows'"},
            78,
            "predict.files",
            "found 'distance': did you mean 'distence'?",
        ),
        ({"seed": "1\n[predict]\ninterval = 2"}, 78, "predict.interval", "below 1"),
        ({"seed": "1\n[predict]\nfiles = ['a.csv']"}, 78, "outputs.rows", "predict.files"),
    ],
)
def test_a_fault_is_a_line_with_the_path_of_its_key(
    job: Path, change: dict[str, str], code: int, key: str, text: str
) -> None:
    path = write_job(job.parent, **change)
    (job.parent / "new.csv").write_text("distence,origin\n1,ATL\n")
    before = snapshot(job.parent)
    done = streammc("check", path, "--json")
    assert code == done.code, done.err
    found = {each["key"]: each["message"] for each in done.json["error"]["problems"]}
    assert text in found[key]
    assert all(line.startswith("streammc: ") for line in done.err.splitlines())
    assert len(found) == len(done.err.splitlines())
    assert before == snapshot(job.parent)


def test_first_rows_that_cannot_be_ingested_alone_are_a_note(job: Path) -> None:
    write_table(job.parent / "flights.parquet", rows=20_000)
    path = write_job(job.parent, formula='"late ~ distance + bs(distance, df=5) + C(origin)"')
    assert [] == streammc("check", path, "--json").json["notes"]
    path = write_job(job.parent, formula='"I(origin) ~ distance"')
    done = streammc("check", path, "--json")
    assert (0, 1) == (done.code, len(done.json["notes"])), done.err
    assert "the first 5,000 rows alone cannot be ingested as asked" in done.json["notes"][0]


def test_disk_of_predictions_and_of_the_run_is_foretold(job: Path) -> None:
    planned = {each["stage"]: each for each in streammc("check", job, "--json").json["stages"]}
    assert 0 == streammc("run", job, "--quiet").code
    for stage, path in (("predict", "work/predictions.zarr"), ("sample", "work/run")):
        found = sum(each.stat().st_size for each in Path(path).rglob("*") if each.is_file())
        assert 0.3 * found < planned[stage]["disk_bytes"] < 3.0 * found, stage


def test_the_time_says_until_when(job: Path) -> None:
    path = write_job(job.parent, "\n[stop]\ness = 400\n", predictions="")
    assert "until the first draw" in streammc("check", path).out
    store = ("ingest", "flights.parquet", "work/flights.zarr")
    Path("work").mkdir()
    formula = ("--formula", "late ~ distance + C(origin)")
    assert 0 == streammc(*store, *formula).code
    # The store is that of the job only if the same words made it: the job knows its files by path.
    done = streammc("check", path)
    assert "until the first check of the stopping rule" in done.out, done.err


def test_an_output_of_another_job_is_an_error(job: Path) -> None:
    path = write_job(job.parent, predictions="")
    assert 0 == streammc("run", path).code
    for change in ({"seed": "2"}, {"formula": '"late ~ distance"'}):
        done = streammc("check", write_job(job.parent, predictions="", **change))
        assert 78 == done.code
        assert 1 == len(done.err.splitlines())


def test_both_or_neither_of_files_and_store_are_a_fault(job: Path) -> None:
    path = write_job(job.parent, files='["flights.parquet"]\nstore = "x.zarr"')
    assert "found both" in streammc("check", path).err
    assert "found neither" in streammc("check", write_job(job.parent, files="")).err


MANY = """
[source]
files = ["flights.parquet"]
[ingest]
formula = "late ~ distence + C(origni)"
[model]
name = "logit"
[priors]
distance = "normol(0, 1)"
"*" = "nrmal(0, 1)"
[sampler]
draws = "many"
chains = 5000
name = "hmcc"
[stop]
time = "2h"
[predict]
files = ["nowhere.csv"]
[outputs]
store = "work/flights.zarr"
run = "work/run"
"""
FAULTS = [
    "sampler.draws",
    "outputs.predictions",
    "outputs.rows",
    "predict.files[0]",
    "stop",
    "priors.distance",
    "priors.*",
    "sampler.chains",
    "model",
    "sampler",
    "ingest.formula",
    "ingest.formula",
]


def test_every_fault_of_a_job_is_named_at_once(job: Path) -> None:
    job.write_text(MANY)
    before = snapshot(job.parent)
    done = streammc("check", job, "--json")
    assert 78 == done.code
    assert sorted(FAULTS) == sorted(each["key"] for each in done.json["error"]["problems"])
    assert len(FAULTS) == len(done.err.splitlines())
    for key, wrong, right in (
        ("sampler.draws", '"many"', "50"),
        ("model", "logit", "logistic"),
        ("ingest.formula", "distence + C(origni)", "distance + C(origin)"),
    ):
        job.write_text(MANY.replace(wrong, right))
        found = {each["key"] for each in streammc("check", job, "--json").json["error"]["problems"]}
        assert {*FAULTS} - {key} == found
    assert before.keys() == snapshot(job.parent).keys()


def test_faults_of_rows_and_of_ingest_are_named_with_the_others(job: Path) -> None:
    for formula, keys in (
        ('"late ~ distance + C(origin)"', {"stop", "priors", "predict.by"}),
        ('"late ~ distance"\nresponse = "late"', {"stop", "ingest"}),
    ):
        more = "\n[stop]\ness = 400\ndraws = 10\n[predict]\nby = 'nosuch'\n"
        change = {"formula": formula, "distance": '"normal(0, 1)"\nnosuch = "normal(0, 1)"'}
        done = streammc("check", write_job(job.parent, more, **change), "--json")
        assert keys == {each["key"] for each in done.json["error"]["problems"]}, done.err


@pytest.mark.parametrize(
    "change",
    [
        {"name": '"logit"'},
        {"seed": "1\noptions = {banana = 1}"},
        {"formula": '"late ~ (distance"'},
        {"formula": '"late ~ distence"'},
        {"formula": '"late ~ distance"\nresponse = "late"'},
        {"distance": '"normal(0, 1)"\nnosuch = "normal(0, 1)"'},
        {"seed": "1\n[predict]\nby = 'nosuch'"},
        {"seed": "1\n[stop]\ness = 400\ndraws = 10"},
        {"files": '["nowhere.csv"]'},
        {"formula": '"origin ~ distance"'},
    ],
    ids=lambda change: next(iter(change.values())),
)
def test_run_ends_with_the_code_of_check_before_it_samples(
    job: Path, change: dict[str, str]
) -> None:
    path = write_job(job.parent, **change)
    checked = streammc("check", path, "--json")
    done = streammc("run", path, "--json", "--quiet")
    assert checked.code == done.code != 0
    assert checked.json["error"]["code"] == done.json["error"]["code"]
    assert not Path("work/run").exists()


def test_a_job_of_cells_predicts_other_rows_and_does_not_grow(job: Path) -> None:
    text = job.read_text().replace("[ingest]\n", '[ingest]\ncells = "yes"\n')
    job.write_text(text)
    done = streammc("check", job)
    assert 78 == done.code, done.err
    assert "ingest.cells: expected 'no' for predictions of the rows of the job, found" in done.err
    job.write_text(text.replace("[source]\n", '[source]\nappend = ["flights.parquet"]\n'))
    assert "expected 'no' for a store with source.append, found 'yes'" in streammc("check", job).err
    job.write_text("\n".join(line for line in text.splitlines() if "predictions" not in line))
    assert 0 == streammc("check", job).code
