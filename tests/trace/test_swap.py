"""A directory takes the place of another in one step, where the system can."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from streammc.trace import disk


@pytest.fixture
def folders(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path / "new", tmp_path / "old"


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is a call of Linux")
def test_the_names_are_exchanged_by_one_call(folders, monkeypatch):
    monkeypatch.setattr(os, "rename", lambda *_: pytest.fail("a name was missing for an instant"))
    new, target = folders
    disk.swap(new, target)
    assert "new" == (target / "file").read_text()
    assert [target] == [*target.parent.iterdir()]


def test_without_such_a_call_the_old_folder_makes_way(folders, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    new, target = folders
    assert not disk._exchange(new, target)
    disk.swap(new, target)
    assert "new" == (target / "file").read_text()
    assert [target] == [*target.parent.iterdir()]


def test_a_folder_without_a_predecessor_gets_the_name(folders):
    new, target = folders
    disk.swap(new, target.with_name("third"))
    assert "new" == (target.with_name("third") / "file").read_text()
    assert not new.exists()
