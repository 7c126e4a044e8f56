"""Passes and chains on clusters of processes: the same bits, and what happens when they fail."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clusters import Slow, begun, cluster, sums
from command_line import Result, program, streammc
from tls import certificates

import streammc as package
from streammc.errors import BusyError, StreammcError, UnavailableError
from streammc.models import logistic
from streammc.priors import normal
from streammc.stores import dask_cluster as checks
from streammc.stores.dask_cluster import connected
from streammc.stores.store import open_store

CommClosedError = pytest.importorskip("distributed").comm.core.CommClosedError

MODEL = ("--model", "logistic", "--prior-scale", "10")
FEW = ("--draws", "150", "--warmup", "150", "--chains", "3", "--seed", "1")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of 20 chunks, in some ten blocks."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80_000, 3))
    y = rng.uniform(size=len(x)) < 1.0 / (1.0 + np.exp(-x[:, 0]))
    path = tmp_path_factory.mktemp("cluster") / "s.zarr"
    table = {f"x{j}": x[:, j] for j in range(3)} | {"y": y.astype(int)}
    package.ingest(table, path, response="y", chunk_rows=4096)
    return path


@pytest.mark.slow
@pytest.mark.trust(12)
def test_every_command_gives_the_bits_of_one_machine(store: Path, tmp_path: Path) -> None:
    def job(folder: Path, *where: str) -> list[str]:
        folder.mkdir()
        run, cv = folder / "run", folder / "cv.zarr"
        found = []
        sample = ("sample", store, *MODEL, *FEW, "--sampler", "hmc-ecs")
        on = ("--chains-on", "workers") if where else ()
        for words in (
            ("summarize", store, *MODEL, "-o", cv, *where),
            (*sample, "-o", run, "--audit", "--json", *where, *on),
            ("predict", run, store, "-o", folder / "p.zarr", "--json", *where),
        ):
            done = streammc(*words)
            assert done.code == 0, done.err
            found.append(done.json if "--json" in words else {})
        digests = [streammc("verify", run, "--json").json["digest"]]
        digests.append(streammc("info", cv, "--json").json["fingerprint"])
        return [*digests, found[1]["audit"], found[2]["log_score"]]

    with cluster(tmp_path / "cluster") as made:
        ours = job(tmp_path / "here")
        theirs = job(tmp_path / "there", "--scheduler", str(made.file))
        assert ours == theirs
        more = ("sample", store, "-o", tmp_path / "there/run", *MODEL, *FEW, "--sampler", "hmc-ecs")
        words = (*more, "--audit", "--json", "--draws", "250")
        assert 0 == streammc(*words, "--scheduler", made.address, "--chains-on", "workers").code
    words = ("resume", tmp_path / "here/run", "--draws", "250")
    assert 0 == streammc(*words).code
    runs = [
        streammc("verify", tmp_path / part / "run", "--json").json for part in ("here", "there")
    ]
    assert runs[0]["digest"] == runs[1]["digest"]


@pytest.mark.trust(30)
def test_a_worker_that_dies_costs_no_bit(store: Path, tmp_path: Path) -> None:
    dataset = open_store(store)
    task, expected = sums(tmp_path / "seen", dataset)
    killed: list[str] = []
    with cluster(tmp_path / "cluster") as made:

        def kill() -> None:
            begun(task.folder)
            killed.extend(next(task.folder.iterdir()).name.split("-"))
            os.kill(int(killed[1]), signal.SIGKILL)  # in the middle of its first block

        killer = threading.Thread(target=kill)
        killer.start()
        found = dataset.reduce(task, scheduler=made.address)
        killer.join()
    assert expected.tobytes() == found.tobytes()
    assert len(list(task.folder.glob(f"{killed[0]}-*"))) == 2  # made again by the other worker


@pytest.mark.trust(33, caught="a scheduler that is killed in a pass: 75")
@pytest.mark.slow
def test_a_scheduler_that_dies_is_try_again(store: Path, tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    task = Slow(tmp_path / "seen")
    with cluster(tmp_path / "cluster") as made:

        def kill() -> None:
            begun(task.folder)
            os.killpg(made.scheduler.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        started = time.monotonic()
        with pytest.raises(BusyError, match=r"found it gone: start it again") as caught:
            open_store(store).reduce(task, scheduler=made.address)
        killer.join()
        assert 75 == caught.value.exit_code
        assert time.monotonic() - started < 60


def named_like_distributed() -> Exception:
    return type("FutureCancelledError", (Exception,), {})("task-1")


@pytest.mark.trust(33, caught="a scheduler that is gone before the first task: 75, not a bad disk")
@pytest.mark.parametrize(
    "lost",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        CommClosedError("in <TCP (closed)>"),
        OSError("Timed out trying to connect to tcp://127.0.0.1:1 after 10 s"),
        asyncio.CancelledError(),
        named_like_distributed(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_scheduler_that_is_lost_at_any_use_of_a_client_is_try_again(lost: BaseException) -> None:
    client = SimpleNamespace(
        scheduler=SimpleNamespace(address="tcp://127.0.0.1:1"), compute=None, subscribe_topic=None
    )
    gone = pytest.raises(BusyError, match=r"tcp://127.0.0.1:1 until the end, found it gone")
    with gone, connected(client):
        raise lost
    full = OSError(errno.ENOSPC, "No space left on device")
    for other in (KeyError("x"), UnavailableError("no worker"), KeyboardInterrupt(), full):
        with pytest.raises(type(other)) as caught, connected(client):
            raise other
        assert caught.value is other


@pytest.mark.trust(
    31,
    figure="after 4 dead workers: 70, and the block by name",
    caught="one block that ends its process",
)
@pytest.mark.slow
def test_a_block_that_kills_workers_is_named(store: Path, tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    with cluster(tmp_path / "cluster", workers=0) as made:
        made.add("--nworkers", "2", nanny=True)
        with pytest.raises(StreammcError, match=r"block 3 of a pass, 'X/c\.9\.0' to") as e:
            open_store(store).reduce(Slow(tmp_path / "seen", kills=3), scheduler=made.address)
        assert 70 == e.value.exit_code
        assert "4 workers died" in str(e.value)


@pytest.mark.trust(
    34,
    figure="a worker that hangs: the same bits within 60 s",
    caught="one stopped process among the workers",
)
@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up(store: Path, tmp_path: Path) -> None:
    dataset = open_store(store)
    task, expected = sums(tmp_path / "seen", dataset)
    ttl = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s"}
    with cluster(tmp_path / "cluster", env=ttl) as made:

        def stop() -> None:
            begun(task.folder)
            os.killpg(made.workers[0].pid, signal.SIGSTOP)

        stopper = threading.Thread(target=stop)
        stopper.start()
        started = time.monotonic()
        found = dataset.reduce(task, scheduler=made.address)
        stopper.join()
        assert expected.tobytes() == found.tobytes()
        assert time.monotonic() - started < 60


@pytest.mark.trust(34)
@pytest.mark.slow
def test_a_stopped_worker_before_the_first_task_is_try_again(
    store: Path, tmp_path: Path, monkeypatch
) -> None:
    with cluster(tmp_path / "cluster") as made:
        model = logistic(prior=normal(scale=10.0))
        package.control_variates(open_store(store), model, scheduler=made.address)
        os.killpg(made.workers[0].pid, signal.SIGSTOP)
        monkeypatch.setattr(checks, "WORKER_SECONDS", 3.0)
        with pytest.raises(BusyError, match="check for workers that hang"):
            package.control_variates(open_store(store), model, scheduler=made.address)


@pytest.mark.trust(35, figure="78 before the first task, with the worker and both versions")
@pytest.mark.slow
def test_other_versions_of_a_worker_exit_with_78(store: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "numba-0.0.1.dist-info").mkdir(parents=True)
    (broken / "numba-0.0.1.dist-info" / "METADATA").write_text("Name: numba\nVersion: 0.0.1\n")
    with cluster(tmp_path / "cluster", workers=0) as made:
        made.add(env={"PYTHONPATH": str(broken)})
        done = program("summarize", store, *MODEL, "-o", tmp_path / "cv", "--scheduler", made.file)
    assert 78 == done.code, done.err
    assert "numba 0.0.1 |" in done.err
    assert not (tmp_path / "cv").exists()


@pytest.mark.trust(32, figure="a limit of 200 MB: 71 before any task")
@pytest.mark.slow
def test_too_little_memory_exits_with_71_before_any_task(store: Path, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", workers=0) as made:
        made.add("--memory-limit", "200MB", nanny=True)
        done = program("summarize", store, *MODEL, "-o", tmp_path / "cv", "--scheduler", made.file)
    assert 71 == done.code, done.err
    assert "found a limit of 0.2 GB" in done.err


@pytest.mark.trust(
    38,
    figure="local:N: the same bits, and no process, port or file is left",
    caught="workers of a pass that still runs",
)
@pytest.mark.slow
def test_local_processes_give_the_same_bits_and_are_gone_afterwards(
    store: Path, tmp_path: Path
) -> None:
    words = ("summarize", store, *MODEL, "--json", "-o")
    ours = program(*words, tmp_path / "a.zarr")
    theirs = program(*words, tmp_path / "b.zarr", "--scheduler", "local:2")
    assert theirs.code == 0, theirs.err
    assert ours.json["fingerprint"] == theirs.json["fingerprint"]
    left = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    texts = []
    for path in left:
        try:
            texts.append((path / "cmdline").read_bytes())
        except OSError:
            continue
    assert not any(str(tmp_path).encode() in text for text in texts)


@pytest.mark.trust(33)
@pytest.mark.slow
def test_chains_of_killed_workers_and_a_killed_client_go_on(store: Path, tmp_path: Path) -> None:
    words = ("sample", store, *MODEL, *FEW, "--sampler", "hmc-ecs", "--no-audit", "-o")
    assert 0 == streammc(*words, tmp_path / "whole").code
    with cluster(tmp_path / "cluster") as made:
        on = ("--scheduler", str(made.file), "--chains-on", "workers")
        timer = threading.Timer(4.0, lambda: os.killpg(made.workers[0].pid, signal.SIGKILL))
        timer.start()
        done = program(*words, tmp_path / "run", *on)
        timer.join()
        assert done.code in (0, 75), done.err
        assert 0 == program(*words, tmp_path / "run", *on).code
    digests = {
        streammc("verify", tmp_path / run, "--json").json["digest"] for run in ("whole", "run")
    }
    assert len(digests) == 1


def test_no_scheduler_and_no_cluster_are_said_in_one_line(store: Path, tmp_path: Path) -> None:
    words = ("summarize", store, *MODEL, "-o", tmp_path / "cv", "--scheduler")
    for scheduler, code in (
        ("tcp://10.0.0.1:8786", 2),
        ("tcp://far", 2),
        ("nothing.json", 66),
        ("cluster", 2),
        ("local:0", 2),
    ):
        done = streammc(*words, scheduler)
        assert (code, 1) == (done.code, len(done.err.strip().splitlines())), done.err
    done = streammc("sample", store, "-o", tmp_path / "run", *MODEL, *FEW, "--chains-on", "workers")
    assert (2, True) == (done.code, "expected a cluster for chains on workers" in done.err)
    assert [] == list(tmp_path.glob("run"))


def test_nothing_at_the_address_is_unavailable(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CONNECT_SECONDS", 0.5)
    with pytest.raises(UnavailableError, match="found none: start one"):
        open_store(store).reduce(Slow(store.parent), scheduler="tcp://127.0.0.1:9")


@pytest.mark.trust(
    56, figure="the right certificate: the same fingerprint; another, none, or plain tcp: 69"
)
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates")
def test_tls_takes_the_right_certificate_alone(store: Path, tmp_path: Path) -> None:
    right, wrong = (certificates(tmp_path / "tls", name) for name in ("right", "wrong"))
    words = ("summarize", store, *MODEL, "--json", "-o")
    ours = program(*words, tmp_path / "here.zarr")
    with cluster(tmp_path / "cluster", env=right, protocol="tls") as made:
        assert made.address.startswith("tls://127.0.0.1")
        where = ("--scheduler", made.address)
        theirs = program(*words, tmp_path / "there.zarr", *where, env=right)
        assert theirs.code == 0, theirs.err
        assert ours.json["fingerprint"] == theirs.json["fingerprint"]
        plain = made.address.replace("tls://", "tcp://")
        only = {name: text for name, text in right.items() if "CLIENT" not in name}
        cases = [(made.address, wrong), (made.address, only), (plain, right)]

        def refused(case: int) -> Result:  # each waits for ten seconds: they wait side by side
            scheduler, env = cases[case]
            return program(*words, tmp_path / f"{case}", "--scheduler", scheduler, env=env)

        with ThreadPoolExecutor(len(cases)) as pool:
            for case, done in enumerate(pool.map(refused, range(len(cases)))):
                assert 69 == done.code, done.err
                assert not (tmp_path / f"{case}").exists()
