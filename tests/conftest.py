"""What all tests share: the optional folder of real data sets, and other users."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="session")
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """An identity that permissions apply to; for root, that of nobody.

    What is imported lazily must have been imported before: nobody may not read it.
    """

    @contextmanager
    def drop() -> Iterator[None]:
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)
        try:
            yield
        finally:
            os.seteuid(user)

    return drop
