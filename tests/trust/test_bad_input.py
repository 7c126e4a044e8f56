"""The 64 bad inputs, each within its time and memory: check 50."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bad_input_list import LISTED, loaded
from checks_of_trust import marked
from command_line import Result, snapshot, streammc

Record = Callable[[str, object], None]
SECONDS, MEGABYTES = 5.0, 256
TESTED = {number: cases for number, (_, cases) in LISTED.items()}
LIVE = {
    number: [case for case in cases if "::" not in case]
    for number, cases in TESTED.items()
    if any("::" not in case for case in cases)
}


class Tried(NamedTuple):
    """A case: its command, the exit code that it must have, and the culprit to be named."""

    words: list[str]
    code: int
    culprit: str


def prepared(case: str, here: Path) -> Tried:
    """Put the bad input of a case into a folder, and return what to try."""
    kind, _, name = case.partition(": ")
    if kind in ("ingest", "model", "works"):
        values = loaded("cli/test_bad_values.py")
        found = getattr(values, kind.upper())[name]
        values.write(found.columns)
        response = ["--response", "y"] if "y" in found.columns else []
        words = ["ingest", "t.parquet", "s", *response, *found.options, "--quiet"]
        if kind == "ingest":
            return Tried(words, found.code, found.message)
        made = streammc(*words)
        assert 0 == made.code
        few = [*values.FEW, "--quiet", "--no-audit"]
        words = ["sample", "s", "-o", "out", "--model", found.model, *few]
        said = kind == "works" and found.message in made.err  # by a warning of the ingest
        return Tried(words, found.code if kind == "model" else 0, "" if said else found.message)
    if kind in ("metadata", "chunk"):
        stores = loaded("cli/test_bad_stores.py")
        change, culprit = {"metadata": stores.METADATA, "chunk": stores.CHUNKS}[kind][name]
        change(here / "store.zarr")
        return Tried([*stores.VERBS[0].split(), "--quiet"], 65, culprit)
    lines = loaded("cli/test_bad_inputs.py")
    words = f"{lines.SAMPLE} {name}" if name.startswith("--") else name
    [found] = [each for each in lines.CASES if each.words == words]
    return Tried([*lines.split(found.words), "--quiet"], found.code, found.culprit)


def memory(reset: bool = False) -> int:
    """Return the most memory of this process since the last reset, in MB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def tried(case: Tried) -> tuple[Result, float, int]:
    """Run a case; return its result, its seconds and the memory that it added."""
    before, started = memory(reset=True), time.monotonic()
    done = streammc(*case.words)
    return done, time.monotonic() - started, memory() - before


def faults(case: Tried, found: tuple[Result, float, int]) -> list[str]:
    """Return what is wrong with the end of a refused case."""
    done, seconds, megabytes = found
    lines = done.err.splitlines()
    wrong = {
        f"exit code {done.code}, not {case.code}": done.code != case.code,
        "no culprit": case.culprit not in done.err,
        "a traceback": "Traceback" in done.err,
        f"{len(lines)} lines": case.code != 0 and len(lines) != 1,
        "a result on stdout": case.code != 0 and done.out != "",
        f"{seconds:.1f} s": seconds > SECONDS,
        f"{megabytes} MB": megabytes > MEGABYTES,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the inputs of the tables of cases, as their own fixtures make them."""
    monkeypatch.chdir(tmp_path)
    words = ("--rows", "3000", "--dim", "3", "--seed", "5", "--quiet")
    assert 0 == streammc("simulate", "logistic", "store.zarr", *words).code
    shutil.copytree(finished / "run", tmp_path / "run")
    (tmp_path / "t.csv").write_text("y,a,b\n0,1,2\n1,2,1\n1,3,5\n")
    return tmp_path


@pytest.mark.trust(50)
@pytest.mark.parametrize("number", LIVE, ids=lambda number: f"{number} {LISTED[number][0]}")
def test_a_listed_input_ends_as_listed_within_its_time_and_memory(
    number: int, here: Path, record_property: Record
) -> None:
    for case in LIVE[number]:
        shutil.rmtree(here / "s", ignore_errors=True)
        kept = shutil.copytree(here, here.parent / f"{here.name}-kept", symlinks=True)
        listed = prepared(case, here)
        if listed.code == 0:
            streammc(*listed.words)  # compiled before
            shutil.rmtree(here / "out")
        before = snapshot(here)
        found = tried(listed)
        assert [] == faults(listed, found), (case, found)
        assert listed.code == 0 or before == snapshot(here), case
        for name in ("store.zarr", "out", "kept", "X"):
            path = here / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        shutil.copytree(kept / "store.zarr", here / "store.zarr", symlinks=True)
        shutil.rmtree(kept)
    record_property("figure", f"{len(LISTED)} of 64 bad inputs end as listed")


@pytest.mark.trust(50)
def test_every_number_of_the_list_has_cases_or_tests_that_carry_the_check() -> None:
    assert list(range(1, 65)) == sorted(LISTED)
    assert all(TESTED.values())
    elsewhere = {case for cases in TESTED.values() for case in cases if "::" in case}
    assert elsewhere <= set(marked()[50])


@pytest.mark.trust(50)
def test_a_bad_end_of_a_bad_input_is_seen(record_property: Record) -> None:
    case = Tried([], 65, "column 'x'")
    right: Any = Result(65, "", "streammc: expected numbers in column 'x'\n")
    assert [] == faults(case, (right, 0.1, 10))
    for wrong in (
        right._replace(code=0),
        right._replace(err="streammc: bad data\n"),
        right._replace(err=f"Traceback\n{right.err}"),
        right._replace(out="draws"),
    ):
        assert faults(case, (wrong, 0.1, 10))
    assert faults(case, (right, 5.1, 10))
    assert faults(case, (right, 0.1, 300))
    record_property("caught", "a message without its culprit, a sixth second, 257 MB")
