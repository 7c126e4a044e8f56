"""One seed, one set of draws: bit for bit, whatever the resources.

A mapped store has no cache of its own, hence no cache size to vary: the pages of its
files are the operating system's.
"""

import itertools

import numpy as np
import pytest

from streammc.control_variates.certify import compute
from streammc.likelihood.drawn_units import UnitDesign
from streammc.models import logistic
from streammc.samplers import hmc
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")

SCHEDULERS = ("sync", 1, 2)
RESOURCES = [
    # Every pair of settings occurs, and every scheduler with each of them.
    (threads, batch, kind, SCHEDULERS[(threads + depth + kinds) % 3])
    for threads, (depth, batch), (kinds, kind) in itertools.product(
        (1, 2), enumerate((1, 7, 4096)), enumerate(("mapped", "memory"))
    )
]


def digest(path):
    return RunDirectory.open(path).digest()


def matrix(path, phase="draws"):
    return RunDirectory.open(path).draws_matrix(phase)


@pytest.fixture(scope="module")
def datasets(small_job, store):
    return {"mapped": store, "memory": small_job.in_memory()}


def test_the_job_exercises_what_could_depend_on_resources(small_job, reference, store):
    plan = RunDirectory.open(reference).attributes["plan"]
    stats = RunDirectory.open(reference).read_group("sample_stats")
    assert 5 == len(store.blocks())
    assert (100, 20, 3) == (plan["k"], plan["n_blocks"], plan["unit_rows"])
    assert len(RunDirectory.open(reference).constant_data("certainty_rows")) > 100
    assert store.n_rows % plan["unit_rows"]
    assert 0.001 < 1.0 - stats["subsample_accepted"].mean() < 0.5
    assert stats["log_lik_variance"].mean() > 0.005


@pytest.mark.trust(12)
@pytest.mark.parametrize(("threads", "batch", "kind", "scheduler"), RESOURCES)
def test_resources_change_no_bit(
    small_job, datasets, reference, tmp_path, threads, batch, kind, scheduler, record_property
):
    options = {"threads": threads, "batch_iterations": batch, "scheduler": scheduler}
    small_job.sample(datasets[kind], tmp_path / "run", **options)
    assert digest(reference) == digest(tmp_path / "run")
    record_property(
        "figure", f"{len(RESOURCES)} settings of threads, batches, schedulers: 1 digest"
    )


@pytest.mark.trust(12)
@pytest.mark.parametrize("kind", ["mapped", "memory"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_full_pass_has_the_same_bits_on_any_scheduler(datasets, kind, scheduler):
    first = compute(datasets["mapped"], logistic(), scheduler="sync")
    other = compute(datasets[kind], logistic(), scheduler=scheduler)
    for name in ("theta_star", "gradient", "hessian", "factor", "scores", "candidates"):
        assert getattr(first, name).tobytes() == getattr(other, name).tobytes()
    assert (first.log_lik, first.log_lik_remainder) == (other.log_lik, other.log_lik_remainder)


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (2, 7)])
def test_full_data_hmc_has_the_same_bits(small_job, datasets, tmp_path, threads, batch):
    short = {"sampler": hmc(), "draws": 30, "warmup": 30, "chains": 2}
    small_job.sample(datasets["mapped"], tmp_path / "one", **short)
    options = {"threads": threads, "batch_iterations": batch}
    small_job.sample(datasets["memory"], tmp_path / "two", **short, **options)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_blocks_of_unequal_sizes_have_the_same_bits(small_job, datasets, tmp_path):
    # 100 units in blocks of 14 and 15: every batch takes another number of units.
    short = {"sampler": small_job.sampler(n_blocks=7), "draws": 60, "warmup": 60, "chains": 2}
    small_job.sample(datasets["mapped"], tmp_path / "one", batch_iterations=1, **short)
    small_job.sample(datasets["memory"], tmp_path / "two", batch_iterations=9, threads=2, **short)
    plan = RunDirectory.open(tmp_path / "one").attributes["plan"]
    assert (100, 7) == (plan["k"], plan["n_blocks"])
    accepted = RunDirectory.open(tmp_path / "one").read_group("sample_stats")["subsample_accepted"]
    assert 0.3 < accepted.mean() <= 1.0
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


@pytest.mark.trust(13)
def test_chain_k_of_four_is_chain_k_of_eight(
    small_job, store, reference, tmp_path, record_property
):
    small_job.sample(store, tmp_path / "run", chains=8)
    for phase in ("warmup", "draws"):
        eight = matrix(tmp_path / "run", phase)
        assert matrix(reference, phase).tobytes() == eight[:4].tobytes()
        assert 8 == len(np.unique(eight[:, -1, 0]))
    record_property("figure", "4 of 4 chains have the bits of those in a run of 8")


@pytest.mark.trust(12)
def test_another_seed_gives_other_draws(small_job, store, reference, tmp_path, record_property):
    small_job.sample(store, tmp_path / "run", seed=2)
    assert digest(reference) != digest(tmp_path / "run")
    assert not np.isin(matrix(tmp_path / "run"), matrix(reference)).any()
    short = {"draws": 50, "warmup": 50, "chains": 1}
    for seed in range(16):
        small_job.sample(store, tmp_path / str(seed), seed=seed, **short)
    assert 16 == len({digest(tmp_path / str(seed)) for seed in range(16)})
    record_property("figure", "16 seeds: 16 different digests")


@pytest.mark.trust(12)
def test_broken_partner_that_discards_what_was_drawn_ahead(
    small_job, store, reference, tmp_path, monkeypatch, record_property
):
    """A stream that loses one number a batch makes the draws depend on the batches."""
    draw = UnitDesign.draw

    def wasteful(self, count, rng):
        units = draw(self, count, rng)
        rng.random()
        return units

    monkeypatch.setattr(UnitDesign, "draw", wasteful)
    for batch in (7, 13):
        small_job.sample(store, tmp_path / str(batch), batch_iterations=batch)
    assert digest(tmp_path / "7") != digest(tmp_path / "13")
    record_property("caught", "a stream that loses one number a batch")
