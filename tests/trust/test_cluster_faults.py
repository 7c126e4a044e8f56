"""Workers, schedulers and networks that fail: checks 30 to 38."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from checks_of_trust import rounds
from clusters import Hungry, Poison, Slow, cluster
from command_line import PROGRAM, program, streammc
from object_store import Bucket

import streammc as package
from streammc.errors import StreammcError
from streammc.protocols import RowBlock
from streammc.stores.full_pass import block_tasks, kept_results
from streammc.stores.store import Store, open_store
from streammc.trace.run_directory import RunDirectory

pytest.importorskip("distributed")

MODEL = ("--model", "logistic", "--prior-scale", "10")


def write(path: Path | str, rows: int = 80_000, chunk_rows: int = 4096) -> Path | str:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3))
    y = rng.uniform(size=len(x)) < 1.0 / (1.0 + np.exp(-x[:, 0]))
    table = {f"x{j}": x[:, j] for j in range(3)} | {"y": y.astype(int)}
    package.ingest(table, path, response="y", chunk_rows=chunk_rows)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of 20 chunks."""
    return Path(write(tmp_path_factory.mktemp("cluster") / "s.zarr"))


def sums(folder: Path, dataset: Store) -> tuple[Slow, np.ndarray]:
    """Return a slow task, and its sums by one thread."""
    folder.mkdir()
    task = Slow(folder)
    expected = dataset.reduce(task, scheduler="sync")
    for path in folder.iterdir():
        path.unlink()
    return task, expected


