"""``probabilities="scores"`` changes the rows that are read and keeps every guarantee."""

import itertools

import numpy as np
import pytest

from streammc.errors import ConfigError
from streammc.samplers import hmc_ecs, hmc_ecs_signed
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")


def digest(path):
    return RunDirectory.open(path).digest()


def draw(small_job, dataset, path, **options):
    sampler = small_job.sampler(probabilities="scores")
    return small_job.sample(dataset, path, sampler=sampler, **options)


@pytest.fixture(scope="module")
def unequal(small_job, store, tmp_path_factory):
    path = tmp_path_factory.mktemp("unequal") / "run"
    return path, draw(small_job, store, path, audit=True)


def test_the_table_is_kept_with_the_run_and_the_pass_is_counted(
    small_job, store, unequal, reference
):
    path, report = unequal
    run, equal = RunDirectory.open(path), RunDirectory.open(reference)
    plan = run.attributes["plan"]
    assert (plan["probabilities"], plan["passes"]) == ("scores", 1)
    relative = run.constant_data("relative_probability")
    assert relative.dtype == np.float32
    assert len(relative) == plan["n_units"] == -(-store.n_rows // 3)
    assert relative.max() > 3 * relative.mean()
    found, before = report.summary["sampling"], equal.attributes["summary"]["sampling"]
    assert found["passes"] == before["passes"] + 1
    assert found["rows_read"] > before["rows_read"] + 0.5 * store.n_rows
    assert found["certainty_rows"] < 0.5 * before["certainty_rows"]
    assert found["log_lik_variance_mean"] < before["log_lik_variance_mean"]


def test_the_audit_finds_nothing_to_correct(unequal):
    _, report = unequal
    assert report.summary["audit"]["pareto_k"] < 0.7
    assert report.summary["audit"]["largest_correction"] < 0.1


@pytest.mark.parametrize(
    ("threads", "batch", "kind", "scheduler"),
    [
        (1 + at % 2, batch, kind, ("sync", 1, 2)[at % 3])
        for at, (batch, kind) in enumerate(itertools.product((1, 7, 4096), ("mapped", "memory")))
    ],
)
def test_resources_change_no_bit(
    small_job, store, unequal, tmp_path, threads, batch, kind, scheduler
):
    dataset = store if kind == "mapped" else small_job.in_memory()
    options = {"threads": threads, "batch_iterations": batch, "scheduler": scheduler}
    draw(small_job, dataset, tmp_path / "run", audit=False, **options)
    assert digest(unequal[0]) == digest(tmp_path / "run")


class StopAfter:
    def __init__(self, commits):
        self.left = commits

    def progress(self, phase, done, total, facts):
        self.left -= phase in ("warmup", "draws")

    def __call__(self):
        return self.left <= 0


def test_stopped_and_resumed_it_has_the_same_bits(small_job, store, unequal, tmp_path):
    path = tmp_path / "run"
    for batch in (7, 4096, 1):
        stop = StopAfter(4)
        report = draw(
            small_job, store, path, interrupted=stop, progress=stop.progress, batch_iterations=batch
        )
        assert not report.finished
    assert draw(small_job, store, path).finished
    assert digest(unequal[0]) == digest(path)


def test_the_signed_sampler_draws_by_scores_as_well(small_job, store, unequal, tmp_path):
    sampler = hmc_ecs_signed(probabilities="scores", unit_rows=3, order=1)
    report = small_job.sample(store, tmp_path / "run", sampler=sampler, seed=2)
    assert RunDirectory.open(tmp_path / "run").attributes["plan"]["probabilities"] == "scores"
    for label, truth in unequal[1].summary["parameters"].items():
        shown = report.summary["parameters"][label]
        error = np.hypot(shown["mcse_mean"], truth["mcse_mean"])
        assert abs(shown["mean"] - truth["mean"]) < 4.5 * error


def test_probabilities_are_one_of_two():
    with pytest.raises(ConfigError, match="must be one of uniform, scores, found 'best'"):
        hmc_ecs(probabilities="best")
