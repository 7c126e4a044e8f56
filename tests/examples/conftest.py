"""Copies of the examples in a folder of their own, and programs that the tests kill."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights"


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of the flights, as the example's script writes it."""
    folder = tmp_path_factory.mktemp("table")
    script = [sys.executable, str(FLIGHTS / "make_table.py"), str(folder)]
    subprocess.run(script, check=True, timeout=120)
    return folder / "flights.parquet"


@pytest.fixture(scope="session")
def new_job(table: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return a function that makes a folder with the table and ``job.toml``, not yet run.

    All folders hold one file of the table, so that jobs know it by the same time and size.
    """

    def make(text: str | None = None) -> Path:
        folder = tmp_path_factory.mktemp("flights")
        os.link(table, folder / "flights.parquet")
        shutil.copy(FLIGHTS / "job.toml", folder)
        if text is not None:
            (folder / "job.toml").write_text(text)
        return folder

    return make


@pytest.fixture(scope="session")
def whole(new_job) -> Path:
    """Folder of the job, run without any interruption."""
    from command_line import program

    folder = new_job()
    done = program("run", "job.toml", "--quiet", cwd=folder)
    assert 0 == done.code, done.err
    return folder
