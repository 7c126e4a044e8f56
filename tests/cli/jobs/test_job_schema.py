"""The JSON Schema of ``job.toml`` accepts what the parser accepts, and refuses what it refuses."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import streammc
from job_tables import JOB

from streammc.cli.jobs.job_file import JobFile, job_schema, parsed

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[3]


def valid(document: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(job_schema()).is_valid(document))


def test_the_command_prints_the_schema() -> None:
    printed = json.loads(streammc("run", "--schema").out)
    assert job_schema() == printed == streammc("run", "--schema", "--json").json
    jsonschema.Draft202012Validator.check_schema(printed)


def test_every_key_is_described() -> None:
    for table in job_schema()["properties"].values():
        for name, key in {"": table, **table.get("properties", {})}.items():
            assert len(key["description"]) > 5, name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("draws = 50", "draws = 0"),
        ("draws = 50", "draws = 1"),
        ("draws = 50", 'draws = "many"'),
        ("draws = 50", "draws = true"),
        ("draws = 50", "drwas = 50"),
        ("seed = 1", "step_size = 0"),
        ("seed = 1", "step_size = 1"),
        ("seed = 1", "temperature = 2"),
        ("seed = 1", 'temperature = "2:sqrt"'),
        ("seed = 1", "temperature = [2]"),
        ("seed = 1", "options = {jitter = 0.1}"),
        ('["flights.parquet"]', '"flights.parquet"'),
        ('["flights.parquet"]', "[]"),
        ('["flights.parquet"]', "[1]"),
        ('"normal(0, 1)"', "3"),
        ('name = "logistic"', ""),
        ("[model]", "[modle]"),
        ("[sampler]", "[stop]\ness = 0\n[sampler]"),
        ("[sampler]", '[stop]\ness = 1\ntime = "2h"\n[sampler]'),
        ("[sampler]", "[stop]\nrhat = 1\n[sampler]"),
        ("[sampler]", "[predict]\ninterval = 1\n[sampler]"),
    ],
)
def test_schema_and_parser_agree(old: str, new: str) -> None:
    assert old in JOB
    document = tomllib.loads(JOB.replace(old, new, 1))
    problems: list[Any] = []
    parsed(JobFile, document, "", problems)
    assert valid(document) == (not problems)


def test_examples_keep_the_schema() -> None:
    jobs = sorted(ROOT.glob("examples/**/*.toml"))
    assert jobs
    for path in jobs:
        assert valid(tomllib.loads(path.read_text())), path
