"""Readers beside a writer see committed states alone: check 23."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks_of_trust import rounds

Recorded = Callable[[str, object], None]
TRACE = Path(__file__).resolve().parents[1] / "trace"
WRITER = f"""
import sys, time
sys.path.insert(0, {str(TRACE)!r})
import example_job as job
from streammc.trace import commit

def torn_root(path, state, attributes, expected):
    data = commit.root_document(state, attributes)
    with open(path / "zarr.json", "wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        time.sleep(0.002)
        file.write(data[len(data) // 2 :])
    return commit.root_stamp(path)

path, draws, torn = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "torn"
if torn:
    commit.commit_root = torn_root
job.sample(path, draws, lambda run: time.sleep(0.01))
"""
READER = f"""
import json, sys
sys.path.insert(0, {str(TRACE)!r})
import example_job as job
from streammc.errors import StreammcError
from streammc.trace.run_directory import RunDirectory

path, opens = sys.argv[1], int(sys.argv[2])
seen, faults = [], []
for _ in range(opens):
    try:
        run = RunDirectory.open(path)
        job.check_prefix(run, checkpoint=False)
        seen.append(run.generation)
    except (StreammcError, AssertionError) as error:
        faults.append(str(error)[:200])
print(json.dumps({{"seen": seen, "faults": faults}}))
"""


def beside(path: Path, generations: int, opens: int, how: str) -> list[dict[str, Any]]:
    """Let one process commit while two open the run; return what these saw."""
    sys.path.insert(0, str(TRACE))
    import example_job

    example_job.create(path)
    command = [sys.executable, "-c"]
    draws = (generations - 2) * example_job.INTERVAL
    with subprocess.Popen([*command, WRITER, path, str(draws), how]) as writer:
        readers = [
            subprocess.Popen(
                [*command, READER, path, str(opens)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        found = [json.loads(reader.communicate()[0]) for reader in readers]
        assert 0 == writer.wait()
    return found


@pytest.mark.trust(23)
@pytest.mark.slow
def test_two_readers_beside_a_writer_see_whole_generations_in_their_order(
    tmp_path: Path, record_property: Recorded
) -> None:
    opens, generations = rounds(100, 1000), rounds(20, 120)
    seen: list[int] = []
    for number in range(rounds(1, 3)):
        for found in beside(tmp_path / str(number), generations, opens // rounds(1, 3), "whole"):
            assert [] == found["faults"]
            assert found["seen"] == sorted(found["seen"])
            seen += found["seen"]
    assert len({*seen}) > 5
    record_property(
        "figure",
        f"{len(seen)} of {len(seen)} opens beside a writer whole, of {len({*seen})} generations, "
        "none older than one before",
    )


@pytest.mark.trust(23)
@pytest.mark.slow
def test_readers_see_a_root_document_that_is_written_in_place(
    tmp_path: Path, record_property: Recorded
) -> None:
    found = beside(tmp_path / "run", 40, 200, "torn")
    faults = [fault for each in found for fault in each["faults"]]
    assert faults
    record_property("caught", f"a root document that is written in place: {len(faults)} bad opens")
