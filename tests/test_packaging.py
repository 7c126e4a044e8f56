"""Installed packages, their names and their data."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaged import requirements
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import streammc

ROOT = Path(__file__).resolve().parent.parent
RECIPE = yaml.safe_load((ROOT / "requirements/conda/recipe.yaml").read_text(encoding="utf-8"))
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


DISTRIBUTIONS = {
    "arviz_stats": "arviz-stats",
    "google_crc32c": "google-crc32c",
    "IPython": "ipython",
    "sklearn": "scikit-learn",
}
"""Distributions whose name is not that of their module."""
SHOWN = {"arviz-plots"}
"""Dependencies of the extra ``plots`` that pages import, and streammc does not."""
GIVEN = {"ipython", "polars"}
"""Packages that are there where they are needed: of a notebook, of the user's own frame."""


def imported(text: str) -> Iterator[str]:
    """Yield the distributions that a source imports, at its top or within functions."""
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in (each.partition(".")[0] for each in names):
            if name != "streammc" and name not in sys.stdlib_module_names:
                yield DISTRIBUTIONS.get(name, name)
        waiting += ast.iter_child_nodes(node)


def imports() -> set[str]:
    """Return the distributions that streammc imports."""
    folders = [ROOT / name for name in ("streammc", *MAPPED.values())]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return {name for path in paths for name in imported(path.read_text(encoding="utf-8"))}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    extras = ("cloud", "distributed", "plots", "sklearn")
    base, optional = set(requirements(())), set(requirements(extras)) - set(requirements(()))
    found = imports()
    assert set() == found - base - optional - GIVEN
    assert "ipython" in requirements(("notebook",))
    assert set() == (base | optional) - found - SHOWN
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    assert all(f"import {name.replace('-', '_')}" in text for name in SHOWN)


def test_imports_of_functions_are_seen_and_those_of_types_are_not() -> None:
    text = "import os\ndef f():\n    from obstore.store import S3Store\n"
    assert ["obstore"] == list(imported(text))
    typing = "if TYPE_CHECKING:\n    import xarray\nelse:\n    import pandas as pd\n"
    assert ["pandas"] == list(imported(typing))


@pytest.mark.parametrize("extras", [(), ("cloud", "distributed", "plots")])
def test_every_dependency_has_a_lower_bound(extras: tuple[str, ...]) -> None:
    bare = {name for name, words in requirements(extras).items() if ">=" not in "".join(words)}
    assert set() == bare - {"llvmlite"}  # numba takes one version of it


def test_version_is_the_same_everywhere() -> None:
    version = project()["project"]["version"]
    assert streammc.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert RECIPE["context"]["version"] == version
    asked = ["git", "tag", "--points-at", "HEAD", "v*"]
    tags = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(tags.stdout.split()) <= {f"v{version}"}


def test_recipe_of_conda_runs_with_what_the_wheel_runs_with() -> None:
    run = {}
    for each in RECIPE["requirements"]["run"]:
        name, _, bounds = each.partition(" ")
        run[{"dask-core": "dask"}.get(name, name)] = bounds
    assert run.pop("python") == project()["project"]["requires-python"]
    asked = [Requirement(each) for each in project()["project"]["dependencies"]]
    assert {each.name: each.specifier for each in asked} == {
        name: SpecifierSet(bounds) for name, bounds in run.items()
    }


def test_recipe_of_conda_is_rendered() -> None:
    rattler_build = pytest.importorskip("rattler_build")
    (made,) = rattler_build.Stage0Recipe.from_dict(RECIPE).render()
    assert project()["project"]["version"] == made.recipe.package.version
    broken = {**RECIPE, "requirements": {"run": ["numpy >=>2"]}}
    with pytest.raises(rattler_build.RattlerBuildError):
        rattler_build.Stage0Recipe.from_dict(broken).render()


def test_typed_marker_and_demo_data_are_package_data() -> None:
    data = project()["tool"]["setuptools"]["package-data"]
    assert "py.typed" in data["streammc"]
    assert (ROOT / "streammc" / "py.typed").is_file()
    names = {path.name for path in (ROOT / "streammc" / "demo_data").iterdir()}
    for pattern in data["streammc.demo_data"]:
        assert any(Path(name).match(pattern) for name in names), pattern
