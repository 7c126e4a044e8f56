"""Names that lead out of a store, secrets, listening sockets and TLS: checks 53 to 56."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from checks_of_trust import JOB
from clusters import Slow, cluster
from command_line import PROGRAM, program, streammc
from object_store import KEY_ID, SECRET, Bucket

from streammc.stores.store import open_store

FEW = (*JOB, "--draws", "40")
CANARIES = (SECRET, KEY_ID)
OUTSIDE = [
    "../outside", "/etc/hostname", "%2e%2e/outside", "..\\outside", "X/../../outside", "~/outside",
    "X/c.0.0/../../../outside", "a\0b", "./X/c.0.0", "X//c.0.0", "x" * 4096, "X/C.0.0", "", ".",
    "file:///etc/hostname", "\u2025/outside", "X/c.0.0\n", "C:outside", "//host/outside", "X/.",
]  # fmt: skip


@pytest.mark.trust(
    53,
    figure="names with .., roots, links and NUL: refused, and nothing outside is opened",
    caught="one name in a manifest that leads to the folder above",
)
@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: ascii(name[:30]))
def test_a_manifest_with_a_name_that_leads_out_is_refused_and_nothing_there_is_opened(
    name: str, finished: Path, tmp_path: Path
) -> None:
    from streammc.errors import StoreError
    from streammc.stores.format.layout import MANIFEST
    from streammc.stores.format.manifest import Manifest, read_manifest

    store = tmp_path / "store.zarr"
    shutil.copytree(finished / "store.zarr", store)
    (tmp_path / "outside").write_bytes(b"outside")
    kept = read_manifest(store)
    entries = {**kept.entries, name: next(iter(kept.entries.values()))}
    (store / MANIFEST).write_bytes(Manifest(entries).encode())
    opened: list[str] = []
    watching = [True]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching[0] and event == "open" and isinstance(arguments[0], str):
            opened.append(os.path.realpath(arguments[0]) if "\0" not in arguments[0] else "\0")

    sys.addaudithook(watch)
    started = time.monotonic()
    try:
        with pytest.raises(StoreError):
            open_store(store)
    finally:
        watching[0] = False
    assert time.monotonic() - started < 5.0
    assert opened
    assert not [path for path in opened if path.endswith(("outside", "hostname", "\0"))]


def files_with(folder: Path, *secrets: str) -> list[str]:
    """Return the files below a folder that hold one of the secrets."""
    return [
        f"{path}: {secret}"
        for path in folder.rglob("*")
        if path.is_file()
        for secret in secrets
        if secret.encode() in path.read_bytes()
    ]


@pytest.mark.trust(54)
@pytest.mark.slow
def test_no_file_or_output_of_a_job_at_an_address_holds_a_credential(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    lines = [f"{x:.5f},{int(x + rng.normal() > 0)}" for x in rng.normal(size=4000)]
    (tmp_path / "t.csv").write_text("\n".join(["x,late", *lines]) + "\n")
    far = f"{bucket.address}/t.zarr"
    done = [
        streammc(*words, "--debug")
        for words in (
            ("ingest", "t.csv", far, "--response", "late", "--layout", "cloud"),
            ("info", far),
            ("verify", far),
            ("summarize", far, "-o", "cv.zarr", "--model", "logistic"),
            ("sample", far, "-o", "run", *FEW, "--log-format", "json", "--audit"),
            ("resume", "run", "--draws", "60"),
            ("diagnose", "run", "--json"),
            ("predict", "run", far, "-o", "p.zarr"),
            ("report", "run", "-o", "r.html"),
            ("pull", far, "copy.zarr"),
        )
    ]
    assert [0] * len(done) == [each.code for each in done], [each.err for each in done]
    for each in done:
        assert not [secret for secret in CANARIES if secret in each.out + each.err]
    assert [] == files_with(tmp_path, *CANARIES)
    assert files_with(tmp_path, bucket.address)  # the search finds what is there
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET


@pytest.mark.trust(54, figure="tasks and files of workers: no credential")
@pytest.mark.slow
def test_neither_tasks_nor_files_of_workers_hold_a_credential(
    bucket: Bucket, tmp_path: Path
) -> None:
    far = f"{bucket.address}/t.zarr"
    rng = np.random.default_rng(3)
    lines = [f"{x:.5f},{int(x + rng.normal() > 0)}" for x in rng.normal(size=40_000)]
    (tmp_path / "t.csv").write_text("\n".join(["x,late", *lines]) + "\n")
    made = streammc("ingest", tmp_path / "t.csv", far, "--response", "late", "--quiet")
    assert 0 == made.code, made.err
    (tmp_path / "seen").mkdir()
    seen: list[bytes] = []
    spill = {"DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "0.000001"}
    with cluster(tmp_path / "cluster", workers=1, env=spill) as made_cluster:
        from distributed.protocol import pickle

        dumps = pickle.dumps

        def recorded(*arguments: object, **options: object) -> bytes:
            content = dumps(*arguments, **options)
            seen.append(content)
            return bytes(content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pickle, "dumps", recorded)
            open_store(far).reduce(Slow(tmp_path / "seen"), scheduler=made_cluster.address)
        assert [] == files_with(tmp_path / "cluster", *CANARIES)
    graph = b"".join(seen)
    assert far.encode() in graph
    assert not [secret for secret in CANARIES if secret.encode() in graph]


def listeners(pid: int) -> set[str]:
    """Return the addresses at which a process and its children listen, but for loopback."""
    found = set()
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return found
    for process in family:
        try:
            for each in process.net_connections("inet"):
                if each.status == psutil.CONN_LISTEN:
                    found.add(each.laddr.ip)
        except psutil.Error:
            continue
    return found


LOOPBACK = {"127.0.0.1", "::1"}
OPEN = """
import socket, time
server = socket.create_server(("0.0.0.0", 0))
print("listening", flush=True)
time.sleep(30)
"""


@pytest.mark.trust(55, caught="a listener on 0.0.0.0")
def test_a_listener_for_other_machines_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", OPEN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = listeners(process.pid)
        process.kill()
    assert {"0.0.0.0"} == found


@pytest.mark.trust(55, figure="threads, local:2 and a cluster: loopback alone")
@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["threads", "local:2", "cluster"])
def test_no_mode_listens_beyond_the_loopback_interface(
    scheduler: str, finished: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path / "cluster", workers=scheduler == "cluster") as made:
        where = str(made.file) if scheduler == "cluster" else scheduler
        words = ("sample", finished / "store.zarr", "-o", tmp_path / "run", *FEW, "--scheduler")
        process = subprocess.Popen([*PROGRAM, *map(str, words), where], stderr=subprocess.PIPE)
        found: set[str] = set()
        while process.poll() is None:
            found |= listeners(process.pid)
            time.sleep(0.05)
        _, err = process.communicate()
        assert 0 == process.returncode, err
    assert found <= LOOPBACK, found
    assert (scheduler == "local:2") == bool(found)


@pytest.mark.trust(55)
def test_a_plain_scheduler_on_another_machine_is_refused_before_a_packet_is_sent(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    connect = socket.socket.connect
    monkeypatch.setattr(
        socket.socket, "connect", lambda *words: (asked.append(words[1]), connect(*words))[1]
    )
    done = streammc(
        "summarize", finished / "store.zarr", "--model", "logistic", "-o", "no.zarr",
        "--scheduler", "tcp://192.0.2.1:8786",
    )  # fmt: skip
    assert (2, []) == (done.code, asked)
    assert "--insecure-cluster" in done.err


@pytest.mark.trust(56, caught="a certificate that expired yesterday")
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates")
def test_an_expired_certificate_is_refused(finished: Path, tmp_path: Path) -> None:
    from tls import certificates

    right = certificates(tmp_path / "tls", "right")
    expired = certificates(tmp_path / "tls", "expired", of="right", days=-1)
    words = ("summarize", finished / "store.zarr", "--model", "logistic", "--json", "-o")
    with cluster(tmp_path / "cluster", env=right, protocol="tls", workers=1) as made:
        where = ("--scheduler", made.address)
        refused = program(*words, tmp_path / "no.zarr", *where, env=expired)
        taken = program(*words, tmp_path / "yes.zarr", *where, env=right)
    assert 69 == refused.code, refused.err
    assert not (tmp_path / "no.zarr").exists()
    assert 0 == taken.code, taken.err
