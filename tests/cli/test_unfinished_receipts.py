"""Receipts of commands that were killed: the output is known by its mark, or refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import streammc

import streammc as library
from streammc.cli.receipt import made_by
from streammc.trace.row_arrays import RowArrays, read_meta
from streammc.unfinished import making, this_process

COMMANDS = {
    "ingest": ("s.zarr", "ingest t.csv s.zarr --response late"),
    "simulate": ("s.zarr", "simulate logistic s.zarr --rows 50 --dim 2 --seed 1"),
    "summarize": ("cv.zarr", "summarize store.zarr -o cv.zarr --model logistic"),
    "predict": ("p.zarr", "predict run store.zarr -o p.zarr"),
    "score": ("score.json", "score run -o score.json"),
    "report": ("page.html", "report run -o page.html"),
}
NAMES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "report" and not all(map(find_spec, ("jinja2", "matplotlib"))),
            reason="a report needs more packages",
        ),
    )
    for name in COMMANDS
]


@pytest.fixture(autouse=True)
def table(run: Path) -> Path:
    path = run.parent / "t.csv"
    path.write_text("late,distance\n" + "".join(f"{i % 2},{i % 7}\n" for i in range(50)))
    return path


def dead() -> dict[str, Any]:
    """Return a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return {**asdict(this_process()), "pid": process.pid}


def killed(output: str, **changes: Any) -> Path:
    """Write a receipt as it was before the work was done."""
    receipt = Path(f"{output}.config.json")
    asked = json.loads(receipt.read_text())["asked"]
    receipt.write_text(json.dumps({"asked": asked, "result": None, "owner": dead(), **changes}))
    return receipt


@pytest.mark.parametrize("name", NAMES)
def test_an_output_without_its_receipt_is_kept_and_the_receipt_completed(name: str) -> None:
    output, words = COMMANDS[name]
    assert 0 == streammc(*words.split(), "--quiet").code
    mark = made_by(output)
    assert mark is not None
    receipt = killed(output)
    again = streammc(*words.split(), "--json")
    assert 0 == again.code, again.err
    kept = json.loads(receipt.read_text())
    assert (mark, mark) == (kept["made_by"], made_by(output))
    assert isinstance(kept["result"], dict)
    assert again.json == streammc(*words.split(), "--json").json


@pytest.mark.parametrize("name", NAMES)
def test_another_output_at_the_path_is_refused_and_left(name: str) -> None:
    output, words = COMMANDS[name]
    assert 0 == streammc(*words.split(), "--quiet").code
    receipt = killed(output)
    other = Path("other")
    os.rename(output, other)
    if name == "ingest":
        library.ingest("t.csv", output, response="late", shuffle=False)
    elif name == "simulate":
        library.simulate("logistic", output, 50, 2, 1)
    elif name in ("score", "report"):
        text = other.read_text()
        Path(output).write_text(text.replace(str(made_by(other)), "0" * 64))
    else:
        copied(other, Path(output))
    before = receipt.read_text()
    done = streammc(*words.split(), "--quiet")
    assert 78 == done.code
    assert "and was killed, found another output in its place" in done.err
    assert before == receipt.read_text()


def copied(source: Path, target: Path) -> None:
    """Make a result anew from Python, without the mark of a command."""
    if (source / "mean").exists():
        meta, _ = read_meta(source)
        with RowArrays(target, ["mean"], 1, 1) as writer:
            writer.target.write(0, {"mean": np.zeros(1)})
            writer.commit(meta)
    else:
        library.control_variates.ControlVariates.open(source).save(target)


def test_other_predictions_in_the_place_of_finished_ones_are_refused() -> None:
    output, words = COMMANDS["predict"]
    assert 0 == streammc(*words.split(), "--quiet").code
    os.rename(output, "other")
    copied(Path("other"), Path(output))
    done = streammc(*words.split(), "--quiet")
    assert 78 == done.code
    assert "as it was made, found another output in its place" in done.err


def test_the_mark_is_no_part_of_the_fingerprint_and_stays_when_rows_are_appended() -> None:
    words = ["ingest", "t.csv", "s.zarr", "--response", "late", "--shuffle"]
    fingerprint = streammc(*words, "--json").json["fingerprint"]
    assert fingerprint == library.ingest("t.csv", "own.zarr", response="late")["fingerprint"]
    assert made_by("own.zarr") is None
    receipt = killed("s.zarr")
    Path("more.csv").write_text("late,distance\n1,3\n0,4\n")
    assert 0 == streammc("ingest", "--append", "more.csv", "s.zarr", "--quiet").code
    assert 0 == streammc(*words, "--quiet").code
    assert 52 == json.loads(receipt.read_text())["result"]["n_rows"]
    assert 0 == streammc("verify", "s.zarr").code


def test_a_store_that_is_made_in_the_place_of_one_that_gc_removed_is_not_the_jobs() -> None:
    words = COMMANDS["ingest"][1].split()
    assert 0 == streammc(*words, "--quiet").code
    receipt = killed("s.zarr")
    shutil.rmtree("s.zarr")
    assert 0 == streammc("gc", ".").code
    assert not receipt.exists()
    library.simulate("logistic", "s.zarr", 60, 2, 3)
    assert 78 == streammc(*words, "--quiet").code


@pytest.mark.parametrize(
    "left",
    ["living", "elsewhere", "result", "no owner", "other key", "output", "no command", "list"],
)
def test_gc_leaves_a_receipt_that_may_be_needed(left: str) -> None:
    assert 0 == streammc(*COMMANDS["ingest"][1].split(), "--quiet").code
    owner = asdict(this_process())
    changes: dict[str, Any] = {
        "living": {"owner": owner},
        "elsewhere": {"owner": {**owner, "host": "another"}},
        "result": {"result": {}},
        "no owner": {"owner": None},
        "other key": {"mine": 1},
        "no command": {"asked": {}},
    }.get(left, {})
    receipt = killed("s.zarr", **changes)
    if left == "list":
        receipt.write_text("[1]")
    if left != "output":
        shutil.rmtree("s.zarr")
    found = streammc("gc", ".", "--json").json
    assert receipt.exists()
    reasons = [each["reason"] for each in found["kept"]]
    assert (1 if left in ("living", "elsewhere") else 0) == len(reasons)


def test_outputs_that_are_made_in_python_have_no_mark(tmp_path: Path) -> None:
    with making("0" * 64):
        library.ingest("t.csv", "marked.zarr", response="late")
    library.ingest("t.csv", "plain.zarr", response="late")
    assert ("0" * 64, None) == (made_by("marked.zarr"), made_by("plain.zarr"))
