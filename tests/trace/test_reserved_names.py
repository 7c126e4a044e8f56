"""Names of unfinished outputs, and of temporary folders: one list that makers and gc share."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import streammc
from streammc.errors import ConfigError
from streammc.trace.arrays import write_arrays
from streammc.trace.lock import FILE, FOLDER, make_run_folder
from streammc.trace.row_arrays import RowArrays
from streammc.unfinished import PREFIXES, kind_of_name, refuse_reserved_name

ROOT = Path(streammc.__file__).resolve().parents[1]
MAKERS = {"new_folder": 0, "marked_folder": 0, "temporary_folder": 0, "result_path": 1}
"""Functions that make a folder, and the place of the prefix among their arguments."""


@pytest.mark.parametrize(
    "name",
    [
        "x.partial-12",
        ".x.partial-3",
        "x.zarr.scratch.partial-3",
        ".x.0123abcd.partial",
        "x.pulling",
        "x.partial-12.old",
        ".x.0123abcd.partial.old",
        ".x.7.streammc-tmp",
    ],
)
def test_name_of_something_unfinished_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a name of its own"):
        refuse_reserved_name(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["x.old", "x.partial", "x.partial-a", "partial-1", "streammc-analysis", "x.pulling.old"]
)
def test_name_that_only_looks_similar_is_allowed(name: str, tmp_path: Path) -> None:
    refuse_reserved_name(tmp_path / name)


def test_writers_of_results_and_runs_refuse_such_names(tmp_path: Path) -> None:
    path = tmp_path / "x.partial-12"
    writers: list[Callable[[], object]] = [
        lambda: RowArrays(path, ["mean"], 4, 4),
        lambda: write_arrays(path, {"a": np.zeros(2)}, {}),
        lambda: make_run_folder(path),
    ]
    for write in writers:
        with pytest.raises(ConfigError, match="expected a name of its own"):
            write()
    assert [] == list(tmp_path.iterdir())


def test_a_run_that_has_such_a_name_already_can_be_continued(tmp_path: Path) -> None:
    make_run_folder(tmp_path / "run")
    (tmp_path / "run" / FOLDER / FILE).touch()
    make_run_folder((tmp_path / "run").rename(tmp_path / "x.partial-12"))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_temporary_folder_of_every_prefix_is_known_by_its_name(prefix: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.rmdir()
    assert "temporary folder" == kind_of_name(folder.name)


def test_sources_use_no_other_prefix() -> None:
    """What a call of a maker, and TemporaryDirectory, has as prefix is in the list."""
    found = set()
    for folder in ("streammc", "stores", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    prefix = node.args[MAKERS.get(node.func.id, len(node.args)) :][:1]
                    found |= {each.value for each in prefix if isinstance(each, ast.Constant)}
    # Folders of workers are made by TemporaryDirectory, whose prefix has the type of the list.
    assert {*PREFIXES} - {"streammc-workers-"} == found
