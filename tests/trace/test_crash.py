import json
import subprocess
import sys
from pathlib import Path

import pytest
from checks_of_trust import rounds

PROGRAM = Path(__file__).with_name("crash_points.py")


def crash(folder, *arguments):
    """Return the number of kills per job; every examination is in the program."""
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.trust(18)
@pytest.mark.slow
def test_a_kill_at_any_system_call_leaves_a_whole_generation(tmp_path, record_property):
    # All of them (1, 1) take minutes.
    killed = crash(tmp_path, rounds(5, 1), rounds(17, 1))
    assert killed["fresh"] >= rounds(20, 300)
    assert killed["extended"] >= rounds(8, 100)
    points = killed["fresh"] + killed["extended"]
    record_property("figure", f"trace: {points} of {points} kills at calls that change the disk")


def test_a_kill_at_any_time_leaves_a_whole_generation(tmp_path):
    killed = crash(tmp_path, *(0.012 * n for n in range(1, 11)))
    assert killed["fresh"] + killed["extended"] >= 2
