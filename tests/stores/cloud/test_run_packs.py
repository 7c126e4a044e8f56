"""The archives of a run: what goes in comes out, and nothing leaves the folder."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from streammc.errors import StoreError
from streammc.stores.cloud import staged_run


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_come_back_as_they_were_and_large_ones_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_run, "_LARGEST", 100)
    name = "posterior/naïve " + "x" * 120
    files = {"zarr.json": b"{}", "a/c/0/0": b"\0" * 150, name: b"1", "empty": b""}
    archives = list(staged_run.packed(files))
    assert 2 == len(archives)
    assert archives == list(staged_run.packed(files))  # nothing depends on the time
    for archive in archives:
        staged_run._unpack(memoryview(archive), tmp_path)
    assert files == files_below(tmp_path)
    assert [] == list(staged_run.packed({}))


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_archive_with_a_name_outside_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    archive = next(iter(staged_run.packed({name: b"x"})))
    with pytest.raises(StoreError, match="plain files"):
        staged_run._unpack(memoryview(archive), tmp_path / "run")
    assert {} == files_below(tmp_path)


def test_archive_with_a_link_is_refused(tmp_path: Path) -> None:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as archive:
        link = tarfile.TarInfo("zarr.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(StoreError, match="plain files"):
        staged_run._unpack(memoryview(into.getvalue()), tmp_path / "run")
