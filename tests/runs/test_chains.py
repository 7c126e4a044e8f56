from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import streammc
from streammc.errors import RefusedError
from streammc.runs.job import Watch
from streammc.samplers import hmc_ecs
from streammc.samplers.common.chains import Chains
from streammc.trace.run_directory import RunDirectory

CHAINS = 4


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_chains_run_on_usable_cores_and_share_them(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    seen: set[int] = set()

    def initialise() -> None:
        seen.add(threading.get_ident())
        time.sleep(0.05)

    def kernel(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(initialise=initialise)

    problem: Any = SimpleNamespace(kernel=kernel)
    chains = Chains(problem, seed=1, chains=CHAINS)
    chains.initialise()
    chains.close()
    assert min(cores, CHAINS) == len(seen)
    assert {max(cores // CHAINS, 1)} == {kernel.threads for kernel in chains.kernels}


@pytest.mark.parametrize(("seconds", "together"), [(0.01, 8), (0.1, 2), (0.2, 1), (30.0, 1)])
def test_quick_intervals_are_committed_together(seconds: float, together: int) -> None:
    problem: Any = SimpleNamespace(kernel=lambda *_, **__: SimpleNamespace())
    chains = Chains(problem, seed=1, chains=1)
    assert 1 == chains.intervals(50, 8)  # their speed is not known yet
    chains._seconds_per_iteration = seconds / 50
    assert together == chains.intervals(50, 8)
    assert 1 == chains.intervals(50, 0)
    chains.close()


def test_a_run_without_a_listener_has_fewer_commits_and_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    store = streammc.from_arrays(X, (rng.random(200) < 0.4).astype(float))
    commits: list[str] = []
    real = RunDirectory.append

    def append(run: RunDirectory, phase: str, *rest: Any) -> None:
        commits.append(phase)
        real(run, phase, *rest)

    monkeypatch.setattr(RunDirectory, "append", append)
    digests, counts = [], []
    for name, progress in (("quiet", None), ("heard", lambda *_: None)):
        streammc.sample(
            store, streammc.models.logistic(), sampler=streammc.samplers.hmc(), seed=1, chains=2,
            draws=420, warmup=400, path=tmp_path / name, progress=progress,
        )  # fmt: skip
        run = RunDirectory.open(tmp_path / name)
        digests.append((run.digest(), run.generation))
        counts.append(len(commits))
        commits.clear()
    assert digests[0] == digests[1]
    assert 16 == counts[1]
    assert counts[0] < 16


def test_a_run_refused_at_one_interval_is_refused_again_when_it_is_opened() -> None:
    variance = np.full((2, 40), 0.1)
    variance[:, :10] = 3.5  # refused after ten draws; over all of them the mean is 0.95
    run: Any = SimpleNamespace(
        phase="draws", committed_draws=40, draws=80, warmup=20, interval=10, next_length=10,
        next_start=40, statistics=lambda *_, phase: {"log_lik_variance": variance},
    )  # fmt: skip
    with pytest.raises(RefusedError, match=r"found a mean of 3\.5"):
        Watch(run, hmc_ecs())
    variance[:] = 0.1
    Watch(run, hmc_ecs()).look("draws", {"log_lik_variance": np.full((2, 10), 14.0)}, False)
    with pytest.raises(RefusedError, match=r"found a mean of 3\.5"):
        Watch(run, hmc_ecs()).look("draws", {"log_lik_variance": np.full((2, 10), 17.1)}, False)
