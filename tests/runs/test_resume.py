"""A run that was stopped, killed or extended has the draws of one that was not."""

import json
import subprocess
import sys

import numpy as np
import pytest

from streammc.errors import RefusedError
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")

KILLS = 12


def stopped(small_job, dataset, path, commits, **options):
    stop = small_job.StopAfter(commits)
    return small_job.sample(dataset, path, interrupted=stop, progress=stop.progress, **options)


def digest(path):
    return RunDirectory.open(path).digest()


@pytest.mark.slow
def test_killed_at_twelve_instants_the_same_call_ends_with_the_same_bits(
    small_job, store, reference, tmp_path
):
    (tmp_path / "store").symlink_to(store.address)
    program = [sys.executable, small_job.__file__, str(tmp_path), str(KILLS)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert KILLS == len(kills)
    assert {digest(reference)} == {kill["digest"] for kill in kills}
    landed = [tuple(kill["left"]) for kill in kills if kill["killed"]]
    # Before the first commit, in warm-up, among the draws: resuming was not vacuous.
    assert len(landed) >= KILLS // 2
    assert len(set(landed)) >= 4
    assert any(0 < warmup < small_job.DRAWS for warmup, _ in landed)
    assert any(0 < draws < small_job.DRAWS for _, draws in landed)


@pytest.mark.trust(13)
def test_stopped_again_and_again_under_other_resources(small_job, store, reference, tmp_path):
    path = tmp_path / "run"
    seen = []
    for batch in (1, 7, 4096, 7, 4096):
        options = {"batch_iterations": batch, "threads": 1 + batch % 2}
        report = stopped(small_job, store, path, 3, **options)
        run = RunDirectory.open(path)
        seen.append(run.committed_warmup + run.committed_draws)
        assert (False, True) == (report.finished, report.changed)
    assert [150, 300, 450, 600, 750] == seen
    assert small_job.sample(store, path).finished
    assert digest(reference) == digest(path)


def test_stopped_before_the_first_commit(small_job, store, reference, tmp_path):
    report = stopped(small_job, store, tmp_path / "run", 0)
    assert not report.finished
    assert not RunDirectory.exists(tmp_path / "run")
    small_job.sample(store, tmp_path / "run")
    assert digest(reference) == digest(tmp_path / "run")


def test_summary_counts_what_was_read_before_the_stop(small_job, store, reference, tmp_path):
    stopped(small_job, store, tmp_path / "run", 10)
    summary = small_job.sample(store, tmp_path / "run").summary
    whole = RunDirectory.open(reference).attributes["summary"]
    assert whole["parameters"] == summary["parameters"]
    timed = {"seconds", "warmup_seconds", "pass_seconds"}
    for name in set(whole["sampling"]) - timed:
        assert whole["sampling"][name] == summary["sampling"][name], name
    assert summary["sampling"]["seconds"] > 0.0


@pytest.mark.parametrize("draws", [425, 500])
def test_more_draws_keep_the_prefix(small_job, store, reference, tmp_path, draws):
    path = tmp_path / "run"
    # 120 draws in intervals of 50: the last one is short, and computed again.
    first = small_job.sample(store, path, draws=120)
    before = RunDirectory.open(path)
    stats = before.read_group("sample_stats")
    report = small_job.sample(store, path, draws=draws)
    after = RunDirectory.open(path)
    assert (True, True) == (report.finished, report.changed)
    assert (120, draws) == (first.summary["sampling"]["draws"], report.summary["sampling"]["draws"])
    whole = RunDirectory.open(reference).draws_matrix()
    assert before.draws_matrix().tobytes() == after.draws_matrix()[:, :120].tobytes()
    for name, values in after.read_group("sample_stats").items():
        if values.ndim == 2:
            np.testing.assert_array_equal(stats[name], values[:, :120])
    assert whole.tobytes() == after.draws_matrix()[:, : small_job.DRAWS].tobytes()


def test_killed_between_the_last_draw_and_the_summary(small_job, store, tmp_path, monkeypatch):
    """An extended run must not answer with the summary of the shorter one."""
    path = tmp_path / "run"
    small_job.sample(store, path, draws=120)

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streammc.runs.run_summary.finish_report", die)
        with pytest.raises(KeyboardInterrupt):
            small_job.sample(store, path, draws=200)
    assert RunDirectory.open(path).finished(200)
    report = small_job.sample(store, path, draws=200)
    assert (200, True) == (report.summary["sampling"]["draws"], report.changed)


@pytest.mark.parametrize("commits", [0, 8, 10])
def test_refused_run_is_refused_again(small_job, store, tmp_path, monkeypatch, commits):
    """The mean variance counts from the first draw, however often the run was resumed."""
    path = tmp_path / "run"
    if commits:
        stopped(small_job, store, path, commits)
    monkeypatch.setattr("streammc.samplers.hamiltonian.options.VARIANCE_LIMIT", 1e-6)
    for _ in range(3):
        with pytest.raises(RefusedError, match="log_lik_variance"):
            small_job.sample(store, path)
        run = RunDirectory.open(path)
        assert 50 * max(commits, 8) == run.committed_warmup + run.committed_draws
