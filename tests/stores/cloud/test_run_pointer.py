"""The pointer of a run at an address: read with checks, put under a condition."""

from __future__ import annotations

from typing import Any

import obstore
import pytest
from fault_proxy import FaultProxy
from object_store import Bucket, forget_connections

from streammc.errors import BusyError, OutputError, StoreError
from streammc.stores.cloud import staged_run
from streammc.stores.cloud.address import CloudFolder, store_root
from streammc.stores.cloud.requests import connect
from streammc.stores.cloud.staged_run import Packed, Pointer, decode, put_pointer, read_pointer
from streammc.trace.zarr_files import seal

STATE = (Packed("objects/a-000001.tar", 10, "00ff"),)


def pointer(number: int, writer: str = "a") -> Pointer:
    return Pointer(writer, number, number, STATE, ())


@pytest.fixture
def folder(bucket: Bucket) -> CloudFolder:
    found = store_root(f"{bucket.address}/run")
    assert isinstance(found, CloudFolder)
    return found


def test_pointer_comes_back_with_the_version_of_its_put(folder: CloudFolder) -> None:
    assert read_pointer(folder) is None
    first = put_pointer(folder, pointer(0), None)
    assert (pointer(0), first) == read_pointer(folder)
    second = put_pointer(folder, pointer(1), first)
    assert (pointer(1), second) == read_pointer(folder)


@pytest.mark.parametrize("before", [False, True])
def test_pointer_of_another_writer_stays(before: bool, folder: CloudFolder) -> None:
    seen = put_pointer(folder, pointer(0), None) if before else None
    put_pointer(folder, pointer(1, "b"), seen)
    with pytest.raises(BusyError, match="another commit"):
        put_pointer(folder, pointer(1), seen)
    found = read_pointer(folder)
    assert found is not None
    assert pointer(1, "b") == found[0]


def test_pointer_that_was_deleted_is_not_put_again(folder: CloudFolder) -> None:
    seen = put_pointer(folder, pointer(0), None)
    obstore.delete(connect(folder.scheme, folder.bucket), folder.key(staged_run.POINTER))
    with pytest.raises(BusyError):
        put_pointer(folder, pointer(1), seen)
    assert read_pointer(folder) is None


def test_refusal_while_the_old_pointer_is_there_is_tried_again(
    folder: CloudFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers 409 to a put while another one of the same key is under way."""
    seen = put_pointer(folder, pointer(0), None)
    put, refused = obstore.put, []

    def once(*words: Any, **options: Any) -> Any:
        if not refused:
            refused.append(True)
            raise obstore.exceptions.PreconditionError("409 ConditionalRequestConflict")
        return put(*words, **options)

    monkeypatch.setattr(obstore, "put", once)
    put_pointer(folder, pointer(1), seen)
    found = read_pointer(folder)
    assert refused
    assert found is not None
    assert pointer(1) == found[0]


def test_body_that_breaks_off_is_read_again(
    folder: CloudFolder, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_pointer(folder, pointer(0), None)
    faults = ["truncated", "reset", "status"]
    host = bucket.endpoint.removeprefix("http://")
    with FaultProxy(host, lambda *_: faults.pop() if faults else None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        found = read_pointer(folder)
    assert found is not None
    assert pointer(0) == found[0]
    assert not faults


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"kind": "run", "format": 1}, "found kind 'run'"),
        ({"kind": "run at an address", "format": 2}, "format 2: choose another address, or update"),
        ({"kind": "run at an address", "format": 1}, "found KeyError"),
    ],
)
def test_document_of_another_kind_or_format_is_refused(
    own: dict[str, Any], message: str, folder: CloudFolder
) -> None:
    with pytest.raises(StoreError, match=message):
        decode(seal({}, own), folder)


def test_document_with_broken_entries_is_refused(folder: CloudFolder) -> None:
    own = {"kind": "run at an address", "format": 1, "writer": "a", "number": 0, "generation": 0}
    with pytest.raises(StoreError, match="expected a pointer"):
        decode(seal({}, {**own, "state": [["key", "many", "00"]], "others": []}), folder)


def test_pointer_that_is_too_large_is_refused(
    folder: CloudFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_pointer(folder, pointer(0), None)
    monkeypatch.setattr(staged_run, "DOCUMENT_LIMIT", 10)
    with pytest.raises(StoreError, match="expected at most 10 bytes"):
        read_pointer(folder)


def test_machine_without_a_temporary_folder_is_told_what_to_set(
    folder: CloudFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(prefix: str) -> Any:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(staged_run, "temporary_folder", refused)
    with pytest.raises(OutputError, match="set TMPDIR") as caught:
        staged_run.StagedRun(folder)
    assert 73 == caught.value.exit_code
