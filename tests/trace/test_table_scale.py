"""Draws on the scale of the table beside those of the sampler: one commit, one accessor."""

import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from streammc.errors import StoreError
from streammc.models.table_scale import COEFFICIENT, ScaleBlock, describe_blocks, transform
from streammc.trace.datatree import open_run, tree_in_memory
from streammc.trace.run_directory import MemoryRun, RunDirectory
from streammc.trace.run_state import make_layout, own_entries

sys.path.insert(0, str(Path(__file__).resolve().parent))
import example_job as job

FEATURES = ["x 1", "x 2"]
LABELS = ["beta[x 1]", "beta[x 2]", "log_sigma"]
BLOCKS = [ScaleBlock(COEFFICIENT, ("beta[x 1]", "beta[x 2]"), "beta[Intercept]")]
ATTRIBUTES = {
    "table_scale": describe_blocks(BLOCKS),
    "design": {
        "features": FEATURES,
        "standardization": {"mean": [3.0, -700.0], "scale": [0.5, 31.0]},
    },
}


def plan(draws, attributes=ATTRIBUTES, earlier=False):
    given = None if earlier else attributes
    layout = make_layout(LABELS, FEATURES, job.CHAINS, job.INTERVAL, job.STATS, given)
    return {"layout": layout, "draws": draws, "warmup": job.WARMUP, "attributes": attributes}


def sampled(path, draws=35, kind=RunDirectory, commits=99, **options):
    with kind.hold(path, identity=job.IDENTITY, **plan(draws, **options)) as run:
        if draws != run.draws:
            run.extend(draws)
        while not run.finished() and commits:
            job.step(run)
            commits -= 1
    return run


def on_table(draws):
    theta = job.theta("draws", 0, draws)
    return transform(theta, LABELS, ATTRIBUTES["design"], BLOCKS)[0]


def check(tree, draws):
    assert ["Intercept", *FEATURES] == list(tree["posterior"]["feature"].values)
    assert np.array_equal(on_table(draws)[:, :, :3], tree["posterior"]["beta"])
    assert np.array_equal(job.theta("draws", 0, draws)[:, :, :2], tree["sampled_posterior"]["beta"])
    warmup = job.theta("warmup", 0, job.WARMUP)
    assert np.array_equal(warmup[:, :, 2], tree["warmup_sampled_posterior"]["log_sigma"])
    assert "warmup_posterior" not in tree.children


def test_both_scales_are_on_disk_after_every_commit(tmp_path):
    run = sampled(tmp_path / "run", commits=4)
    assert run.committed_draws == 20
    check(xr.open_datatree(run.path, engine="zarr"), 20)
    job.check_prefix(run)
    run = sampled(tmp_path / "run")
    check(open_run(run.path), 35)
    # The short last chunk is computed again, and its table scale comes out bit for bit.
    check(open_run(sampled(tmp_path / "run", 51).path), 51)


def test_one_chunk_of_one_draw_has_the_bits_of_a_longer_one():
    layout = plan(1)["layout"]
    theta = np.random.default_rng(1).normal(size=(1, 40, 3))
    whole = layout.interval_arrays("draws", 0, theta, {}, {"posterior"})["posterior/beta"]
    one = layout.interval_arrays("draws", 7, theta[:, 7:8], {}, {"posterior"})["posterior/beta"]
    assert np.array_equal(whole[:, 7:8], one)


def test_a_sum_over_many_columns_does_not_depend_on_the_number_of_draws():
    d, rng = 130, np.random.default_rng(2)
    names = [f"x{j}" for j in range(d)]
    labels = [f"beta[{name}]" for name in names]
    scale = {"mean": [*rng.normal(size=d)], "scale": [*rng.uniform(1.0, 9.0, d)]}
    design = {"features": names, "standardization": scale}
    blocks = [ScaleBlock(COEFFICIENT, tuple(labels), "beta[Intercept]")]
    theta = rng.normal(size=(1, 37, d))
    whole, _ = transform(theta, labels, design, blocks)
    for first, stop in ((0, 1), (36, 37), (3, 20)):
        part, _ = transform(theta[:, first:stop], labels, design, blocks)
        assert np.array_equal(whole[:, first:stop], part)


def test_the_digest_is_that_of_what_was_sampled(tmp_path):
    run, earlier = (sampled(tmp_path / str(each), earlier=each) for each in (False, True))
    assert earlier.digest() == run.digest()
    assert [1, 2] == [own_entries(each.state)["format"] for each in (earlier, run)]


def test_a_run_in_memory_is_the_run_on_disk(tmp_path):
    run = sampled(tmp_path / "run")
    (tmp_path / "memory").mkdir()
    held = sampled(tmp_path / "memory", kind=MemoryRun)
    check(tree_in_memory(held), 35)
    assert run.digest() == held.digest()
    xr.testing.assert_identical(
        open_run(run.path)["posterior"].to_dataset(), open_run(held.path)["posterior"].to_dataset()
    )


def test_a_run_of_an_earlier_version_goes_on_and_opens_on_the_scale_of_the_table(tmp_path):
    run = sampled(tmp_path / "run", commits=4, earlier=True)
    check(open_run(run.path), 20)
    # The plan of the later version is not taken by a run that has begun.
    run = sampled(tmp_path / "run", 35)
    assert np.array_equal(run.read_group("posterior")["beta"], run.draws_matrix()[:, :, :2])
    check(open_run(run.path), 35)


def test_a_finished_run_that_does_not_describe_its_scale_has_its_own_draws_on_it(tmp_path):
    run = sampled(tmp_path / "run", attributes={"store": "somewhere"})
    assert "sampled_posterior" not in open_run(run.path).children
    dims = {"chain": (("chain",), np.arange(2)), "draw": (("draw",), np.arange(35))}
    beta = ("chain", "draw", "feature"), on_table(35)[:, :, :3]
    names = ("feature",), np.array(["Intercept", *FEATURES])
    with run.lock():
        run.add_group("posterior_original", {**dims, "beta": beta, "feature": names})
    check(open_run(run.path), 35)


@pytest.mark.parametrize("group", ["posterior", "sampled_posterior"])
def test_a_changed_draw_of_either_scale_is_damage(tmp_path, group):
    run = sampled(tmp_path / "run")
    chunk = run.path / group / "beta" / "c.0.1.0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    with pytest.raises(StoreError, match=f"{group}/beta"):
        open_run(run.path)
