"""A small store and a finished run, made once by the commands themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import streammc
from object_store_fixtures import *  # noqa: F403

SAMPLE = ("--model", "logistic", "--seed", "1", "--draws", "60", "--warmup", "60", "--chains", "2")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith("STREAMMC_") and name != "STREAMMC_TEST_DATA":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with store.zarr (logistic, 3,000 rows of 3 columns) and run, finished."""
    folder = tmp_path_factory.mktemp("made")
    words = ("--rows", "3000", "--dim", "3", "--seed", "5", "--quiet")
    assert streammc("simulate", "logistic", folder / "store.zarr", *words).code == 0
    done = streammc("sample", folder / "store.zarr", "-o", folder / "run", *SAMPLE, "--quiet")
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the store, as store.zarr in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "store.zarr", tmp_path / "store.zarr")
    return tmp_path / "store.zarr"


@pytest.fixture
def run(made: Path, store: Path) -> Path:
    """A copy of the finished run, as run in the current folder."""
    shutil.copytree(made / "run", store.parent / "run")
    return store.parent / "run"
