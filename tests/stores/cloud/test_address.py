from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streammc.errors import ConfigError
from streammc.stores.cloud.address import CloudFolder, split_arrays, store_root


def test_address_keeps_bucket_and_folder() -> None:
    folder = store_root("s3://bucket/some/table.zarr/")
    assert CloudFolder("s3", "bucket", "some/table.zarr") == folder
    assert "s3://bucket/some/table.zarr" == str(folder)
    assert folder == pickle.loads(pickle.dumps(folder))


def test_file_address_is_a_local_path(tmp_path: Path) -> None:
    assert tmp_path / "a b" == store_root(f"file://{tmp_path}/a%20b")


@pytest.mark.trust(53)
@pytest.mark.parametrize(
    "address",
    [
        "s3://canary:secret@bucket/t.zarr",
        "https://canary-secret@host/t.zarr",
        "https://host/t.zarr?X-Amz-Signature=canary-secret",
        "az://container/t.zarr?sv=2020&sig=canary-secret",
        "gs://bucket/t.zarr#canary-secret",
        "ftp://canary-secret/t.zarr",
        "s3://bucket/../canary-secret",
        "http://canary-secret.example/t.zarr",
        "file://canary-secret/t.zarr",
        "s3://canary secret/t",
    ],
)
def test_address_that_may_hold_credentials_or_escape_is_refused_unrepeated(address: str) -> None:
    with pytest.raises(ConfigError, match="expected") as caught:
        store_root(address)
    assert "canary" not in str(caught.value)


def test_loopback_web_server_needs_no_tls() -> None:
    assert "http://127.0.0.1:8000/t.zarr" == str(store_root("http://127.0.0.1:8000/t.zarr"))


def test_fragment_names_arrays_of_a_path_or_an_address() -> None:
    assert ("t.zarr", {"X": "a/b", "y": "c"}) == split_arrays("t.zarr#X=a/b&y=c")
    assert ("s3://b/t", {"X": "a"}) == split_arrays("s3://b/t#X=a")
    assert ("rows#1.zarr", {}) == split_arrays("rows#1.zarr")


@pytest.mark.parametrize("fragment", ["X=a&X=b", "X=", "X=../a", "X=a&z=b", "X=a//b"])
def test_fragment_with_unusable_names_is_refused(fragment: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        split_arrays(f"t.zarr#{fragment}")
