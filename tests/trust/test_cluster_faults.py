"""Workers and schedulers that fail: checks 30 to 33, and the memory of workers, check 36."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks_of_trust import rounds
from clusters import Hoarding, Hungry, Poison, cluster, sums, wait_for_workers
from command_line import program, streammc

import streammc as package
from streammc.errors import StreammcError
from streammc.protocols import PassTask, RowBlock
from streammc.stores import reduction
from streammc.stores.store import open_store
from streammc.trace.run_directory import RunDirectory

pytest.importorskip("distributed")


MODEL = ("--model", "logistic", "--prior-scale", "10")


class Counting(PassTask[np.ndarray]):
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
    once, generator, repeated = reduction.reduce_block, random.Random(1), [0]

    def often(task: Any, block: Any) -> Any:
        if generator.random() < 0.3:
            repeated[0] += 1
            once(task, block)
        return once(task, block)

    alone = dataset.reduce(Counting(), scheduler="sync")
    monkeypatch.setattr(reduction, "reduce_block", often)
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


@pytest.mark.trust(31, figure="the next pass reads the bad block and uses good ones again")
@pytest.mark.slow
@pytest.mark.parametrize("pinned", [True, False])
def test_good_blocks_of_a_pass_that_failed_are_used_again_where_code_is_pinned(
    pinned: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pinned:
        known = (*reduction.KNOWN, Poison.__module__.partition(".")[0])
        monkeypatch.setattr(reduction, "KNOWN", known)
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


@pytest.mark.trust(
    32,
    figure="a block of more than 1 GB: 71, and the block by name",
    caught="one block that grows without end",
)
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


def kill_scheduler(made: Any, run: Path, within: float) -> threading.Thread:
    """Kill a scheduler so many seconds after its job has begun to sample, in the background."""

    def kill() -> None:
        until = time.monotonic() + 60
        while not (run / "zarr.json").exists() and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(within)
        os.killpg(made.scheduler.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.trust(33)
@pytest.mark.slow
def test_a_job_whose_scheduler_dies_at_many_instants_ends_with_its_draws(
    store: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    words = ("sample", store, *MODEL, "--draws", "4000", "--warmup", "200", "--chains", "2")
    words = (*words, "--seed", "1", "--sampler", "hmc", "--quiet", "-o")
    assert 0 == streammc(*words, tmp_path / "whole").code
    digests, codes, generator = set(), [], random.Random(3)
    for number in range(kills := rounds(2, 20)):
        run = tmp_path / f"run-{number}"
        with cluster(tmp_path / f"cluster-{number}") as made:
            on = ("--scheduler", str(made.file), "--chains-on", "workers")
            killer = kill_scheduler(made, run, generator.random() if number else 0.0)
            started = time.monotonic()
            done = program(*words, run, *on)
            assert done.code in (0, 75), done.err
            assert time.monotonic() - started < 120
            killer.join()
            codes.append(done.code)
        assert 0 == program(*words, run).code
        digests.add(streammc("verify", run, "--json").json["digest"])
    digests.add(streammc("verify", tmp_path / "whole", "--json").json["digest"])
    assert 1 == len(digests)
    assert codes[0] == 75  # the first is killed as soon as it samples
    ended = codes.count(75)
    record_property("figure", f"{kills} jobs, {ended} of them ended by the kill: one digest")


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


def peak_bytes(pid: int) -> int:
    """Return the largest resident memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.trust(36)
@pytest.mark.slow
def test_memory_of_a_worker_does_not_grow_with_the_rows(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    peaks = {}
    for times in (1, 8, 64):
        path = tmp_path / f"{times}.zarr"
        words = ("--rows", str(times * 250_000), "--dim", "8", "--seed", "1", "--quiet")
        assert 0 == streammc("simulate", "logistic", path, *words).code
        model = package.models.logistic(prior=package.priors.normal(scale=10.0))
        with cluster(tmp_path / f"cluster-{times}", workers=0) as made:
            made.add("--nthreads", "2")
            package.control_variates(open_store(path), model, scheduler=made.address)
            peaks[times] = peak_bytes(made.workers[0].pid)
    chunks = open_store(path).layout.chunk_rows * (8 * 4 + 1)
    assert peaks[64] <= 1.25 * peaks[1], peaks
    assert peaks[64] <= 2 * 3 * chunks + (350 << 20), peaks
    with cluster(tmp_path / "cluster", workers=0) as made:
        made.add("--nthreads", "2")
        open_store(path).reduce(Hoarding(), scheduler=made.address)
        assert peak_bytes(made.workers[0].pid) > 1.25 * peaks[1]
    record_property("caught", "a task that keeps the blocks it has read")
    said = ", ".join(f"{peak >> 20} MB at {times} x 250,000 rows" for times, peak in peaks.items())
    record_property("figure", said)
