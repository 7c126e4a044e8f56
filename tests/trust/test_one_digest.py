"""One job has one posterior, bit for bit: on threads, on a cluster with TLS, and from S3."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from clusters import cluster
from command_line import program
from object_store import Bucket
from tls import certificates

import streammc

pytest.importorskip("distributed")

JOB = """
[source]
store = "{store}"

[model]
name = "logistic"

[sampler]
name = "hmc-ecs"
draws = 150
warmup = 150
chains = 3
seed = {seed}

[outputs]
run = "run"
predictions = "predictions.zarr"
"""


def digests(folder: Path, store: str, *where: str, env: dict[str, str], seed: int = 1) -> list[str]:
    """Run the job in a folder; return the digests of the draws and of the predictions."""
    folder.mkdir()
    (folder / "job.toml").write_text(JOB.format(store=store, seed=seed))
    done = program("run", folder / "job.toml", *where, "--quiet", env=env)
    assert 0 == done.code, done.err
    found = program("verify", folder / "run", "--json", env=env).json["digest"]
    with xr.open_zarr(folder / "predictions.zarr", consolidated=False) as predictions:
        content = b"".join(predictions[name].values.tobytes() for name in sorted(predictions))
    return [found, hashlib.sha256(content).hexdigest()]


@pytest.mark.trust(12)
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates")
def test_a_job_on_threads_on_a_cluster_and_from_s3_has_one_digest(
    bucket: Bucket, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    far, near = f"{bucket.address}/s.zarr", tmp_path / "s.zarr"
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60_000, 3))
    y = rng.random(len(x)) < 1.0 / (1.0 + np.exp(-x[:, 0]))
    table = {f"x{column}": x[:, column] for column in range(3)} | {"y": y.astype(int)}
    for path in (far, near):
        streammc.ingest(table, path, response="y", chunk_rows=4096)
    threads = digests(tmp_path / "threads", str(near), env={})
    tls = certificates(tmp_path / "tls", "right")
    with cluster(tmp_path / "cluster", env=tls, protocol="tls") as made:
        where = ("--scheduler", made.address, "--chains-on", "workers")
        workers = digests(tmp_path / "workers", str(near), *where, env=tls)
    address = digests(tmp_path / "address", far, env={})
    assert threads == workers == address
    record_property("figure", "threads; chains and passes on two workers over TLS; S3: one digest")
    other = digests(tmp_path / "other", str(near), env={}, seed=2)
    assert other[0] != threads[0]
    record_property("caught", "draws of another seed")
