"""The answer to the commit of a store at an address is lost, and the store is taken back."""

from __future__ import annotations

from collections.abc import Callable, Collection

import fault_proxy
import pytest
from object_store import Bucket, forget_connections

from streammc.errors import StreammcError
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import CloudFolder
from streammc.stores.cloud.requests import connect
from streammc.stores.cloud.upload import CLAIM, Upload
from streammc.stores.format.layout import MANIFEST

OBJECTS = ("X/c.0.0", "X/c.1.0", "zarr.json")
DELETE = ("DELETE", "POST")
Faults = Callable[[str, str], str | None]


@pytest.fixture
def place(bucket: Bucket) -> CloudFolder:
    return CloudFolder("s3", bucket.address.removeprefix("s3://"), "t.zarr")


@pytest.fixture
def keys_there(bucket: Bucket, place: CloudFolder) -> Callable[[], set[str]]:
    """Return a function that lists the objects past the proxy."""
    plain = connect("s3", place.bucket)

    def keys() -> set[str]:
        found = (each["path"] for page in plain.list(place.prefix) for each in page)
        return {key.removeprefix(f"{place.prefix}/") for key in found}

    return keys


def upload_and_lose_the_commit(
    bucket: Bucket, place: CloudFolder, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    """Write a store whose manifest arrives, without an answer, and discard it."""

    def choose(method: str, path: str) -> str | None:
        if path.partition("?")[0].endswith(MANIFEST) and method not in DELETE:
            return "lost" if method == "PUT" else "status"
        return faults(method, path)

    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), choose) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "1")
        forget_connections()
        upload = Upload(place)
        for key in OBJECTS:
            upload.write(key, b"content")
        with pytest.raises(StreammcError):
            upload.commit(OBJECTS, MANIFEST, b"{}")
        upload.discard()
        assert proxy.faults["lost"] > 0


def torn(keys: Collection[str]) -> bool:
    """Return whether a reader finds a manifest, and not all of its objects."""
    return MANIFEST in keys and not {*OBJECTS} <= {*keys}


def test_at_no_instant_is_a_manifest_without_its_objects(
    bucket: Bucket,
    place: CloudFolder,
    keys_there: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[str]] = []

    def watch(method: str, _: str) -> None:
        if method in DELETE:
            seen.append(keys_there())

    upload_and_lose_the_commit(bucket, place, monkeypatch, watch)
    assert MANIFEST in seen[0], "the manifest had arrived"
    assert not any(map(torn, seen))
    assert set() == keys_there()


def test_objects_stay_where_their_manifest_cannot_be_deleted(
    bucket: Bucket,
    place: CloudFolder,
    keys_there: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted: list[str] = []

    def forbid(method: str, path: str) -> str | None:
        deleted.extend([path] if method in DELETE else [])
        return "forbidden" if method in DELETE and 1 == len(deleted) else None

    upload_and_lose_the_commit(bucket, place, monkeypatch, forbid)
    assert {*OBJECTS, MANIFEST, CLAIM} == keys_there()


def test_the_order_of_before_is_seen_by_the_watch(
    bucket: Bucket,
    place: CloudFolder,
    keys_there: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def manifest_last(upload: Upload) -> None:
        requests.delete(place, [*OBJECTS, MANIFEST, CLAIM])

    seen: list[set[str]] = []
    monkeypatch.setattr(Upload, "discard", manifest_last)
    upload_and_lose_the_commit(
        bucket, place, monkeypatch, lambda method, _: seen.append(keys_there())
    )
    assert any(map(torn, seen))
