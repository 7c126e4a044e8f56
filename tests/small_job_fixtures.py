"""Fixtures around the small job, for the folders that use it."""

from __future__ import annotations

import os

import pytest
import small_job as job


@pytest.fixture(autouse=True, scope="module")
def no_power_cut():
    """Skip fsync, two seconds of every job: only a power cut can tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def small_job():
    """Return the module of the small job."""
    return job


@pytest.fixture(scope="module")
def small_blocks():
    """Give the small job a full pass of five blocks."""
    with job.small_blocks():
        yield


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Return the mapped store of the small job."""
    return job.mapped(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture(scope="session")
def reference(store, tmp_path_factory):
    """Return the directory of the small job, run with the default resources."""
    path = tmp_path_factory.mktemp("reference") / "run"
    with job.small_blocks():
        job.sample(store, path)
    return path
