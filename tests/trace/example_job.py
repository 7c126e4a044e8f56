"""A job whose draws are a formula, so that any prefix can be checked exactly.

Run as a program it samples into a directory and prints a line after each commit:
``python example_job.py PATH DRAWS [SECONDS_PER_INTERVAL]``.
"""

import sys
import time

import numpy as np

from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout

LABELS = ["beta[Intercept]", "beta[x 1]", "log_sigma"]
FEATURES = ["Intercept", "x 1"]
CHAINS, INTERVAL, WARMUP = 2, 10, 20
STATS = {"lp": "float64", "diverging": "bool", "n_steps": "int64"}
IDENTITY = {"seed": 1, "model": {"name": "logistic"}}


def theta(phase, start, n):
    c, i, j = np.ogrid[:CHAINS, start : start + n, : len(LABELS)]
    return np.sin(1.0 + 1000.0 * (phase == "draws") + 17.0 * c + 0.37 * i + 3.0 * j)


def stats(phase, start, n):
    lp = theta(phase, start, n)[:, :, 0] * 2.0
    return {"lp": lp, "diverging": lp > 1.0, "n_steps": np.rint(9 * lp).astype(np.int64)}


def state(phase, start):
    return {"at": np.arange(start, start + 5.0)}, {"phase": phase, "next": start, "big": 2**100}


def plan(draws=35, labels=LABELS, features=FEATURES, statistics=STATS):
    return {
        "layout": make_layout(labels, features, CHAINS, INTERVAL, statistics),
        "draws": draws,
        "warmup": WARMUP,
        "attributes": {"store": "somewhere"},
        "constant_data": {"theta_star": np.array([1.0, -2.0])},
    }


def create(path, draws=35, identity=IDENTITY):
    return RunDirectory.create(path, identity=identity, **plan(draws))


def step(run):
    """Append the next interval, from a checkpoint that must be the right one."""
    phase, start, n = run.phase, run.next_start, run.next_length
    if run.committed_warmup or start:
        arrays, meta = run.checkpoint()
        expected = (phase, start) if start else ("warmup", WARMUP)
        assert (meta["phase"], meta["next"], meta["big"]) == (*expected, 2**100)
        np.testing.assert_array_equal(arrays["at"], state(*expected)[0]["at"])
    else:
        assert run.checkpoint() is None
    done = start + n
    run.append(phase, theta(phase, start, n), stats(phase, start, n), state(phase, done))


def sample(path, draws=35, committed=lambda run: None):
    """Start or resume the job, and finish it."""
    with RunDirectory.hold(path, identity=IDENTITY, **plan(draws)) as run:
        if draws != run.draws:
            run.extend(draws)
        while not run.finished():
            step(run)
            committed(run)
    return run


def check_prefix(run, checkpoint=True):
    """Assert that what is committed is exactly the formula."""
    for phase, group, done in (
        ("warmup", "warmup_sample_stats", run.committed_warmup),
        ("draws", "sample_stats", run.committed_draws),
    ):
        np.testing.assert_array_equal(theta(phase, 0, done), run.draws_matrix(phase))
        found = run.read_group(group)
        for name, expected in stats(phase, 0, done).items():
            np.testing.assert_array_equal(expected, found[name])
        np.testing.assert_array_equal(np.arange(done), found["draw"])
    if checkpoint and run.committed_warmup:
        run.checkpoint()


if __name__ == "__main__":
    path, draws, pause = sys.argv[1], int(sys.argv[2]), float([*sys.argv, "0"][3])

    def report(run):
        print(run.generation, flush=True)
        time.sleep(pause)

    sample(path, draws, report)
