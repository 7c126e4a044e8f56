"""The command line on addresses of an object store, and what it never shows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import fault_proxy
import numpy as np
import pytest
from command_line import Result, streammc
from object_store import KEY_ID, SECRET, Bucket, forget_connections

CANARIES = (SECRET, KEY_ID, "canary")
SHORT = ("--draws", "40", "--warmup", "40", "--chains", "2", "--seed", "1", "--quiet", "--json")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    x = rng.normal(size=6000)
    late = rng.random(6000) < 1 / (1 + np.exp(-x))
    lines = [f"{a:.6f},{int(b)}" for a, b in zip(x, late, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x,late", *lines]) + "\n")
    return tmp_path / "t.csv"


def succeeded(result: Result) -> Result:
    assert 0 == result.code, result.err
    return result


@pytest.mark.slow
def test_every_command_reads_a_store_at_an_address(
    bucket: Bucket, table: Path, tmp_path: Path
) -> None:
    far, near = f"{bucket.address}/t.zarr", tmp_path / "t.zarr"
    same = ("--response", "late", "--quiet", "--json")
    made = succeeded(streammc("ingest", table, far, "--layout", "cloud", *same)).json
    assert far == made["path"]
    succeeded(streammc("ingest", table, near, *same))
    assert 6000 == succeeded(streammc("info", far, "--json")).json["n_rows"]
    assert succeeded(streammc("verify", far, "--json")).json["ok"]
    refused = streammc("summarize", far, "--model", "logistic")
    assert 2 == refused.code
    assert "--output" in refused.err
    cv = ("-o", tmp_path / "cv.zarr", "--model", "logistic", "--quiet", "--json")
    succeeded(streammc("summarize", far, *cv))
    for store in (far, str(near)):
        name = "far" if store == far else "near"
        run = tmp_path / name
        words = ("--model", "logistic", "--sampler", "hmc-ecs", *SHORT)
        succeeded(streammc("sample", store, "-o", run, *words))
        succeeded(streammc("resume", run, "--quiet", "--json"))
        succeeded(streammc("predict", run, store, "-o", tmp_path / f"{name}.zarr", "--quiet"))
    facts = [json.loads((tmp_path / each / "config.json").read_text()) for each in ("far", "near")]
    assert [far, str(near)] == [each["store"] for each in facts]
    shown = [
        succeeded(streammc("diagnose", tmp_path / each, "--json")).json["parameters"]
        for each in ("far", "near")
    ]
    assert shown[0] == shown[1]
    pulled = succeeded(streammc("pull", far, tmp_path / "copy.zarr", "--json")).json
    assert made["fingerprint"] == pulled["fingerprint"]
    assert "nothing to copy" in streammc("pull", far, tmp_path / "copy.zarr").err


def test_results_at_an_address_are_refused_with_the_way_out(
    bucket: Bucket, table: Path, tmp_path: Path
) -> None:
    near = tmp_path / "t.zarr"
    succeeded(streammc("ingest", table, near, "--response", "late", "--quiet"))
    for words in (
        ("summarize", near, "-o", f"{bucket.address}/cv", "--model", "logistic"),
        ("pull", f"{bucket.address}/t.zarr", f"{bucket.address}/u.zarr"),
    ):
        refused = streammc(*words)
        assert 2 == refused.code, refused
        assert "local" in refused.err


def test_mixed_model_on_shards_is_refused_with_the_way_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = [f"{x:.4f},{x > 0:d},{row % 20}" for row, x in enumerate(rng.normal(size=2000))]
    (tmp_path / "g.csv").write_text("\n".join(["x,late,g", *lines]) + "\n")
    store = tmp_path / "g.zarr"
    words = ("--formula", "late ~ x + (1 | g)", "--layout", "cloud", "--quiet")
    succeeded(streammc("ingest", tmp_path / "g.csv", store, *words))
    assert succeeded(streammc("verify", store, "--json")).json["ok"]
    refused = streammc("sample", store, "-o", tmp_path / "run", "--model", "logistic", *SHORT)
    assert 2 == refused.code
    assert "--layout local" in refused.err


def test_foreign_group_is_summarised_and_sampled_by_its_arrays(tmp_path: Path) -> None:
    import zarr

    rng = np.random.default_rng(3)
    X = rng.normal(size=(5000, 2))
    y = (rng.random(5000) < 1 / (1 + np.exp(-X[:, 0]))).astype("int8")
    group = zarr.open_group(tmp_path / "f.zarr", mode="w")
    for name, values in (("rows", X), ("label", y)):
        group.create_array(name, data=values, config={"write_empty_chunks": True})
    store = f"{tmp_path}/f.zarr#X=rows&y=label"
    succeeded(streammc("summarize", store, "--model", "logistic", "--quiet"))
    assert (tmp_path / "f.cv.zarr").is_dir()
    words = ("sample", store, "-o", tmp_path / "run", "--model", "logistic", *SHORT)
    first = succeeded(streammc(*words)).json
    assert {"beta[x0]", "beta[x1]"} == set(first["parameters"])
    assert first["parameters"] == succeeded(streammc(*words)).json["parameters"]
    assert 5000 == succeeded(streammc("info", store, "--json")).json["n_rows"]
    refused = streammc("verify", store)
    assert 65 == refused.code
    assert "no checksums" in refused.err
    assert 65 == streammc("pull", store, tmp_path / "copy.zarr").code


def failures(bucket: Bucket, folder: Path) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """Yield faults of the service and commands that meet them, or are wrong by themselves."""
    far = f"{bucket.address}/t.zarr"
    run, model = str(folder / "run"), ("--model", "logistic")
    for fault in ("status", "forbidden", "gone", "reset", "truncated"):
        yield fault, ("info", far)
        yield fault, ("verify", far)
        yield fault, ("summarize", far, "-o", f"{run}.cv", *model)
        yield fault, ("sample", far, "-o", run, *model)
        yield fault, ("pull", far, f"{run}.zarr")
        yield fault, ("ingest", str(folder / "t.csv"), f"{far}.new", "--response", "late")
    for address in (
        f"s3://{KEY_ID}:{SECRET}@bucket/t.zarr",
        f"https://host.example/t.zarr?X-Amz-Signature={KEY_ID}",
        f"az://container/t.zarr?sig={KEY_ID}",
        f"{bucket.address}/t.zarr#{KEY_ID}",
    ):
        yield None, ("info", address)
        yield None, ("sample", address, "-o", run, *model)
        yield None, ("ingest", str(folder / "t.csv"), address, "--response", "late")


@pytest.mark.trust(54, figure="40 failing commands: no credential in output or files")
def test_secrets_appear_in_no_output_of_failing_commands(
    bucket: Bucket, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = f"{bucket.address}/t.zarr"
    succeeded(streammc("ingest", table, far, "--response", "late", "--quiet"))
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.05")
    now: list[str | None] = [None]
    host = bucket.endpoint.removeprefix("http://")
    count = 0
    with fault_proxy.FaultProxy(host, lambda *_: now[0], SECRET) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        for fault, words in failures(bucket, tmp_path):
            now[0] = fault
            result = streammc(*words, "--json", "--debug")
            assert result.code in (2, 65, 66, 69, 77), (words, result)
            assert result.code == result.json["error"]["exit_code"]
            assert fault is None or result.code != 2, (words, result.err)
            for canary in CANARIES:
                assert canary not in result.out + result.err, (fault, words)
            count += 1
    assert count >= 40
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        for canary in CANARIES:
            assert canary.encode() not in path.read_bytes(), path
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET


@pytest.mark.trust(54, caught="the text of a service that repeats the secret")
def test_error_of_the_service_itself_does_hold_what_must_not_be_shown(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    from streammc.stores.cloud.requests import connect

    name = bucket.address.removeprefix("s3://")
    with fault_proxy.FaultProxy(
        bucket.endpoint.removeprefix("http://"), lambda *_: "forbidden", SECRET
    ) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        with pytest.raises(obstore.exceptions.PermissionDeniedError) as caught:
            obstore.get(connect("s3", name), "t.zarr/zarr.json")
    assert SECRET in str(caught.value)


def test_no_credentials_and_wrong_profile_are_refused_by_name(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    forget_connections()
    result = streammc("info", f"{bucket.address}/t.zarr")
    assert 77 == result.code
    assert "AWS_PROFILE" in result.err
    credentials = tmp_path / "credentials"
    credentials.write_text(
        f"[nobody]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    forget_connections()
    result = streammc("info", f"{bucket.address}/t.zarr")
    assert 66 == result.code, result.err
