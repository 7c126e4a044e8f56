"""Inputs that must fail: one line that names the culprit, and nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import PROGRAM, snapshot, streammc

NINE = ("--rows", "9", "--dim", "2", "--seed", "1")
SAMPLE = "sample store.zarr -o out --model logistic"


class Case(NamedTuple):
    """A command line, its exit code, and what the one line must name."""

    words: str
    code: int
    culprit: str


PATHS = [
    *(Case(f"{verb} nowhere", 66, "nowhere") for verb in ("info", "verify", "resume", "diagnose")),
    Case("audit nowhere", 66, "nowhere"),
    Case("summarize nowhere --model logistic", 66, "nowhere"),
    Case("sample nowhere -o out --model logistic", 66, "nowhere"),
    Case("ingest nowhere.csv out --response y", 66, "nowhere.csv"),
    Case(f"{SAMPLE} --control-variates nowhere", 66, "nowhere"),
    Case(f"{SAMPLE} --config nowhere.toml", 66, "nowhere.toml"),
    *(Case(f"{verb} t.csv", 65, "t.csv") for verb in ("info", "verify", "resume", "diagnose")),
    Case("audit t.csv", 65, "t.csv"),
    Case("summarize t.csv --model logistic", 65, "t.csv"),
    Case("sample t.csv -o out --model logistic", 65, "t.csv"),
    Case(f"{SAMPLE} --control-variates t.csv", 65, "t.csv"),
    *(Case(f"{verb} folder", 65, "folder") for verb in ("info", "verify", "resume", "diagnose")),
    Case("sample folder -o out --model logistic", 65, "folder"),
    Case("resume store.zarr", 65, "store.zarr"),
    Case("sample run -o out --model logistic", 65, "run"),
    Case("sample store.zarr -o t.csv --model logistic", 73, "t.csv"),
    Case("sample store.zarr -o folder --model logistic", 73, "folder"),
    Case("sample store.zarr -o t.csv/out --model logistic", 73, "t.csv"),
    Case("simulate logistic no/out --rows 9 --dim 2 --seed 1", 73, "no/out"),
    Case("simulate logistic t.csv/out --rows 9 --dim 2 --seed 1", 73, "t.csv"),
]
"""Missing, or a file instead of a directory."""

OUTPUTS = [
    Case("sample store.zarr -o store.zarr --model logistic", 2, "store.zarr"),
    Case("sample store.zarr -o counts.zarr/run --model logistic", 2, "counts.zarr"),
    Case("sample store.zarr -o store.zarr/run --model logistic", 2, "store.zarr"),
    Case("sample store.zarr -o ./folder/../store.zarr/X/c --model logistic", 2, "store.zarr"),
    Case("summarize store.zarr --model logistic -o store.zarr/cv", 2, "store.zarr"),
    Case("ingest t.csv t.csv --response y", 2, "t.csv"),
    Case("ingest t.csv link.csv --response y", 2, "link.csv"),
    Case("ingest t.csv store.zarr/new --response y", 2, "store.zarr"),
    Case("ingest t.csv store.zarr --response y", 78, "store.zarr"),
    Case("simulate logistic store.zarr --rows 9 --dim 2 --seed 1", 78, "store.zarr"),
    Case("summarize store.zarr --model logistic -o run", 78, "run"),
    Case("sample store.zarr -o run --model logistic --seed 2", 78, "seed"),
]
"""The output is an input, inside one, or another job's."""

URLS = [
    Case("info gopher://host/x", 2, "gopher://..."),
    Case("sample s3://key:hunter2@bucket/x -o out --model logistic", 2, "s3://..."),
    Case("sample store.zarr -o https://me:hunter2@host/x --model logistic", 2, "https://..."),
    Case("ingest https://me:hunter2@host/t.csv out --response y", 2, "https://..."),
]
"""A scheme that is not known, and credentials that are not repeated."""

