"""Fixtures of an S3 server on loopback, for the folders that use it."""

from __future__ import annotations

from collections.abc import Iterator

import object_store
import pytest


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Address of a server that lasts as long as the tests."""
    with object_store.s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object_store.Bucket]:
    """Return a bucket of the test's own, with the environment of its owner."""
    for name, value in object_store.variables(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr("streammc.stores.cloud.requests._FIRST_PAUSE", 0.005)
    object_store.forget_connections()
    yield object_store.new_bucket(s3_endpoint)
    object_store.forget_connections()
