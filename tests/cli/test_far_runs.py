"""Commands on runs at addresses of an object store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from command_line import Result, streammc
from fault_proxy import FaultProxy
from object_store import KEY_ID, SECRET, Bucket, forget_connections, forget_runs

from streammc.stores.cloud.address import store_root
from streammc.stores.cloud.requests import connect

SAMPLE = ("--model", "logistic", "--seed", "1", "--draws", "60", "--warmup", "60", "--chains", "2")
CANARIES = (SECRET, KEY_ID, "canary")
LOCAL = "streammc-run-at-"
"""Beginning of the names of local folders, which no text shows."""


@pytest.fixture
def far(bucket: Bucket) -> str:
    return f"{bucket.address}/runs/one"


def done(*words: str | Path) -> Result:
    """Run a command as on a machine of its own; it must succeed and show no local folder."""
    forget_runs()
    result = streammc(*words)
    assert 0 == result.code, result.err
    assert LOCAL not in result.out + result.err
    return result


def parameters(result: Result) -> object:
    return result.json["parameters"]


def contents(address: str) -> Iterator[tuple[str, bytes]]:
    """Yield key and content of the objects below an address."""
    root = store_root(address)
    client = connect(root.scheme, root.bucket)
    for batch in obstore.list(client, root.prefix):
        for each in batch:
            yield each["path"], bytes(obstore.get(client, each["path"]).bytes())


@pytest.mark.slow
def test_each_command_on_a_run_at_an_address_does_what_it_does_on_a_local_one(
    far: str, run: Path, store: Path, tmp_path: Path
) -> None:
    made = done("sample", store, "-o", far, *SAMPLE, "--json")
    assert far == made.json["run"]
    for name in ("verify", "diagnose", "audit"):
        found, expected = (done(name, each, "--quiet", "--json").json for each in (far, run))
        for key in ("digest", "parameters", "parameters_original", "audit"):
            assert expected.get(key) == found.get(key), (name, key)
    assert "run" == done("info", far, "--json").json["kind"]
    again = done("sample", store, "-o", far, *SAMPLE)
    assert f"{far} has 60 draws per chain: nothing to do" in again.err
    for place, name in ((far, "far"), (run, "near")):
        done("predict", place, store, "-o", tmp_path / f"{name}.zarr", "--quiet")
        done("score", place, store, "-o", tmp_path / f"{name}.json", "--quiet")
        done("report", place, "-o", tmp_path / f"{name}.html")
    assert far in (tmp_path / "far.html").read_text()
    assert far == json.loads((tmp_path / "far.json").read_text())["run"]
    assert far in done("info", tmp_path / "far.zarr", "--json").out
    assert far in done("compare", far, run).out
    more = [done("resume", each, "--draws", "90", "--json") for each in (far, run)]
    assert parameters(more[0]) == parameters(more[1])
    digests = [done("verify", each, "--json").json["digest"] for each in (far, run)]
    assert digests[0] == digests[1]
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        assert LOCAL.encode() not in path.read_bytes(), path
    for key, content in contents(far):
        assert LOCAL.encode() not in content, key


def test_audit_of_a_run_at_an_address_is_kept_there(far: str, store: Path) -> None:
    done("sample", store, "-o", far, *SAMPLE, "--sampler", "hmc-ecs", "--no-audit", "--quiet")
    first = done("audit", far, "--json").json["audit"]
    assert first
    again = done("audit", far, "--json")
    assert first == again.json["audit"]
    assert f"{far} has been audited" in again.err


def test_run_starts_from_the_posterior_of_one_at_an_address(
    far: str, run: Path, store: Path
) -> None:
    done("sample", store, "-o", far, *SAMPLE, "--quiet")
    found = [
        done("sample", store, "-o", f"new-{n}", *SAMPLE, "--quiet", "--json", "--start-from", each)
        for n, each in enumerate((far, run))
    ]
    assert parameters(found[0]) == parameters(found[1])
    assert far == json.loads(Path("new-0/config.json").read_text())["start_from"]


def test_settings_of_a_run_are_beside_it_at_its_address(far: str, store: Path) -> None:
    done("sample", store, "-o", far, *SAMPLE, "--quiet")
    forget_runs()
    from streammc.trace.places import run_folder

    settings = json.loads((run_folder(far) / "config.json").read_text())
    assert (str(store), 60) == (str(Path(settings["store"])), settings["draws"])


def test_job_has_its_run_at_an_address(far: str, run: Path, store: Path) -> None:
    Path("job.toml").write_text(
        f"""
        [source]
        store = "store.zarr"
        [model]
        name = "logistic"
        [sampler]
        seed = 1
        draws = 60
        warmup = 60
        chains = 2
        [outputs]
        run = "{far}"
        predictions = "predictions.zarr"
        """
    )
    assert "to do" in done("check", "job.toml").out
    done("run", "job.toml")
    record = json.loads(Path("summary.json").read_text())
    assert far == record["stages"][0]["output"]
    digests = [done("verify", each, "--json").json["digest"] for each in (far, run)]
    assert digests[0] == digests[1]
    assert 2 == done("run", "job.toml").out.count(" kept ")
    assert "finished, 60 draws per chain" in done("check", "job.toml").out


def test_other_outputs_of_a_job_at_addresses_are_refused_by_key(far: str, store: Path) -> None:
    Path("job.toml").write_text(
        f"""
        [source]
        store = "store.zarr"
        [model]
        name = "logistic"
        [outputs]
        run = "s3://user:secret@bucket/run"
        report = "{far}.html"
        """
    )
    refused = streammc("check", "job.toml")
    assert 78 == refused.code
    assert "outputs.report" in refused.err
    assert "only the run of a job" in refused.err
    assert "outputs.run" in refused.err
    assert "secret" not in refused.err


def test_refusals_name_the_address_and_have_their_exit_codes(
    far: str, bucket: Bucket, store: Path
) -> None:
    words = ("sample", store, "--model", "logistic", "--quiet")
    for code, text, command in (
        (66, "a run at s3://", ("diagnose", f"{far}-not")),
        (66, "found nothing", ("info", f"{far}-not")),
        (73, "other objects", (*words, "-o", bucket.address)),
        (2, "without credentials", (*words, "-o", "s3://key:secret@bucket/run")),
        (2, "found ftp://", ("diagnose", "ftp://host/run")),
    ):
        refused = streammc(*command)
        assert code == refused.code, (command, refused)
        assert text in refused.err
        assert "secret" not in refused.err
    done(*words, "-o", far, *SAMPLE[2:])
    overwritten = streammc(*words, "-o", far, *SAMPLE[2:], "--overwrite")
    assert 2 == overwritten.code
    assert "--overwrite" in overwritten.err
    other = streammc(*words, "-o", far, *SAMPLE[2:], "--seed", "2")
    assert 78 == other.code
    assert LOCAL not in overwritten.err + other.err


@pytest.mark.trust(54)
def test_secrets_appear_in_no_output_and_in_no_object_of_a_run_at_an_address(
    far: str, bucket: Bucket, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("sample", store, "-o", far, *SAMPLE, "--quiet")
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.05")
    now: list[str | None] = [None]
    commands = (
        ("sample", store, "-o", f"{far}-new", *SAMPLE),
        ("resume", far, "--draws", "90"),
        ("diagnose", far),
        ("verify", far),
        ("audit", far),
        ("predict", far, store, "-o", tmp_path / "p.zarr"),
        ("report", far, "-o", tmp_path / "r.html"),
    )
    host, count = bucket.endpoint.removeprefix("http://"), 0
    with FaultProxy(host, lambda *_: now[0], SECRET) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        for now[0] in ("status", "forbidden", "reset", "truncated", "lost", "gone"):
            for words in commands:
                forget_runs()
                result = streammc(*words, "--json", "--debug")
                assert result.code in (65, 66, 69, 77), (now, words, result)
                assert result.code == result.json["error"]["exit_code"]
                for canary in CANARIES:
                    assert canary not in result.out + result.err, (now, words)
                count += 1
    assert count >= 40
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    forget_connections()
    for name, content in contents(bucket.address):
        for canary in CANARIES:
            assert canary.encode() not in content, name
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        for canary in CANARIES:
            assert canary.encode() not in path.read_bytes(), path


def test_run_of_python_is_at_its_address(far: str, store: Path) -> None:
    import numpy as np

    import streammc as library
    from streammc.errors import ConfigError

    data, model = library.open_store(store), library.models.logistic()
    same: dict[str, Any] = {"draws": 60, "warmup": 60, "chains": 2, "seed": 1}
    near = library.sample(data, model, path="near", **same)
    made = library.sample(data, model, path=far, **same)
    forget_runs()
    again = library.sample(data, model, path=far, **same)
    forget_runs()
    opened = library.open_run(far)
    for tree in (made, again, opened):
        np.testing.assert_array_equal(near.posterior["beta"], tree.posterior["beta"])
        assert far == tree.encoding["source"]
        assert LOCAL not in str(tree.attrs)
    assert far == library.facts(library.predict(opened, data))["run"]
    with pytest.raises(ConfigError, match="choose another address"):
        library.sample(data, model, path=far, overwrite=True, **same)


@pytest.mark.slow
def test_job_with_store_and_run_at_addresses_goes_on_in_another_folder(
    far: str, bucket: Bucket, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "".join(f"{n % 7},{n % 3 > 0:d}\n" for n in range(500)))
    place = f"{bucket.address}/t.zarr"
    done("ingest", table, place, "--response", "y", "--quiet")
    stages = []
    for draws in (30, 60):  # the second pod has nothing of the first one's disk
        folder = tmp_path / f"pod-{draws}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("job.toml").write_text(
            f'source.store = "{place}"\nmodel.name = "logistic"\noutputs.run = "{far}"\n'
            f"[sampler]\nseed = 1\ndraws = {draws}\nwarmup = 60\nchains = 2\n"
        )
        assert ("to do" if draws == 30 else "partial") in done("check", "job.toml").out
        stages.append(done("run", "job.toml", "--json").json["run"]["draws"])
    assert [30, 60] == stages
    done("sample", place, "-o", "near", *SAMPLE, "--quiet")
    digests = [done("verify", each, "--json").json["digest"] for each in (far, "near")]
    assert digests[0] == digests[1]
