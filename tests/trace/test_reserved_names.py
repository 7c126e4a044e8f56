"""Names of unfinished outputs, and of temporary folders: one list that makers and gc share."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

import pytest

import streammc
from streammc.owner_mark import PREFIXES
from streammc.trace.reserved_names import kind_of_name

ROOT = Path(streammc.__file__).resolve().parents[1]
MAKERS = {"new_folder", "marked_folder", "temporary_folder"}


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
                    given = [each for each in node.args[:1] if isinstance(each, ast.Constant)]
                    if node.func.id in MAKERS and given:
                        found.add(given[0].value)
    # Folders of workers are made by TemporaryDirectory, whose prefix has the type of the list.
    assert {*PREFIXES} - {"streammc-workers-"} == found
