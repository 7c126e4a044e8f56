"""Stores and runs at az://, on the emulator Azurite: ``npm install -g azurite`` for these tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

import pytest
from command_line import streammc
from object_store import forget_connections, forget_runs

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Account and key of every Azurite."""
PROGRAM = os.environ.get("STREAMMC_AZURITE") or shutil.which("azurite-blob")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="azurite-blob is not installed"),
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of an emulator that lasts as long as the tests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = int(free.getsockname()[1])
    words = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort", str(found)]
    folder = tmp_path_factory.mktemp("azurite")
    process = subprocess.Popen(
        [str(PROGRAM), *words, "--location", folder], stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", found)) == 0:
                    break
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def container(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a container of the test's own, with the environment of its owner."""
    name = f"rows-{uuid4().hex[:12]}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in headers.items())]
    text = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
    signed = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        assert 201 == connection.getresponse().status
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "20")
    forget_connections()
    yield f"az://{name}"
    forget_connections()


def test_store_and_run_at_an_address_of_azure_are_those_of_a_disk(
    container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x,y\n" + "".join(f"{n % 7},{n % 3 > 0:d}\n" for n in range(2000)))
    sample = ("--model", "logistic", "--seed", "1", "--warmup", "60", "--chains", "2", "--quiet")
    digests = []
    for place in (container, "here"):
        Path("here").mkdir(exist_ok=True)
        store, run = f"{place}/s.zarr", f"{place}/run"
        assert 0 == streammc("ingest", "t.csv", store, "--response", "y", "--quiet").code
        for draws in (60, 120):  # the second resumes, from nothing but the address
            forget_runs()
            done = streammc("sample", store, "-o", run, "--draws", str(draws), *sample)
            assert 0 == done.code, done.err
        assert 0 == streammc("verify", store).code
        digests.append(streammc("verify", run, "--json").json["digest"])
    assert digests[0] == digests[1]
    assert 0 == streammc("pull", f"{container}/s.zarr", "copy.zarr", "--quiet").code
    assert 66 == streammc("info", f"{container}/none.zarr").code


def test_a_damaged_object_at_azure_is_refused(container: str, tmp_path: Path) -> None:
    import obstore

    from streammc.stores.cloud.requests import connect

    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "".join(f"{n % 7},{n % 3 > 0:d}\n" for n in range(2000)))
    store = f"{container}/s.zarr"
    assert 0 == streammc("ingest", table, store, "--response", "y", "--quiet").code
    client = connect("az", container.removeprefix("az://"))
    obstore.put(client, "s.zarr/X/c.0.0", bytes(100))
    assert 65 == streammc("verify", store).code
