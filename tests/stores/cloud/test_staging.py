from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fault_proxy
import numpy as np
import pytest
from object_store import Bucket, forget_connections

from streammc.errors import BusyError, IdentityError, StoreError, StreammcError, UnavailableError
from streammc.stores.cloud.staging import pull
from streammc.stores.store import open_store, verify


@pytest.fixture
def remote(bucket: Bucket, write_store: Callable[..., Any]) -> str:
    path = f"{bucket.address}/far/t.zarr"
    write_store(path)
    return path


def test_copy_has_the_fingerprint_and_every_byte(remote: str, tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    result = pull(remote, tmp_path / "t.zarr", lambda *now: done.append(now))
    assert verify(tmp_path / "t.zarr")["ok"]
    store = open_store(tmp_path / "t.zarr")
    assert open_store(remote).fingerprint == store.fingerprint == result["fingerprint"]
    assert result["bytes"] == result["bytes_read"] == done[-1][0] == done[-1][1]
    assert ["t.zarr"] == os.listdir(tmp_path)


def test_second_call_reads_nothing(remote: str, tmp_path: Path) -> None:
    pull(remote, tmp_path / "t.zarr")
    assert 0 == pull(remote, tmp_path / "t.zarr")["bytes_read"]


def test_interrupted_copy_goes_on_with_what_is_whole(remote: str, tmp_path: Path) -> None:
    calls = 0

    def stop(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(remote, tmp_path / "t.zarr", stop)
    assert ["t.zarr.pulling"] == os.listdir(tmp_path)
    staging = tmp_path / "t.zarr.pulling"
    kept = [path for path in staging.rglob("*") if path.is_file()]
    assert kept
    torn = max(kept, key=lambda path: path.stat().st_size)
    content = bytearray(torn.read_bytes())
    content[len(content) // 2] ^= 1
    torn.write_bytes(content)
    (staging / "of-another-store").write_bytes(b"1")
    result = pull(remote, tmp_path / "t.zarr")
    whole = sum(path.stat().st_size for path in (tmp_path / "t.zarr").rglob("*") if path.is_file())
    assert len(content) <= result["bytes_read"] < result["bytes"] < whole
    assert verify(tmp_path / "t.zarr")["ok"]
    assert not (tmp_path / "t.zarr" / "of-another-store").exists()


def test_service_that_dies_leaves_a_copy_that_can_go_on(
    remote: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0

    def choose(method: str, path: str) -> str | None:
        nonlocal seen
        seen += "/c." in path
        return "status" if seen > 5 else None

    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.3")
    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), choose) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        with pytest.raises(UnavailableError, match="try again"):
            pull(remote, tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    forget_connections()
    result = pull(remote, tmp_path / "t.zarr")
    assert result["bytes_read"] < result["bytes"]
    assert verify(tmp_path / "t.zarr")["ok"]


def test_damaged_object_is_refused(write_store: Callable[..., Any], tmp_path: Path) -> None:
    source = write_store(tmp_path / "s.zarr").path
    chunk = source / "X" / "c.1.0"
    content = np.fromfile(chunk, np.uint8)
    content[100] ^= 1
    content.tofile(chunk)
    with pytest.raises(StoreError, match=r"crc32c .* 'X/c\.1\.0'"):
        pull(f"file://{source}", tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()


def test_other_data_and_other_processes_are_respected(
    remote: str, write_store: Callable[..., Any], tmp_path: Path
) -> None:
    write_store(tmp_path / "other.zarr", rows=50)
    with pytest.raises(IdentityError, match="something else"):
        pull(remote, tmp_path / "other.zarr")
    (tmp_path / "t.zarr.pulling").mkdir()
    lock = os.open(tmp_path / "t.zarr.pulling", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(BusyError, match="another process"):
        pull(remote, tmp_path / "t.zarr")
    os.close(lock)
    with pytest.raises(StreammcError, match="existing, writable folder"):
        pull(remote, tmp_path / "none" / "t.zarr")
