import importlib.util
from pathlib import Path

import pytest
from object_store_fixtures import *  # noqa: F403


@pytest.fixture(scope="session")
def job():
    """Return the module ``example_job`` beside this file."""
    where = Path(__file__).with_name("example_job.py")
    spec = importlib.util.spec_from_file_location("example_job", where)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def finished(job, tmp_path):
    """Return the directory of a finished run with an audit group."""
    path = tmp_path / "run"
    run = job.sample(path)
    with run.lock():
        run.add_group(
            "audit", {"log_weight": (("chain", "draw"), job.theta("draws", 0, 4)[:, :, 0])}
        )
        run.set_attributes({"summary": {"mean": 0.1234567890123456789}})
    return path
