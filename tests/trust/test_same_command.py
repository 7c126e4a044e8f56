"""The same command again, and many copies of it at once: check 41."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checks_of_trust import rounds
from command_line import snapshot, streammc
from job_tables import write_job

Recorded = Callable[[str, object], None]
COPIES = Path(__file__).with_name("command_copies.py")
SECONDS = 2.0
"""Processor time that a command may take to find that its work is done."""
COMMANDS = """
simulate logistic simulated --rows 5000 --dim 3 --seed 1
ingest t.csv store --response y --seed 1
ingest more.csv store --append
pull store copy
summarize store -o cv --model logistic
sample store -o run --model logistic --chains 2 --warmup 100 --draws 100 --seed 1
sample store -o signed --model logistic --chains 2 --warmup 50 --draws 50 --seed 1 --sampler hmc
predict run store -o predictions
audit run
report run -o report.html
run job.toml
verify run
info store
gc .
""".strip().splitlines()


def tables(folder: Path) -> None:
    rng = np.random.default_rng(1)
    for name, rows in (("t", 5000), ("more", 500)):
        x = rng.normal(size=(rows, 2))
        y = rng.random(rows) < 1 / (1 + np.exp(-x[:, 0]))
        path = folder / f"{name}.csv"
        np.savetxt(path, np.c_[y, x], delimiter=",", header="y,a,b", comments="", fmt="%.5g")


def done(words: str) -> float:
    """Run a command; return its processor time."""
    begun = time.process_time()
    found = streammc(*words.split(), "--quiet")
    assert 0 == found.code, (words, found.err)
    return time.process_time() - begun


@pytest.mark.trust(41)
@pytest.mark.slow
def test_the_same_command_again_ends_with_0_and_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Recorded
) -> None:
    monkeypatch.chdir(tmp_path)
    tables(tmp_path)
    write_job(tmp_path)
    longest = 0.0
    for words in COMMANDS:
        done(words)
        before = snapshot(tmp_path)
        for _ in range(again := rounds(1, 5)):
            longest = max(longest, done(words))
            assert before == snapshot(tmp_path), words
    assert longest < SECONDS
    count = len(COMMANDS) * again
    record_property(
        "figure",
        f"{count} of {count} repeated commands: exit 0, 0 bytes changed, at most {longest:.2f} s "
        "of processor time",
    )


@pytest.mark.trust(41)
@pytest.mark.slow
def test_copies_of_a_command_at_once_make_its_result_once(
    tmp_path: Path, record_property: Recorded
) -> None:
    number = rounds(4, 100)
    found = subprocess.run(
        [sys.executable, COPIES, tmp_path, str(number)], capture_output=True, text=True, check=False
    )
    assert 0 == found.returncode, found.stderr
    ended = json.loads(found.stdout)
    codes = ", ".join(f"{count} with {code}" for code, count in sorted(ended["codes"].items()))
    record_property(
        "figure",
        f"{number} rounds of 2 to 8 copies of ingest, summarize, sample and predict: {codes}; "
        "the result that of one",
    )


@pytest.mark.trust(41)
def test_a_command_that_touches_a_file_is_caught(tmp_path: Path, record_property: Recorded) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    before = snapshot(tmp_path)
    (tmp_path / "zarr.json").write_text("{}")
    assert before != snapshot(tmp_path)
    record_property("caught", "a file that is written again with the same bytes")