NUMBERS = [
    *(Case(f"{SAMPLE} --draws {n}", 2, "--draws") for n in ("0", "-1", "1.5", "x", 10**12)),
    *(Case(f"{SAMPLE} --warmup {n}", 2, "--warmup") for n in ("0", "-1", "1.5", "x", 10**12)),
    *(Case(f"{SAMPLE} --chains {n}", 2, "--chains") for n in ("0", "-1", "1.5", "x", 10**12)),
    Case(f"{SAMPLE} --draws 1000000000 --chains 1000", 74, "free disk"),
    *(Case(f"{SAMPLE} --seed {n}", 2, "--seed") for n in ("-1", 2**64, 2**63, "1.5", "''")),
    Case("simulate logistic out --rows 9 --dim 2", 2, "--seed"),
    Case("simulate logistic out --rows 9 --dim 2 --seed -1", 2, "--seed"),
    Case("simulate logistic out --rows 0 --dim 2 --seed 1", 2, "--rows"),
    Case("simulate logistic out --rows 9 --dim 0 --seed 1", 2, "--dim"),
    *(Case(f"{SAMPLE} --step-size {x}", 2, "--step-size") for x in ("0", "nan", "inf", "-1", "x")),
    *(Case(f"{SAMPLE} --trajectory-length {x}", 2, "--trajectory-length") for x in ("0", "nan")),
    Case(f"{SAMPLE} --subsample-size 0", 2, "--subsample-size"),
    Case(f"{SAMPLE} --subsample-size 3001", 2, "3000"),
    Case(f"{SAMPLE} --subsample-size 50 --n-blocks 51", 2, "--n-blocks"),
    Case(f"{SAMPLE} --unit-rows 4000", 2, "--unit-rows"),
    *(Case(f"{SAMPLE} --prior-scale {x}", 2, "--prior-scale") for x in ("0", "-1", "nan", "inf")),
    *(Case(f"{SAMPLE} --temperature {x}", 2, "--temperature") for x in ("hot", "0", "nan", "4:0")),
    Case(f"{SAMPLE} --temperature 4:sqrt", 2, "constant temperature for auto"),
    Case(f"{SAMPLE} --option jitter=2", 2, "jitter"),
    Case(f"{SAMPLE} --option order=3", 2, "order"),
    Case(f"{SAMPLE} --option zeal=1", 2, "zeal"),
    Case(f"{SAMPLE} --option zeal", 2, "--option"),
    Case(f"{SAMPLE} --check k=1", 2, "--check"),
    Case(f"{SAMPLE} --scheduler http://host", 2, "--scheduler"),
]
"""Counts, seeds, step sizes, subsamples, priors."""

NAMES = [
    Case("sample store.zarr -o out --model logistik", 2, "did you mean 'logistic'?"),
    Case("sample store.zarr -o out", 2, "--model"),
    Case(f"{SAMPLE} --sampler hcm", 2, "did you mean 'hmc'?"),
    Case(f"{SAMPLE} --darws 3", 2, "--draws"),
    Case("simulate logistik out --rows 9 --dim 2 --seed 1", 2, "logistic"),
    Case("ingest t.csv out --response late", 65, "late"),
    Case("ingest t.csv out --response y --features a,zz", 65, "zz"),
    Case("ingest t.csv out --response y --features a,a", 2, "--features"),
    Case("ingest bad.csv out --response y", 65, "'a'"),
    Case("ingest nan.csv out --response y", 65, "'a'"),
    Case("sample counts.zarr -o out --model logistic", 65, "0 or 1"),
    Case("summarize counts.zarr --model logistic", 65, "0 or 1"),
]
"""Names that do not exist; and values that a table must not hold."""

CASES = [*PATHS, *OUTPUTS, *URLS, *NUMBERS, *NAMES]


@pytest.fixture
def here(run: Path) -> Path:
    folder = run.parent
    (folder / "folder").mkdir()
    (folder / "folder" / "kept.txt").write_text("kept")
    (folder / "t.csv").write_text("y,a,b\n0,1,2\n1,2,1\n1,3,5\n")
    (folder / "bad.csv").write_text("y,a\n0,1\n1,oops\n")
    (folder / "nan.csv").write_text("y,a\n0,1\n1,\n")
    (folder / "counts.csv").write_text("y,a\n0,1\n3,2\n1,4\n")
    (folder / "link.csv").symlink_to("t.csv")
    made = streammc("ingest", "counts.csv", "counts.zarr", "--response", "y", "--quiet")
    assert made.code == 0
    return folder


def split(words: str) -> list[str]:
    return ["" if word == "''" else word for word in words.split()]


@pytest.mark.trust(44)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.words}")
def test_bad_input_exits_with_one_line_that_names_the_culprit(case: Case, here: Path) -> None:
    before = snapshot(here)
    done = streammc(*split(case.words), "--quiet")
    assert (case.code, "") == (done.code, done.out), done.err
    assert 1 == len(done.err.splitlines()), done.err
    assert done.err.startswith("streammc: ")
    assert case.culprit in done.err
    assert "Traceback" not in done.err
    assert "internal" not in done.err
    assert "hunter2" not in done.err
    assert before == snapshot(here)


@pytest.mark.trust(48)
@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: f"{case.code}: {case.words}")
def test_bad_input_under_json_prints_an_error_object(case: Case, here: Path) -> None:
    done = streammc(*split(case.words), "--quiet", "--json")
    body = done.json["error"]
    assert (case.code, case.code) == (done.code, body["exit_code"])
    assert body["code"]
    assert case.culprit in body["message"]
    assert "hunter2" not in done.out + done.err


@pytest.mark.trust(50)
@pytest.mark.parametrize(
    "words",
    [
        "info store.zarr",
        "verify store.zarr",
        "summarize store.zarr --model logistic -o cv",
        "sample store.zarr -o out --model logistic",
        "ingest t.csv out --response y",
        "diagnose run",
        "resume run",
        "audit run",
    ],
)
def test_no_permission_to_read_is_77(
    words: str, here: Path, open_folder: Path, unprivileged: Callable, monkeypatch: Any
) -> None:
    shutil.copytree(here, open_folder, symlinks=True, dirs_exist_ok=True)
    open_folder.chmod(0o777)
    monkeypatch.chdir(open_folder)
    streammc(*words.split(), "--help")  # imports as oneself
    target = open_folder / words.split()[1]
    target.chmod(0)
    before = sorted(os.listdir(open_folder))
    with unprivileged():
        done = streammc(*words.split(), "--quiet")
    target.chmod(0o755)
    assert 77 == done.code, done.err
    assert target.name in done.err
    assert 1 == len(done.err.splitlines())
    assert before == sorted(os.listdir(open_folder))


