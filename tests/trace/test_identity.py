import pytest

from streammc.errors import IdentityError
from streammc.trace.run_directory import RunDirectory, check_identity

STORED = {
    "seed": 1,
    "chains": 4,
    "warmup": 500,
    "store": "abc",
    "model": {"name": "logistic", "prior": {"scale": 10.0}},
    "sampler": {"name": "hmc-ecs", "step_size": None},
}


def test_the_same_job_passes_whatever_the_order():
    check_identity(STORED, dict(reversed(STORED.items())))
    check_identity(STORED, {**STORED, "sampler": {"step_size": None, "name": "hmc-ecs"}})


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"seed": 2}, "seed is 1, asked for 2"),
        ({"chains": 8}, "chains is 4, asked for 8"),
        ({"warmup": 501}, "warmup is 500, asked for 501"),
        ({"store": "abd"}, "store is 'abc', asked for 'abd'"),
        (
            {"model": {"name": "logistic", "prior": {"scale": 1.0}}},
            "prior.scale is 10.0, asked for",
        ),
        ({"sampler": {"name": "hmc-ecs", "step_size": 0.2}}, "sampler.step_size is None, asked"),
        ({"sampler": {"name": "hmc"}}, "sampler.step_size is None, asked for absent"),
        ({"extra": 1}, "extra is absent, asked for 1"),
    ],
)
def test_a_difference_is_named_in_one_line(change, shown):
    with pytest.raises(IdentityError) as caught:
        check_identity(STORED, {**STORED, **change})
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


def test_priors_without_a_difference_in_words_are_shown_as_they_are_described():
    other = {**STORED, "model": {"name": "logistic", "prior": {"scale": 1.0}}}
    with pytest.raises(IdentityError, match=r"model.prior.scale is 10.0, asked for 1.0"):
        check_identity(STORED, other, lambda prior: {"beta[x]": "flat"})
    with pytest.raises(IdentityError, match=r"prior of beta\[x\] is 10.0 in the run, 1.0 asked"):
        check_identity(STORED, other, lambda prior: {"beta[x]": str(prior["scale"])})


def test_many_differences_are_counted():
    with pytest.raises(IdentityError, match="and 4 more"):
        check_identity(STORED, {})


def test_a_run_of_another_job_is_left_alone(job, tmp_path):
    run = job.sample(tmp_path / "run")
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with (
        pytest.raises(IdentityError, match="seed is 1, asked for 2"),
        RunDirectory.hold(run.path, identity={**job.IDENTITY, "seed": 2}, **job.plan()),
    ):
        pytest.fail("the run was opened")
    assert before == {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}


def test_a_finished_run_asked_for_again_is_left_alone(job, tmp_path):
    run = job.sample(tmp_path / "run")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.path.rglob("*") if p.is_file()}
    job.sample(tmp_path / "run")
    after = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.path.rglob("*") if p.is_file()}
    assert before == after


def test_the_digest_is_of_the_draws_alone(job, tmp_path):
    whole = job.sample(tmp_path / "a").digest()
    other = job.sample(tmp_path / "b")
    with other.lock():
        other.set_attributes({"created_at": "now"})
    assert other.digest() == whole
    assert job.sample(tmp_path / "c", 34).digest() != whole
