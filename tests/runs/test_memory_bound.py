"""Anonymous memory of the real commands; ``bench/memory.py`` measures 1e7 rows."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
ROWS = 1_000_000
# A tenth of the rows: the libraries take 200 MB of this, the blocks of the pass the rest.
LIMITS = {"summarize": 600e6, "sample": 450e6}


@pytest.fixture(scope="module")
def memory():
    path = Path(__file__).parents[2] / "bench" / "memory.py"
    spec = importlib.util.spec_from_file_location("memory", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_commands_stay_within_their_memory(memory, tmp_path):
    memory.simulate(tmp_path, ROWS)
    for command, arguments in memory.commands(tmp_path, draws=200).items():
        usage = memory.measure(*arguments)
        assert 50e6 < usage.anonymous < LIMITS[command], command
        assert usage.anonymous < usage.resident
        document = json.loads(usage.output)
    assert "hmc-ecs" == document["sampling"]["sampler"]


def test_watch_counts_a_child_of_the_process(memory, monkeypatch, tmp_path):
    """The broken partner: 200 MB in a grandchild must show."""
    inner = "x = b'1' * 200_000_000; import time; time.sleep(0.5)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    monkeypatch.setattr(memory, "COMMAND", sys.executable)
    assert memory.measure("-c", outer).anonymous > 200e6