class Counting:
    """A task that keeps a count between calls, as no task may: twice is not once."""

    def __init__(self) -> None:
        self.rows = 0.0

    def map(self, block: RowBlock) -> np.ndarray:
        self.rows += len(block.y)
        return np.array([self.rows])

    def combine(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left + right


@pytest.mark.trust(30)
def test_tasks_that_run_twice_are_counted_once(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    dataset = open_store(store)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    task, expected = sums(tmp_path / "seen", dataset)
    once, generator, repeated = block_tasks.reduce_block, random.Random(1), [0]

    def often(task: Any, block: Any) -> Any:
        if generator.random() < 0.3:
            repeated[0] += 1
            once(task, block)
        return once(task, block)

    alone = dataset.reduce(Counting(), scheduler="sync")
    monkeypatch.setattr(block_tasks, "reduce_block", often)
    for threads in range(1, rounds(5, 100) + 1):
        found = dataset.reduce(task, scheduler=1 + threads % 3)
        assert expected.tobytes() == found.tobytes()
    assert repeated[0] > 0
    record_property("figure", f"{threads} of {threads} passes with repeated tasks: the same bits")
    assert alone.tobytes() != dataset.reduce(Counting(), scheduler="sync").tobytes()
    record_property("caught", "a task that counts a block twice when it runs twice")


@pytest.mark.trust(30)
@pytest.mark.slow
def test_workers_killed_at_many_instants_cost_no_bit(
    store: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    dataset = open_store(store)
    task, expected = sums(tmp_path / "seen", dataset)
    generator, repeated = random.Random(2), 0
    with cluster(tmp_path / "cluster") as made:
        for _ in range(kills := rounds(3, 50)):
            victim = made.workers[-2]
            timer = threading.Timer(generator.random(), os.killpg, (victim.pid, signal.SIGKILL))
            timer.start()
            found = dataset.reduce(task, scheduler=made.address)
            timer.join()
            victim.wait()
            made.add()
            assert expected.tobytes() == found.tobytes()
            marks = [path.name.split("-")[0] for path in task.folder.iterdir()]
            repeated += len(set(marks)) < len(marks)
            for path in task.folder.iterdir():
                path.unlink()
    assert repeated
    record_property("figure", f"{kills} of {kills} passes with a killed worker: the same bits")


@pytest.mark.trust(31)
@pytest.mark.slow
@pytest.mark.parametrize("pinned", [True, False])
def test_good_blocks_of_a_pass_that_failed_are_used_again_where_code_is_pinned(
    pinned: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pinned:
        known = (*kept_results.KNOWN, Poison.__module__.partition(".")[0])
        monkeypatch.setattr(kept_results, "KNOWN", known)
    dataset = open_store(store)
    (tmp_path / "seen").mkdir()
    task = Poison(tmp_path / "seen")
    expected = dataset.reduce(task, scheduler="sync")
    blocks = {path.name.split("-")[0] for path in task.folder.iterdir()}
    (tmp_path / "poison").touch()
    once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with cluster(tmp_path / "cluster", workers=3, env=once) as made:
        wait_for_workers(made.address, 3)
        started = time.monotonic()
        with pytest.raises(StreammcError, match=r"of a pass.* 1 workers died") as caught:
            dataset.reduce(task, scheduler=made.address)
        assert 70 == caught.value.exit_code
        assert time.monotonic() - started < 30
        for path in task.folder.iterdir():
            path.unlink()
        (tmp_path / "poison").unlink()
        done: list[int] = []
        found = dataset.reduce(
            task, scheduler=made.address, progress=lambda now, of: done.append(now)
        )
        again = {path.name.split("-")[0] for path in task.folder.iterdir()}
        from distributed import Client

        with Client(made.address, set_as_default=False) as client:
            assert () == client.list_datasets()
    assert expected.tobytes() == found.tobytes()
    assert len(blocks) == max(done)
    assert (again < blocks) == pinned
    assert "3" in again


@pytest.mark.trust(32)
@pytest.mark.slow
def test_a_block_that_fills_the_memory_of_its_workers_exits_with_71(
    store: Path, tmp_path: Path
) -> None:
    dataset = open_store(store)
    (tmp_path / "seen").mkdir()
    task = Hungry(tmp_path / "seen")
    settings = {"DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.9"}
    with cluster(tmp_path / "cluster", workers=0, env=settings) as made:
        made.add("--memory-limit", "1GB", nanny=True)
        started = time.monotonic()
        with pytest.raises(StreammcError, match=r"block 3 of a pass.*limit of 1 GB") as caught:
            dataset.reduce(task, scheduler=made.address)
        assert time.monotonic() - started < 60
        assert 71 == caught.value.exit_code, str(caught.value)


@pytest.mark.trust(33)
@pytest.mark.slow
def test_a_job_whose_scheduler_dies_at_many_instants_ends_with_its_draws(
    store: Path, tmp_path: Path
) -> None:
    words = ("sample", store, *MODEL, "--draws", "400", "--warmup", "200", "--chains", "2")
    words = (*words, "--seed", "1", "--sampler", "hmc", "--quiet", "-o")
    assert 0 == streammc(*words, tmp_path / "whole").code
    digests, codes = set(), []
    for number in range(rounds(3, 20)):
        run = tmp_path / f"run-{number}"
        with cluster(tmp_path / f"cluster-{number}") as made:
            on = ("--scheduler", str(made.file), "--chains-on", "workers")
            delay = 2.5 + 2.0 * number
            timer = threading.Timer(delay, os.killpg, (made.scheduler.pid, signal.SIGKILL))
            timer.start()
            started = time.monotonic()
            done = program(*words, run, *on)
            assert done.code in (0, 69, 75), done.err  # 69: gone before it was asked
            assert time.monotonic() - started < delay + 60
            timer.join()
            codes.append(done.code)
        assert 0 == program(*words, run).code
        digests.add(streammc("verify", run, "--json").json["digest"])
    digests.add(streammc("verify", tmp_path / "whole", "--json").json["digest"])
    assert 1 == len(digests)
    assert 75 in codes


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Return the names of two networks with a cable between them: 10.213.77.1 and 10.213.77.2.

    Nothing is changed in the network of this machine.
    """
    near, far = (f"streammc-{os.getpid()}-{side}" for side in ("near", "far"))
    if shutil.which("ip") is None or os.geteuid() or ip("ip", "netns", "add", near).returncode:
        pytest.skip("no network namespaces here: needs root and iproute2")
    try:
        assert not ip("ip", "netns", "add", far).returncode
        cable = ("ip", "-n", near, "link", "add", "cable0", "type", "veth", "peer", "name")
        if ip(*cable, "cable0", "netns", far).returncode:
            pytest.skip("no virtual network cables here")
        for number, name in enumerate((near, far), 1):
            for words in (
                ("addr", "add", f"10.213.77.{number}/24", "dev", "cable0"),
                ("link", "set", "cable0", "up"),
                ("link", "set", "lo", "up"),
            ):
                assert not ip("ip", "-n", name, *words).returncode
        yield near, far
    finally:
        ip("ip", "netns", "del", near)
        ip("ip", "netns", "del", far)


PASS = """
import sys
from pathlib import Path
from clusters import Slow
from distributed import Client
from streammc.stores.cluster.scheduler_address import ClusterAddress
from streammc.stores.store import open_store
store, folder, address = sys.argv[1:]
with Client(address, set_as_default=False) as client:
    client.wait_for_workers(2, timeout=60)
task = Slow(Path(folder))
where = ClusterAddress(address, insecure=True)
print(open_store(store).reduce(task, scheduler=where).tobytes().hex())
"""


def start_pass(network: str, store: Path, folder: Path, address: str) -> subprocess.Popen[str]:
    """Start a program in a network that prints the sums of a store."""
    words = ["ip", "netns", "exec", network, sys.executable, "-c", PASS, str(store), str(folder)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    pipe = subprocess.PIPE
    return subprocess.Popen([*words, address], stdout=pipe, stderr=pipe, text=True, env=env)


@pytest.mark.trust(34)
@pytest.mark.slow
def test_a_worker_that_cannot_be_reached_any_more_is_given_up(
    store: Path, tmp_path: Path, networks: tuple[str, str]
) -> None:
    near, far = networks
    task, expected = sums(tmp_path / "seen", open_store(store))
    settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s"}
    here = {"env": settings, "host": "10.213.77.1", "within": near}
    with cluster(tmp_path / "cluster", workers=0, **here) as made:
        made.add("--host", "10.213.77.1", within=near)
        made.add("--host", "10.213.77.2", within=far)
        process = start_pass(near, store, task.folder, made.address)
        until = time.monotonic() + 90
        while len({path.name.split("-")[1] for path in task.folder.iterdir()}) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        started = time.monotonic()
        assert not ip("ip", "-n", far, "link", "set", "cable0", "down").returncode
        out, err = process.communicate(timeout=90)
        assert time.monotonic() - started < 65
    assert expected.tobytes().hex() == out.strip(), err


@pytest.mark.trust(37)
@pytest.mark.slow
def test_delay_and_loss_on_the_network_change_no_bit(
    store: Path, tmp_path: Path, networks: tuple[str, str]
) -> None:
    near, far = networks
    task, expected = sums(tmp_path / "seen", open_store(store))
    disc = ("tc", "-n", far, "qdisc", "add", "dev", "cable0", "root")
    # A kernel without netem: a narrow link delays, and a cable that is out for moments loses.
    narrow = ("tbf", "rate", "4mbit", "burst", "16kb", "latency", "20ms")
    emulated = not ip(*disc, "netem", "delay", "100ms", "loss", "2%").returncode
    if not emulated and ip(*disc, *narrow).returncode:
        pytest.skip("no tc here")
    with cluster(tmp_path / "cluster", workers=0, host="10.213.77.1", within=near) as made:
        for _ in range(2):
            made.add("--host", "10.213.77.2", within=far)
        for _ in range(rounds(1, 5)):
            process = start_pass(near, store, task.folder, made.address)
            while process.poll() is None:
                time.sleep(1.0)
                if not emulated:
                    ip("ip", "-n", far, "link", "set", "cable0", "down")
                    time.sleep(0.15)
                    ip("ip", "-n", far, "link", "set", "cable0", "up")
            out, err = process.communicate()
            assert expected.tobytes().hex() == out.strip(), err
    sent = ip("tc", "-n", far, "-s", "qdisc", "show", "dev", "cable0").stdout
    assert int(sent.split("dropped ")[1].split(",")[0]) > 0 or not emulated, sent


def wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)


@pytest.mark.trust(36)
@pytest.mark.slow
def test_memory_of_a_worker_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = {}
    for times in (1, 8, 64):
        path = tmp_path / f"{times}.zarr"
        words = ("--rows", str(times * 250_000), "--dim", "8", "--seed", "1", "--quiet")
        assert 0 == streammc("simulate", "logistic", path, *words).code
        with cluster(tmp_path / f"cluster-{times}", workers=0) as made:
            made.add("--nthreads", "2")
            model = package.models.logistic(prior=package.priors.normal(scale=10.0))
            package.control_variates(open_store(path), model, scheduler=made.address)
            status = Path(f"/proc/{made.workers[0].pid}/status").read_text()
            peaks[times] = int(status.split("VmHWM:")[1].split()[0]) * 1024
            chunks = open_store(path).layout.chunk_rows * (8 * 4 + 1)
    assert peaks[64] <= 1.25 * peaks[1], peaks
    assert peaks[64] <= 2 * 3 * chunks + (350 << 20), peaks


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the processes that name a folder on their command line or work in it."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join([*process.cmdline(), process.cwd()]):
                found.append(process)
        except psutil.Error:
            continue
    return found


def left_behind(folder: Path, seconds: float = 10.0) -> list[str]:
    """Return processes and files of Dask that are still there after some seconds."""
    until = time.monotonic() + seconds
    while True:
        names = [path.name for path in (folder / "tmp").rglob("*")]
        names += [str(process) for process in processes_of(folder)]
        if not names or time.monotonic() > until:
            return names
        time.sleep(0.2)


@pytest.mark.trust(38)
@pytest.mark.slow
@pytest.mark.parametrize("end", ["success", "error", "SIGINT", "SIGTERM", "nothing"])
def test_local_workers_leave_no_process_port_or_file(end: str, store: Path, tmp_path: Path) -> None:
    for number in range(rounds(1, 5)):
        folder = tmp_path / str(number)
        (folder / "tmp").mkdir(parents=True)
        place = Path(shutil.copytree(store, folder / "s.zarr"))
        if end == "error":
            with (place / "X" / "c.3.0").open("r+b") as file:
                file.write(b"damaged!")
        env = {**os.environ, "TMPDIR": str(folder / "tmp")}
        words = ("summarize", place, *MODEL, "-o", folder / "cv.zarr", "--scheduler", "local:2")
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            env=env,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=listen,
        )
        if end.startswith("SIG") or end == "nothing":
            until = time.monotonic() + 60
            while len(processes_of(folder)) < 4:  # the command and its workers
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.05)
        if end == "nothing":  # the control: what is alive is seen
            assert left_behind(folder, 0.0)
            end_signal = signal.SIGTERM
        elif end.startswith("SIG"):
            end_signal = signal.Signals[end]
        if end not in ("success", "error"):
            process.send_signal(end_signal)
        _, err = process.communicate(timeout=60)
        expected = {"success": 0, "error": 65, "SIGINT": 130}.get(end, 143)
        assert expected == process.returncode, err
        assert "Traceback" not in err
        assert [] == left_behind(folder), end


def listen() -> None:
    """Undo what a shell does to its background jobs: they ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.trust(54)
def test_workers_read_a_store_at_an_address_with_credentials_of_their_own(
    bucket: Bucket, tmp_path: Path
) -> None:
    far = str(write(f"{bucket.address}/s.zarr"))
    (tmp_path / "seen").mkdir()
    task = Slow(tmp_path / "seen")
    expected = open_store(far).reduce(task, scheduler="sync")
    with cluster(tmp_path / "cluster", workers=1) as made:
        found = open_store(far).reduce(task, scheduler=made.address)
    assert expected.tobytes() == found.tobytes()


@pytest.mark.trust(33)
@pytest.mark.slow
def test_a_stopping_rule_ends_chains_on_workers_at_the_same_draw(
    store: Path, tmp_path: Path
) -> None:
    words = ("sample", store, *MODEL, "--draws", "40", "--warmup", "100", "--chains", "2")
    words = (*words, "--seed", "1", "--sampler", "hmc-ecs", "--stop", "ess=300", "--json")
    here = streammc(*words, "--no-audit", "-o", tmp_path / "here")
    assert 0 == here.code, here.err
    with cluster(tmp_path / "cluster") as made:
        on = ("--scheduler", str(made.file), "--chains-on", "workers")
        there = streammc(*words, "--no-audit", "-o", tmp_path / "there", *on)
    assert 0 == there.code, there.err
    draws = [RunDirectory.open(tmp_path / name).committed_draws for name in ("here", "there")]
    assert draws[0] == draws[1] > 40
    digests = [streammc("verify", tmp_path / each, "--json").json for each in ("here", "there")]
    assert digests[0]["digest"] == digests[1]["digest"]
