"""What all tests share: the optional folder of real data sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of real data sets, from STREAMMC_TEST_DATA or beside the repository."""
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("STREAMMC_TEST_DATA", default)).resolve()
    if not folder.is_dir():
        pytest.skip("real data sets are not here: set STREAMMC_TEST_DATA")
    return folder
