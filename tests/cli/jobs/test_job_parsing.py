"""``job.toml`` read: every fault is a line with the path of its key."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tables import JOB

from streammc.cli.jobs.job_file import read_job
from streammc.errors import IdentityError, MissingError


def faults(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    path = tmp_path / "job.toml"
    path.write_text(text)
    _, problems = read_job(str(path))
    return [(problem.key, problem.text) for problem in problems]


def changed(old: str, new: str) -> str:
    assert old in JOB
    return JOB.replace(old, new)


def test_a_job_has_its_values_and_paths_from_here(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    job, problems = read_job(str(tmp_path / "job.toml"))
    assert [] == problems
    assert job is not None
    assert (str(tmp_path / "flights.parquet"),) == job.source.files
    assert str(tmp_path / "work" / "run") == job.outputs.run
    assert job.sampler is not None
    assert (50, None, 1) == (job.sampler.draws, job.sampler.step_size, job.sampler.seed)
    assert {"distance": "normal(0, 1)"} == job.priors


def test_absolute_paths_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(changed('"work/run"', '"/data/run"'))
    job, _ = read_job(str(tmp_path / "job.toml"))
    assert job is not None
    assert "/data/run" == job.outputs.run


@pytest.mark.parametrize(
    ("old", "new", "key", "text"),
    [
        ("draws = 50", "drwas = 50", "sampler.drwas", "unknown key 'drwas': did you mean 'draws'?"),
        ("[sampler]", "[samplr]", "samplr", "unknown table 'samplr': did you mean 'sampler'?"),
        ("draws = 50", 'draws = "many"', "sampler.draws", "expected a whole number, found 'many'"),
        ("draws = 50", "draws = 50.0", "sampler.draws", "expected a whole number, found 50.0"),
        ("draws = 50", "draws = true", "sampler.draws", "expected a whole number, found true"),
        ("draws = 50", "draws = 0", "sampler.draws", "expected a number of at least 1, found 0"),
        ("draws = 50", "draws = [50]", "sampler.draws", "found the list [50]"),
        ('formula = "late', 'dtype = "f32" #', "ingest.dtype", "'float32' or 'float64', found"),
        ('["flights.parquet"]', '"a.csv"', "source.files", "expected a list of texts, found 'a"),
        ('["flights.parquet"]', "[]", "source.files", "expected a list of texts, found an empty"),
        ('["flights.parquet"]', "[3]", "source.files", "expected a list of texts, found the list"),
        ('name = "logistic"', "", "model.name", "expected this key, found nothing: add it"),
        ('[model]\nname = "logistic"', "", "model", "expected a table [model], found nothing"),
        ("[priors]\ndistance =", "[priors]\ndistance = 3 #", "priors", "found a table"),
        ("seed = 1", "step_size = 0", "sampler.step_size", "expected a number above 0, found 0"),
        ("seed = 1", "step-size = -1.5", "sampler.step-size", "above 0, found -1.5"),
        ("seed = 1", "step_size = 1\nstep-size = 1", "sampler.step-size", "found it twice"),
    ],
)
def test_a_fault_is_found_with_the_path_of_its_key(
    tmp_path: Path, old: str, new: str, key: str, text: str
) -> None:
    found = faults(tmp_path, changed(old, new))
    assert [key] == [each for each, _ in found]
    assert text in found[0][1]
    assert "\n" not in found[0][1]


def test_a_table_that_is_a_value_is_a_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, 'sampler = "hmc"\n' + changed("[sampler]", "[stop]"))
    assert ("sampler", "expected a table [sampler], found 'hmc': write one") in found


def test_every_fault_is_found(tmp_path: Path) -> None:
    text = changed("draws = 50", "drwas = 50").replace("chains = 2", "chains = 0")
    assert ["sampler.drwas", "sampler.chains"] == [key for key, _ in faults(tmp_path, text)]


def test_keys_with_a_fault_are_left_out_and_the_others_kept(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(changed("draws = 50", 'draws = "many"'))
    job, problems = read_job(str(tmp_path / "job.toml"))
    assert ["sampler.draws"] == [problem.key for problem in problems]
    assert job.sampler is not None
    assert (None, 60, 1) == (job.sampler.draws, job.sampler.warmup, job.sampler.seed)
    (tmp_path / "job.toml").write_text(changed('[model]\nname = "logistic"', ""))
    job, _ = read_job(str(tmp_path / "job.toml"))
    assert job.model is None
    assert ("flights.parquet",) == tuple(Path(each).name for each in job.source.files or ())


def test_no_file_and_no_toml_are_errors(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        read_job(str(tmp_path / "job.toml"))
    with pytest.raises(IdentityError, match="expected TOML"):
        faults(tmp_path, "[source")
