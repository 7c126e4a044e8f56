from __future__ import annotations

from pathlib import Path

import pytest
from checks_of_trust import JOB
from clusters import write_store
from command_line import streammc
from object_store_fixtures import *  # noqa: F403


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with store.zarr (logistic, 20,000 rows of 4 columns), and run: 60 draws of it."""
    folder = tmp_path_factory.mktemp("finished")
    words = ("--rows", "20000", "--dim", "4", "--seed", "5", "--quiet")
    assert 0 == streammc("simulate", "logistic", folder / "store.zarr", *words).code
    done = streammc("sample", folder / "store.zarr", "-o", folder / "run", *JOB, "--draws", "60")
    assert 0 == done.code, done.err
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of 20 chunks."""
    return Path(write_store(tmp_path_factory.mktemp("cluster") / "s.zarr"))
