"""What streammc is installed with, built into, and does at its import: check 59."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaged import LOCK, ROOT, extras_asked, extras_pinned, pinned, requirements

Record = Callable[[str, object], None]
BUILD = "from setuptools import build_meta; build_meta.build_wheel({!r})"
IMPORT = """
import sys
opened = []
sys.addaudithook(lambda event, words: opened.append(event) if event.startswith("socket.") else None)
{}
print(sorted({{event for event in opened if event not in ("socket.gethostname",)}}))
"""
EVERYTHING = """
import importlib, pkgutil, streammc
for each in pkgutil.walk_packages(streammc.__path__, "streammc."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
"""


@pytest.mark.trust(59)
def test_every_dependency_of_the_project_is_pinned_by_hash(record_property: Record) -> None:
    found = pinned(LOCK.read_text(encoding="utf-8"))
    assert set() == set(requirements(("dev", "docs"))) - set(found)
    assert "setuptools" in found
    assert [] == [name for name, hashes in found.items() if not hashes]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes --only-binary :all: -r requirements/ci.lock" in recipe
    record_property("figure", f"{len(found)} packages pinned by {sum(found.values())} hashes")


@pytest.mark.trust(59)
def test_a_dependency_without_a_version_or_a_hash_is_seen(record_property: Record) -> None:
    assert {"numpy": 0} == pinned("numpy==2.0\n")
    with pytest.raises(ValueError, match="not pinned: numpy>=2"):
        pinned("numpy>=2\n")
    assert "scipy" in set(requirements(())) - set(pinned("numpy==2.0 \\\n    --hash=sha256:1\n"))
    record_property("caught", "a dependency without a hash")


@pytest.mark.trust(59)
def test_what_a_package_asks_of_another_with_an_extra_is_pinned_with_it(
    record_property: Record,
) -> None:
    # pip before 25 looks for the newest coverage where coverage[toml] is asked and coverage pinned.
    text = LOCK.read_text(encoding="utf-8")
    asked = extras_asked(pinned(text))
    assert "toml" in asked["coverage"]
    assert {} == missing_extras(asked, extras_pinned(text))
    bare = extras_pinned(text.replace("coverage[toml]==", "coverage=="))
    assert {"coverage": {"toml"}} == missing_extras(asked, bare)
    record_property("caught", "a package pinned without the extra that another asks of it")


def missing_extras(asked: dict[str, set[str]], has: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: each - has[name] for name, each in asked.items() if each - has[name]}


def wheel(folder: Path, when: str) -> str:
    """Build a wheel from a copy of the sources; return the digest of its bytes."""
    names = ("streammc", "stores", "cli", "pyproject.toml", "README.md", "LICENSE")
    for name in names:
        here, there = ROOT / name, folder / "sources" / name
        if here.is_dir():
            shutil.copytree(
                here, there, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
    env = {**os.environ, "SOURCE_DATE_EPOCH": when}
    words = [sys.executable, "-c", BUILD.format(str(folder))]
    subprocess.run(words, cwd=folder / "sources", env=env, capture_output=True, check=True)
    [made] = folder.glob("*.whl")
    return hashlib.sha256(made.read_bytes()).hexdigest()


@pytest.mark.trust(59)
@pytest.mark.slow
def test_two_builds_of_the_same_sources_are_the_same_wheel(
    tmp_path: Path, record_property: Record
) -> None:
    pytest.importorskip("setuptools", minversion="77")
    digests = [wheel(tmp_path / name, "1700000000") for name in ("first", "second")]
    assert digests[0] == digests[1]
    assert digests[0] != wheel(tmp_path / "third", "1600000000")
    record_property("figure", "two builds: one wheel, to the byte")


def events_of(statements: str) -> str:
    words = [sys.executable, "-c", IMPORT.format(statements)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.trust(59)
@pytest.mark.slow
def test_to_import_every_module_opens_no_socket(record_property: Record) -> None:
    assert "[]" == events_of(EVERYTHING)
    assert "[]" != events_of("import socket\nsocket.socket().close()")
    record_property("figure", "import of every module: no socket")
