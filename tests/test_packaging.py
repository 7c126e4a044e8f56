"""Installed packages, their names and their data."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import streammc

ROOT = Path(__file__).resolve().parent.parent
MAPPED = {"streammc.stores": "stores", "streammc.cli": "cli"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_in_tree(root: Path) -> set[str]:
    """Return every package below ``root`` by the name under which it is installed."""
    found = {"streammc"}
    for name, folder in (("streammc", "streammc"), *MAPPED.items()):
        if (root / folder / "__init__.py").is_file():
            found.add(name)
        for path in (root / folder).rglob("__init__.py"):
            inner = path.parent.relative_to(root / folder)
            if inner.parts and not any(
                parent.is_symlink() for parent in [path.parent, *path.parent.parents]
            ):
                found.add(".".join([name, *inner.parts]))
    return found


def test_listed_packages_are_those_of_the_tree() -> None:
    listed = project()["tool"]["setuptools"]["packages"]
    assert packages_in_tree(ROOT) == set(listed)
    assert len(set(listed)) == len(listed)


def test_a_package_that_is_not_listed_is_found(tmp_path: Path) -> None:
    for folder in ("streammc", "streammc/new", "stores", "stores/deep", "cli"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "streammc" / "stores").symlink_to(tmp_path / "stores")
    assert packages_in_tree(tmp_path) == {
        *("streammc", "streammc.new", "streammc.cli"),
        *("streammc.stores", "streammc.stores.deep"),
    }


def test_every_folder_with_python_files_is_a_package() -> None:
    for folder in ("streammc", "stores", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), path


def test_folders_are_mapped_as_the_links_say() -> None:
    assert project()["tool"]["setuptools"]["package-dir"] == MAPPED
    for name, folder in MAPPED.items():
        link = ROOT / name.replace(".", "/")
        if not link.is_symlink():
            pytest.skip("this file system has no links")
        assert link.resolve() == ROOT / folder


@pytest.mark.parametrize("folder", ["stores", "cli"])
def test_stray_import_is_refused_with_the_right_name(folder: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", f"import {folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 1
    assert "ImportError" in finished.stderr
    assert f"streammc.{folder}" in finished.stderr


def test_version_is_the_same_everywhere() -> None:
    version = project()["project"]["version"]
    assert streammc.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_typed_marker_and_demo_data_are_package_data() -> None:
    data = project()["tool"]["setuptools"]["package-data"]
    assert "py.typed" in data["streammc"]
    assert (ROOT / "streammc" / "py.typed").is_file()
    names = {path.name for path in (ROOT / "streammc" / "demo_data").iterdir()}
    for pattern in data["streammc.demo_data"]:
        assert any(Path(name).match(pattern) for name in names), pattern
