"""Any history of operations leaves what a model of it says: check 24."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import rounds

PROGRAM = Path(__file__).with_name("histories.py")


def histories(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.mark.trust(24)
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_any_history_of_operations_leaves_what_the_model_says(
    record_property: Callable[[str, object], None],
) -> None:
    examples, steps = rounds(10, 200), rounds(12, 50)
    found = histories(examples, steps)
    assert 0 == found.returncode, found.stderr[-4000:]
    done = json.loads(found.stdout)
    assert {"ingest", "append", "summarize", "sample", "crash", "gc", "copy"} <= set(done)
    count = ", ".join(f"{number} {name}" for name, number in sorted(done.items()))
    record_property("figure", f"{examples} histories of up to {steps} steps, 0 differ: {count}")


@pytest.mark.trust(24)
@pytest.mark.slow
def test_a_crash_that_loses_a_run_is_caught(record_property: Callable[[str, object], None]) -> None:
    found = histories(20, 15, "forget")
    assert 0 != found.returncode
    assert "AssertionError" in found.stderr or "MissingError" in found.stderr, found.stderr[-2000:]
    record_property("caught", "a crash that loses what a run had committed")
