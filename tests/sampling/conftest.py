import importlib.util
import os
from pathlib import Path

import pytest


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True, scope="module")
def no_power_cut():
    """Skip fsync, two seconds of every job: only a power cut can tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def small_job():
    """Return the module ``small_job`` beside this file."""
    return load(Path(__file__).with_name("small_job.py"))


@pytest.fixture(scope="module")
def small_blocks(small_job):
    """Give the small job a full pass of five blocks."""
    with small_job.small_blocks():
        yield


@pytest.fixture(scope="session")
def store(small_job, tmp_path_factory):
    """Return the mapped store of the small job."""
    return small_job.mapped(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture(scope="session")
def reference(small_job, store, tmp_path_factory):
    """Return the directory of the small job, run with the default resources."""
    path = tmp_path_factory.mktemp("reference") / "run"
    with small_job.small_blocks():
        small_job.sample(store, path)
    return path