def test_no_permission_to_write_is_77(
    here: Path, open_folder: Path, unprivileged: Callable, monkeypatch: Any
) -> None:
    shutil.copytree(here, open_folder, symlinks=True, dirs_exist_ok=True)
    open_folder.chmod(0o777)
    monkeypatch.chdir(open_folder)
    (open_folder / "folder").chmod(0o555)
    for words in (
        "simulate logistic folder/out --rows 9 --dim 2 --seed 1",
        "ingest t.csv folder/out --response y",
        "summarize store.zarr --model logistic -o folder/out",
        "sample store.zarr -o folder/out --model logistic",
    ):
        streammc(*words.split(), "--help")
        with unprivileged():
            done = streammc(*words.split(), "--quiet")
        assert 77 == done.code, done.err
        assert 1 == len(done.err.splitlines())
        assert "folder" in done.err
        assert {"kept.txt"} == set(os.listdir(open_folder / "folder"))


ODD = ["a\nb", "\x1b[31mred", "-x", "a\r\nb", "a\u2028b", "\u202ereversed", "a\tb", "\udcff"]


@pytest.mark.parametrize("name", ODD[:3], ids=ascii)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("info", 66),
        ("verify", 66),
        ("resume", 66),
        ("diagnose", 66),
        ("audit", 66),
        ("summarize --model logistic -o out", 66),
        ("sample --model logistic -o out", 66),
        ("ingest out --response y", 66),
        ("sample store.zarr --model logistic --control-variates", 66),
        ("sample store.zarr --model logistic -o out --config", 66),
        ("ingest t.csv --response y", 78),
    ],
)
def test_messages_about_odd_names_are_one_line(
    words: str, code: int, name: str, here: Path
) -> None:
    verb, *rest = words.split()
    if code == 78:
        (here / name).touch()
    if rest and rest[-1].startswith("--"):
        line = [verb, *rest[:-1], f"{rest[-1]}={name}"]
        line += ["-o", "out"] if "-o" not in rest else []
    elif verb == "ingest":
        position = 1 if code == 78 else 0
        line = [verb, "--response", "y", "--", rest[0]]
        line.insert(4 + position, name)
    else:
        line = [verb, *rest, "--", name]
    before = snapshot(here)
    done = streammc(*line[:1], "--quiet", *line[1:])
    assert code == done.code, done.err
    assert 1 == len(done.err.splitlines()), done.err
    assert done.err.strip().isprintable()
    assert before == snapshot(here)


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_messages_of_damaged_runs_and_stores_are_one_line(name: str, here: Path) -> None:
    (here / "store.zarr").rename(here / name)
    (here / "run").rename(here / ("run" + name))
    (here / name / "X/c.0.0").unlink()
    (here / ("run" + name) / "zarr.json").write_text("{")
    for words in (["info", "--", name], ["resume", "--", "run" + name]):
        done = streammc(*words)
        assert 65 == done.code, done.err
        assert 1 == len(done.err.splitlines()), done.err
        assert done.err.strip().isprintable()


@pytest.mark.trust(50)
@pytest.mark.parametrize("name", ["a b", "a\nb", "naïve-😀", "-draws", "x" * 200, "a'b\"c", "~"])
def test_odd_file_names_work(name: str, here: Path) -> None:
    made = streammc("simulate", *NINE, "--json", "--", "logistic", name)
    assert 0 == made.code, made.err
    assert str(here / name) == made.json["path"]
    found = streammc("info", "--json", "--", name)
    assert made.json["fingerprint"] == found.json["fingerprint"]


@pytest.mark.trust(50)
def test_file_names_that_are_not_utf8_work_or_are_refused(here: Path) -> None:
    command = [
        *PROGRAM,
        *["simulate", "--rows", "9", "--dim", "2", "--seed", "1", "--json", "logistic"],
        b"a\xff",
    ]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode in (0, 2), done.stderr
    assert b"Traceback" not in done.stderr
    json.loads(done.stdout)


@pytest.mark.parametrize("name", ["x" * 300, "", "a\0b"])
def test_impossible_file_names_are_refused(name: str, here: Path) -> None:
    before = snapshot(here)
    done = streammc("simulate", "logistic", name, *NINE)
    assert done.code in (2, 73)
    assert 1 == len(done.err.splitlines())
    assert before == snapshot(here)


def test_internal_error_is_one_line_with_exit_code_70(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.stores import store

    def broken(path: str) -> None:
        raise RuntimeError("a defect\nin two lines")

    monkeypatch.setattr(store, "info", broken)
    done = streammc("info", "store.zarr")
    assert 70 == done.code
    assert 1 == len(done.err.splitlines())
    assert "internal error: RuntimeError: a defect\\nin two lines; rerun with --debug" in done.err
    assert "Traceback" in streammc("info", "store.zarr", "--debug").err
