from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fault_proxy
import numpy as np
import obstore
import pytest
from object_store import KEY_ID, SECRET, Bucket, forget_connections

import streammc
from streammc.errors import (
    AccessError,
    ConfigError,
    IdentityError,
    MissingError,
    SamplingWarning,
    StoreError,
    StreammcError,
    UnavailableError,
)
from streammc.stores.cloud.address import CloudFolder, store_root
from streammc.stores.cloud.requests import connect
from streammc.stores.cloud.upload import CLAIM, Upload
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import open_store, verify

TABLE_ROWS = 20_000


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(TABLE_ROWS, 3))
    late = rng.random(TABLE_ROWS) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.2]))
    return {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "late": late.astype(int)}


def write(table: dict[str, Any], path: str, **options: Any) -> None:
    ingest(table, path, response="late", chunk_rows=8192, seed=3, **options)


def draws_of(path: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        run = streammc.sample(
            open_store(path),
            streammc.models.logistic(),
            sampler=streammc.samplers.hmc_ecs(),
            chains=2,
            draws=40,
            warmup=40,
            seed=1,
        )
    return run["posterior"]["beta"].values


def folder_of(address: str) -> CloudFolder:
    folder = store_root(address)
    assert isinstance(folder, CloudFolder)
    return folder


@pytest.mark.parametrize(
    "options", [{}, {"layout": "cloud"}, {"layout": "cloud", "compression": "zstd"}]
)
def test_draws_from_an_object_store_are_those_of_the_local_store(
    options: dict[str, Any],
    table: dict[str, Any],
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local, remote = str(tmp_path / "t.zarr"), f"{bucket.address}/some/t.zarr"
    write(table, local)
    write(table, remote, **options)
    report = verify(remote)
    assert report["ok"], report
    monkeypatch.setenv("STREAMMC_CACHE_MB", "2")
    np.testing.assert_array_equal(draws_of(local), draws_of(remote))
    if not options:
        assert open_store(local).fingerprint == open_store(remote).fingerprint


def test_rows_are_not_appended_at_an_address(table: dict[str, Any], bucket: Bucket) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote, layout="cloud")
    with pytest.raises(IdentityError, match="expected a store on a local disk to append to"):
        streammc.append(table, remote)
    assert TABLE_ROWS == open_store(remote).n_rows


def test_predictions_from_an_object_store_are_those_of_the_local_store(
    table: dict[str, Any], bucket: Bucket, tmp_path: Path
) -> None:
    local, remote = str(tmp_path / "t.zarr"), f"{bucket.address}/t.zarr"
    write(table, local)
    write(table, remote, layout="cloud")
    model = streammc.models.logistic()
    found = [streammc.control_variates(open_store(path), model) for path in (local, remote)]
    np.testing.assert_array_equal(found[0].theta_star, found[1].theta_star)
    np.testing.assert_array_equal(found[0].hessian, found[1].hessian)


@pytest.mark.trust(28)
def test_flaky_service_changes_no_row(
    table: dict[str, Any], bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, remote = str(tmp_path / "t.zarr"), f"{bucket.address}/t.zarr"
    write(table, local)
    choose = fault_proxy.at_rate(0.1, 7, *fault_proxy.FAULTS, "lost")
    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), choose) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        write(table, remote)
        for _ in range(3):
            assert verify(remote)["ok"]
        np.testing.assert_array_equal(draws_of(local), draws_of(remote))
        assert set(proxy.faults) == {*fault_proxy.FAULTS, "lost"}, proxy.faults


@pytest.mark.trust(50)
@pytest.mark.trust(28)
def test_dead_service_ends_within_the_budget_and_without_its_words(
    table: dict[str, Any], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote)
    host = bucket.endpoint.removeprefix("http://")
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.5")
    for fault in ("status", "reset"):
        with fault_proxy.FaultProxy(host, lambda *_, fault=fault: fault, SECRET) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
            forget_connections()
            with pytest.raises(UnavailableError, match=r"tries over 0\.5 s") as caught:
                open_store(remote)
            assert SECRET not in str(caught.value)
            assert caught.value.__cause__ is None
            assert proxy.faults[fault] > 1


@pytest.mark.trust(50)
@pytest.mark.parametrize(("fault", "error"), [("forbidden", AccessError), ("gone", StoreError)])
def test_chunk_that_is_forbidden_or_missing_is_an_error_and_never_zeros(
    fault: str,
    error: type[StreammcError],
    table: dict[str, Any],
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote)

    def choose(method: str, path: str) -> str | None:
        return fault if method == "GET" and "X/c.1.0" in path else None

    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), choose, SECRET) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        store = open_store(remote)
        with pytest.raises(error, match=r"X/c\.1\.0") as caught:
            streammc.control_variates(store, streammc.models.logistic())
        assert SECRET not in str(caught.value)
        rows = np.array([9000], np.int64)
        out = streammc.protocols.Rows(np.empty((1, 4)), np.empty(1), np.empty(1), np.empty(1))
        with pytest.raises(error, match=r"X/c\.1\.0"):
            store.rows().gather(rows, 1, out)


