import json
import subprocess
import sys
from pathlib import Path

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


def test_a_kill_at_any_system_call_leaves_a_whole_generation(tmp_path):
    # All of them (1, 1) take minutes.
    killed = crash(tmp_path, 5, 17)
    assert killed["fresh"] >= 20
    assert killed["extended"] >= 8


def test_a_kill_at_any_time_leaves_a_whole_generation(tmp_path):
    killed = crash(tmp_path, *(0.012 * n for n in range(1, 11)))
    assert killed["fresh"] + killed["extended"] >= 2
