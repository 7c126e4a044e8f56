"""Several whole intervals in one commit: the same run as with a commit for each."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.errors import StreammcError
from streammc.trace.run_directory import RunDirectory


def leap(job, run, length):
    """Append ``length`` iterations in one commit."""
    phase, start = run.phase, run.next_start
    after = job.state(phase, start + length)
    run.append(phase, job.theta(phase, start, length), job.stats(phase, start, length), after)


def leapt(job, path):
    """Return a run of 20 warm-up iterations, 30 draws and 5 in one commit each."""
    with RunDirectory.hold(path, identity=job.IDENTITY, **job.plan(35)) as run:
        for length in (20, 30, 5):
            leap(job, run, length)
    return run


def test_several_intervals_leave_the_same_arrays_as_one_at_a_time(job, tmp_path):
    job.sample(tmp_path / "steps")
    leapt(job, tmp_path / "leaps")
    steps, leaps = (RunDirectory.open(tmp_path / name) for name in ("steps", "leaps"))
    job.check_prefix(leaps)
    assert (steps.digest(), steps.generation) == (leaps.digest(), leaps.generation)
    names = {
        path.relative_to(tmp_path / "steps")
        for path in (tmp_path / "steps").rglob("*")
        if path.is_file() and "checkpoint" not in path.parts and path.parent != tmp_path / "steps"
    }
    assert names
    for name in names:
        assert (tmp_path / "steps" / name).read_bytes() == (tmp_path / "leaps" / name).read_bytes()


def test_a_run_of_leaps_is_extended_from_its_short_last_interval(job, tmp_path):
    leapt(job, tmp_path / "run")
    with RunDirectory.hold(tmp_path / "run", identity=job.IDENTITY, **job.plan(35)) as run:
        run.extend(70)
        arrays, meta = run.checkpoint()
        assert 30 == meta["next"] == run.next_start
        np.testing.assert_array_equal(arrays["at"], job.state("draws", 30)[0]["at"])
        leap(job, run, 40)
    job.sample(tmp_path / "steps", 70)
    assert RunDirectory.open(tmp_path / "steps").digest() == RunDirectory.open(run.path).digest()


@pytest.mark.parametrize("length", [15, 40, 25])
def test_parts_of_intervals_and_more_than_planned_are_refused(job, tmp_path, length):
    run = job.create(tmp_path / "run")
    with run.lock():
        leap(job, run, 20)
        with pytest.raises(StreammcError, match="expected an interval of draws"):
            leap(job, run, length)
        assert (20, 0) == (run.committed_warmup, run.committed_draws)
