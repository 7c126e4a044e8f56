"""Object stores that fail, and writers that race for one place: checks 28 and 29."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import fault_proxy
import numpy as np
import obstore
import pytest
from checks_of_trust import rounds
from command_line import streammc
from object_store import Bucket, forget_connections

from streammc.errors import BusyError, IdentityError, StreammcError, UnavailableError
from streammc.stores.cloud import requests
from streammc.stores.cloud.address import store_root
from streammc.stores.cloud.requests import connect
from streammc.stores.cloud.upload import Upload
from streammc.stores.format.manifest import read_manifest
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import verify

SHORT = ("--draws", "40", "--warmup", "40", "--chains", "2", "--seed", "1", "--quiet", "--json")
Choice = Callable[[str, str], str | None]


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12_000, 2))
    late = rng.random(len(X)) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    return {"a": X[:, 0], "b": X[:, 1], "late": late.astype(int)}


def write(table: dict[str, Any], place: str, seed: int = 3) -> None:
    ingest(table, place, response="late", chunk_rows=4096, seed=seed)


def through(proxy: fault_proxy.FaultProxy, patch: pytest.MonkeyPatch) -> None:
    """Send the requests of this process to the proxy."""
    patch.setenv("AWS_ENDPOINT_URL", proxy.url)
    forget_connections()


def lost_once() -> Choice:
    """Lose the answer to the first write of every object."""
    seen: set[str] = set()

    def choose(method: str, path: str) -> str | None:
        new = method == "PUT" and path not in seen
        seen.add(path)
        return "lost" if new else None

    return choose


@pytest.mark.trust(28)
@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_faults_change_no_draw_of_a_whole_job(
    rate: float, table: dict[str, Any], bucket: Bucket, tmp_path: Path, monkeypatch: Any
) -> None:
    host, far = bucket.endpoint.removeprefix("http://"), f"{bucket.address}/t.zarr"
    write(table, str(tmp_path / "t.zarr"))
    words = ("--model", "logistic", "--sampler", "hmc-ecs", *SHORT)
    assert 0 == streammc("sample", tmp_path / "t.zarr", "-o", tmp_path / "near", *words).code
    expected = streammc("verify", tmp_path / "near", "--json").json["digest"]
    faults: Counter[str] = Counter()
    for seed in range(rounds(3, 20)):
        choose = fault_proxy.at_rate(rate, seed, *fault_proxy.FAULTS, "lost")
        place, run = f"{far}-{seed}", tmp_path / f"far-{seed}"
        with fault_proxy.FaultProxy(host, choose, stall_seconds=2.0) as proxy:
            through(proxy, monkeypatch)
            write(table, place)
            assert 0 == streammc("sample", place, "-o", run, *words).code
        assert expected == streammc("verify", run, "--json").json["digest"]
        faults += proxy.faults
    assert sum(faults.values()) >= (1 if rate < 0.1 else 5), faults


@pytest.mark.trust(28)
@pytest.mark.slow
def test_a_lost_answer_to_every_write_makes_one_store(
    table: dict[str, Any], bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = f"{bucket.address}/t.zarr"
    write(table, str(tmp_path / "t.zarr"))
    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), lost_once()) as proxy:
        through(proxy, monkeypatch)
        write(table, far)
        report = verify(far)
        assert report["ok"], report
        puts = Counter(path for method, path, _ in proxy.requests if method == "PUT")
        assert {2} == set(puts.values()), puts
        root = store_root(far)
        near = read_manifest(tmp_path / "t.zarr")
        assert near.fingerprint == read_manifest(root).fingerprint
        plain = connect("s3", root.bucket)
        assert near.entries.keys() | {"streammc-manifest.json"} == {
            each["path"].removeprefix("t.zarr/")
            for batch in obstore.list(plain, "t.zarr")
            for each in batch
        }


@pytest.mark.trust(28, caught="a writer that does not read back after a lost answer")
def test_a_writer_that_does_not_read_back_takes_its_own_store_for_anothers(
    table: dict[str, Any], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "head", lambda *_: None)
    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), lost_once()) as proxy:
        through(proxy, monkeypatch)
        with pytest.raises(BusyError, match="claim"):
            write(table, f"{bucket.address}/t.zarr")


@pytest.mark.trust(28, caught="a client that does not repeat a request")
def test_a_client_that_does_not_repeat_fails_at_the_first_fault(
    table: dict[str, Any], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.001")
    choose = fault_proxy.at_rate(0.1, 7, *fault_proxy.FAULTS, "lost")
    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), choose) as proxy:
        through(proxy, monkeypatch)
        with pytest.raises(UnavailableError, match="in each of 1 tries"):
            for copy in range(20):
                write(table, f"{bucket.address}/t-{copy}.zarr")


@pytest.mark.trust(28)
@pytest.mark.parametrize("fault", ["status", "reset", "truncated"])
def test_a_service_that_always_fails_ends_the_command_within_its_budget(
    fault: str,
    table: dict[str, Any],
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = f"{bucket.address}/t.zarr"
    write(table, far)
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "1")
    host = bucket.endpoint.removeprefix("http://")
    with fault_proxy.FaultProxy(host, lambda *_: fault) as proxy:
        through(proxy, monkeypatch)
        started = time.monotonic()
        done = streammc("sample", far, "-o", tmp_path / "run", "--model", "logistic", *SHORT)
        assert time.monotonic() - started < 10.0
    assert (69, "unavailable") == (done.code, done.json["error"]["code"])
    assert not (tmp_path / "run").exists()


def race(actions: list[Callable[[], None]]) -> list[StreammcError]:
    """Begin some actions at one instant; return the errors of those that were turned away."""
    barrier = threading.Barrier(len(actions))
    errors: list[StreammcError] = []

    def run(action: Callable[[], None]) -> None:
        barrier.wait()
        try:
            action()
        except StreammcError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def put_store(place: str, content: bytes) -> None:
    """Claim a place at an address, put an object, and commit."""
    upload = Upload(store_root(place))
    try:
        upload.write("rows", content)
        upload.commit(["rows"], "streammc-manifest.json", b"manifest of " + content)
    except BaseException:
        upload.discard()
        raise


def mixed(place: str) -> bool:
    """Return whether the manifest is not that of the object beside it."""
    root = store_root(place)
    plain = connect("s3", root.bucket)
    found = [
        bytes(obstore.get(plain, root.key(key)).bytes())
        for key in ("rows", "streammc-manifest.json")
    ]
    return found[1] != b"manifest of " + found[0]


@pytest.mark.trust(29)
def test_of_writers_that_race_for_an_address_one_commits(bucket: Bucket) -> None:
    for number in range(rounds(10, 100)):
        place = f"{bucket.address}/{number}"
        errors = race([partial(put_store, place, each) for each in (b"one", b"another", b"third")])
        assert 2 == len(errors)
        assert {type(error) for error in errors} <= {BusyError, IdentityError}
        assert not mixed(place)


@pytest.mark.trust(29)
def test_a_writer_that_found_a_place_empty_before_another_committed_there_changes_nothing(
    bucket: Bucket,
) -> None:
    place = f"{bucket.address}/late"
    put_store(place, b"one")  # since it was listed
    with pytest.raises(IdentityError, match="found 2 objects"):
        put_store(place, b"another")
    assert not mixed(place)


@pytest.mark.trust(29)
def test_a_commit_whose_answer_never_comes_leaves_no_manifest_without_objects(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.3")
    place, now = f"{bucket.address}/lost", [0]

    def choose(method: str, path: str) -> str | None:
        now[0] += "manifest" in path and method in ("PUT", "HEAD", "GET")
        return "lost" if "manifest" in path and method != "DELETE" else None

    with fault_proxy.FaultProxy(bucket.endpoint.removeprefix("http://"), choose) as proxy:
        through(proxy, monkeypatch)
        with pytest.raises(UnavailableError):
            put_store(place, b"one")
    assert now[0] > 1
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    forget_connections()
    put_store(place, b"another")
    assert not mixed(place)


@pytest.mark.trust(29)
def test_writers_without_a_conditional_put_mix_their_objects(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = requests.write
    place = f"{bucket.address}/both"
    monkeypatch.setattr(requests, "list_objects", lambda *_: {})

    def later_object(folder: Any, key: str, content: Any, *, new: bool = False) -> None:
        if key == "rows" and content == b"one":
            time.sleep(0.5)
        if key == "streammc-manifest.json" and content.endswith(b"another"):
            time.sleep(1.0)
        put(folder, key, content)

    monkeypatch.setattr(requests, "write", later_object)
    assert [] == race([partial(put_store, place, each) for each in (b"one", b"another")])
    assert mixed(place)


@pytest.mark.trust(29)
@pytest.mark.parametrize("where", ["disk", "address"])
def test_of_ingests_that_race_for_one_place_one_commits_and_its_rows_verify(
    where: str, table: dict[str, Any], bucket: Bucket, tmp_path: Path
) -> None:
    for number in range(rounds(2, 50)):
        base = str(tmp_path) if where == "disk" else bucket.address
        place = f"{base}/{number}.zarr"
        errors = race([partial(write, table, place, seed) for seed in (1, 2)])
        assert [True] == [isinstance(each, BusyError | IdentityError) for each in errors], errors
        assert {each.exit_code for each in errors} <= {75, 78}
        assert verify(place)["ok"]
    with suppress(FileNotFoundError):
        assert [] == [path for path in tmp_path.iterdir() if "partial" in path.name]
