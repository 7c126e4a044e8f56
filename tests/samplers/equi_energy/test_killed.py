"""A run of ``mintee`` that is killed goes on with its rings, to the last bit.

Run as a program it is killed once for each number of commits: ``python test_killed.py FOLDER
COMMITS...`` prints one JSON object a kill.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_job import in_child

from streammc.models import gaussian_mean
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import mintee
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

DRAWS, CAPACITY = 400, 40


def sample(folder: Path, progress=None) -> None:
    """Run the job in a folder, which is the working directory: the options name no other."""
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    x = np.random.default_rng(2).standard_normal((60, 1)) + 0.4
    sampler = mintee(
        subset_size=20, jump_probability=0.5, ring_capacity=CAPACITY, covariance="identity",
        keep_rings="rings",
    )  # fmt: skip
    run_job(
        RunRequest(
            from_arrays(x, np.zeros(60)), gaussian_mean([1.0], prior=normal(2.0)), sampler,
            draws=DRAWS, warmup=DRAWS, chains=2, seed=1, path="run", audit=False,
            progress=progress,
        )
    )  # fmt: skip


def kept(folder: Path) -> dict[str, list]:
    """Return every state that was kept, by chain and iteration: (n, K, d) and energies."""
    states = {}
    for file in sorted((folder / "rings").glob("*.npz")):
        with np.load(file) as arrays:
            for name in ("theta", "energy"):
                for i, row in enumerate(arrays[name]):
                    place = f"{file.stem.rpartition('-')[0]} {int(arrays['began']) + i} {name}"
                    states[place] = row.tolist()
    return states


def main(folder: Path, commits: list[int]) -> None:
    # A killed process loses nothing that it has written: only a power cut needs fsync.
    os.fsync = lambda descriptor: None
    whole = folder / "whole"
    assert not in_child(lambda progress: sample(whole, progress))
    expected = json.dumps(kept(whole), sort_keys=True)
    for count in commits:
        path = folder / f"killed-{count}"
        work = lambda progress, path=path: sample(path, progress)  # noqa: E731
        killed = in_child(work, count)
        left = RunDirectory.open(path / "run")
        line = {"killed": killed, "left": [left.committed_warmup, left.committed_draws]}
        rings = left.checkpoint()[0]
        line["rings"] = int(max(np.max(v) for k, v in rings.items() if k.endswith("ring_held")))
        assert not in_child(work)
        line["digest"] = RunDirectory.open(path / "run").digest()
        line["expected"] = RunDirectory.open(whole / "run").digest()
        line["states"] = json.dumps(kept(path), sort_keys=True) == expected
        print(json.dumps(line), flush=True)


@pytest.mark.slow
def test_killed_in_warmup_and_in_the_draws_it_ends_with_the_same_draws_and_rings(tmp_path):
    program = [sys.executable, __file__, str(tmp_path), "2", "9", "12"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=env)
    assert not done.returncode, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert [True] * 3 == [kill["killed"] for kill in kills]
    for kill in kills:
        assert kill["expected"] == kill["digest"]
        assert kill["states"]
    warmup, _, draws = (kill["left"] for kill in kills)
    assert 0 < warmup[0] < DRAWS
    assert 0 < draws[1] < DRAWS
    # The last checkpoint has full rings: states had been replaced before the kill.
    assert CAPACITY == kills[-1]["rings"]


@pytest.mark.parametrize("lost", ["ring_value", "ring_z", "ring_seen"])
def test_a_checkpoint_without_its_rings_is_noticed(tmp_path, lost, monkeypatch):
    from streammc.samplers.equi_energy import kernel

    unpack = kernel.unpack

    def forgetful(rings, arrays):
        unpack(rings, {**arrays, lost: np.zeros_like(arrays[lost])})

    monkeypatch.chdir(tmp_path)
    sample(tmp_path / "whole")
    draws = RunDirectory.open(tmp_path / "whole" / "run").draws_matrix()

    class Stop:
        commits = 0

        def progress(self, phase, *_):
            self.commits += phase in ("warmup", "draws")
            if self.commits == 12:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path / "stopped", Stop().progress)
    monkeypatch.setattr(kernel, "unpack", forgetful)
    sample(tmp_path / "stopped")
    found = RunDirectory.open(tmp_path / "stopped" / "run").draws_matrix()
    assert not np.array_equal(draws, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
