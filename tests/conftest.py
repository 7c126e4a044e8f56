"""Fixtures of all tests: the optional folder of real data sets, and other users."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an end to the time that tests may take, and where they begin."""
    parser.addoption(
        "--until", type=float, help="skip what has not begun by then: seconds of date +%s"
    )
    parser.addoption(
        "--first-file", help="begin at another file for another word, so that --until skips others"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin at the file that ``--first-file`` stands for, and go round."""
    word = config.getoption("--first-file")
    files = list(dict.fromkeys(item.path for item in items))
    if word is not None and files:
        turn = int(hashlib.sha256(word.encode()).hexdigest(), 16) % len(files)
        place = {path: (number - turn) % len(files) for number, path in enumerate(files)}
        items.sort(key=lambda item: place[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose time has passed, before its fixtures are made."""
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("NOT RUN: the machine was too slow")


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Give a test that has passed the ``figure`` and the ``caught`` of its marks ``trust``."""
    if call.when == "call" and call.excinfo is None:
        for mark in item.iter_markers("trust"):
            item.user_properties.extend(mark.kwargs.items())