def test_neighbouring_runs_are_read_by_one_request(
    table: dict[str, Any], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote, layout="cloud")
    host = bucket.endpoint.removeprefix("http://")
    with fault_proxy.FaultProxy(host, lambda *_: None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        store = open_store(remote)
        source = store.rows()
        before = len(proxy.requests)
        starts = np.arange(0, 8000, 5, dtype=np.int64)
        m = len(starts)
        out = streammc.protocols.Rows(np.empty((m, 4)), np.empty(m), np.empty(m), np.empty(m))
        source.gather(starts, 1, out)
        asked = [each for each in proxy.requests[before:] if each[0] == "GET"]
        # One index and one range of each array.
        assert 4 == len(asked), asked
        source.gather(starts, 1, out)
        assert before + 4 == len(proxy.requests)


def test_missing_store_and_missing_bucket_are_named(bucket: Bucket) -> None:
    with pytest.raises(MissingError, match="found nothing"):
        open_store(f"{bucket.address}/none.zarr")
    with pytest.raises(MissingError, match=r"bucket|found"):
        open_store("s3://no-such-bucket-of-anyone/none.zarr")


def test_object_replaced_while_the_store_is_open_is_refused(
    table: dict[str, Any], bucket: Bucket
) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote)
    store = open_store(remote)
    source = store.rows()
    folder = folder_of(remote)
    plain = connect("s3", folder.bucket)
    key = folder.key("X/c.0.0")
    obstore.put(plain, key, bytes(len(obstore.get(plain, key).bytes())))
    out = streammc.protocols.Rows(np.empty((1, 4)), np.empty(1), np.empty(1), np.empty(1))
    with pytest.raises(StoreError, match="as it was when the store was opened"):
        source.gather(np.array([0], np.int64), 1, out)
    with pytest.raises(StoreError, match="crc32c"):
        list(store.blocks()[0].pieces())
    assert [each["key"] for each in verify(remote)["faults"]] == ["X/c.0.0"]


@pytest.mark.trust(29)
def test_second_writer_is_refused_before_it_writes(table: dict[str, Any], bucket: Bucket) -> None:
    remote = f"{bucket.address}/t.zarr"
    folder = folder_of(remote)
    first = Upload(folder)
    with pytest.raises(StreammcError, match="claim"):
        Upload(folder)
    with pytest.raises(StreammcError, match="claim"):
        write(table, remote)
    first.discard()
    write(table, remote)
    assert verify(remote)["ok"]
    with pytest.raises(IdentityError, match=r"found \d+ objects"):
        write(table, remote)
    with pytest.raises(ConfigError, match="overwrite"):
        write(table, remote, overwrite=True)


def test_failed_ingest_leaves_no_object(table: dict[str, Any], bucket: Bucket) -> None:
    remote = f"{bucket.address}/t.zarr"
    spoilt = {**table, "a": np.where(np.arange(TABLE_ROWS) == TABLE_ROWS - 1, np.nan, table["a"])}
    with pytest.raises(StreammcError, match="missing"):
        write(spoilt, remote)
    plain = connect("s3", folder_of(remote).bucket)
    assert ["elsewhere"] == [each["path"] for batch in obstore.list(plain) for each in batch]


def test_claim_is_gone_and_ignored_after_the_commit(table: dict[str, Any], bucket: Bucket) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote)
    folder = folder_of(remote)
    plain = connect("s3", folder.bucket)
    with pytest.raises(FileNotFoundError):
        obstore.head(plain, folder.key(CLAIM))


@pytest.mark.trust(54)
def test_store_pickles_to_its_address_without_credentials(
    table: dict[str, Any], bucket: Bucket
) -> None:
    remote = f"{bucket.address}/t.zarr"
    write(table, remote)
    store = open_store(remote)
    store.rows()
    content = pickle.dumps([store, store.blocks()])
    assert remote.encode() in content
    for secret in (KEY_ID, SECRET):
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
        assert secret.encode() not in content
    assert store.fingerprint == pickle.loads(content)[0].fingerprint


def test_web_server_is_read_without_listing(
    table: dict[str, Any], tmp_path: Path, bucket: Bucket, serve_folder: Callable[[Path], str]
) -> None:
    write(table, str(tmp_path / "t.zarr"), layout="cloud")
    address = f"{serve_folder(tmp_path)}/t.zarr"
    np.testing.assert_array_equal(draws_of(str(tmp_path / "t.zarr")), draws_of(address))
    assert verify(address)["ok"]
    (tmp_path / "t.zarr" / "y" / "c.1").unlink()
    assert ["changed"] == [each["kind"] for each in verify(address)["faults"]]
    with pytest.raises(ConfigError, match="can only be read from"):
        write(table, f"{serve_folder(tmp_path)}/new.zarr")
