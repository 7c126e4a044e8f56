"""Runs that end by a stopping rule: at the same draw whether they were stopped or not."""

from __future__ import annotations

import numpy as np
import pytest
from crossed_tables import SAMPLERS_OF_ROWS

from streammc import models, registry, samplers
from streammc.diagnostics.stopping import StopRule
from streammc.errors import ConfigError
from streammc.priors import normal
from streammc.runs import job as jobs
from streammc.samplers.common.chains import Chains
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("small_blocks")

RULE = StopRule.parse("ess=900")
SIZES = {"draws": 100, "warmup": 100, "stop": RULE}


def digest(path):
    return RunDirectory.open(path).digest()


def contents(path):
    return {each: each.stat().st_mtime_ns for each in sorted(path.rglob("*")) if each.is_file()}


@pytest.fixture(scope="module")
def whole(small_job, store, tmp_path_factory):
    """Directory and report of a run that its rule ended."""
    path = tmp_path_factory.mktemp("whole") / "run"
    with small_job.small_blocks():
        return path, small_job.sample(store, path, **SIZES)


def test_a_run_goes_on_until_the_rule_is_met_and_no_further(whole):
    path, report = whole
    stop = report.summary["stop"]
    assert ("rule", True) == (stop["ended_by"], stop["passed"])
    run = RunDirectory.open(path)
    assert stop["draws"] == run.draws == run.committed_draws == report.summary["sampling"]["draws"]
    assert 100 < run.draws < 2000
    ess = [
        row[name]
        for row in report.summary["parameters"].values()
        for name in ("ess_bulk", "ess_tail", "ess_sd")
    ]
    assert 900 <= min(ess) == stop["ess"]["found"]
    assert not [line for line in report.warnings if "stopping rule" in line]


def test_the_rule_was_not_met_at_the_check_before(small_job, store, whole, tmp_path):
    run = RunDirectory.open(whole[0])
    before = max(n for n in range(50, run.draws, 50) if RULE.next_check(50, 100, n) == n)
    small_job.sample(store, tmp_path / "run", **{**SIZES, "draws": before, "stop": None})
    found = jobs.statistics_of(RunDirectory.open(tmp_path / "run"))
    assert not RULE.verdict(found, before, interval=50, first=100)["passed"]


def test_the_draws_are_those_of_a_run_of_as_many_draws(small_job, store, whole, tmp_path):
    path, report = whole
    plain = {**SIZES, "draws": report.summary["stop"]["draws"], "stop": None}
    small_job.sample(store, tmp_path / "run", **plain)
    draws = [RunDirectory.open(each).draws_matrix() for each in (path, tmp_path / "run")]
    assert (draws[0] == draws[1]).all()


def test_the_same_call_again_changes_nothing(small_job, store, whole):
    path, report = whole
    before = contents(path)
    again = small_job.sample(store, path, **SIZES)
    assert (True, False, report.summary) == (again.finished, again.changed, again.summary)
    assert before == contents(path)


@pytest.mark.parametrize("commits", [1, 3, 4, 5, 8])
def test_a_run_stopped_on_its_way_ends_at_the_same_draw(small_job, store, whole, tmp_path, commits):
    path = tmp_path / "run"
    for _ in range(40):
        stop = small_job.StopAfter(commits)
        report = small_job.sample(store, path, interrupted=stop, progress=stop.progress, **SIZES)
        if report.finished:
            break
    assert report.finished
    assert digest(whole[0]) == digest(path)


def test_a_run_killed_between_the_last_check_and_the_summary_ends_at_the_same_draw(
    small_job, store, whole, tmp_path, monkeypatch
):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streammc.runs.run_summary.finish_report", killed)
        with pytest.raises(KeyboardInterrupt):
            small_job.sample(store, tmp_path / "run", **SIZES)
    assert small_job.sample(store, tmp_path / "run", **SIZES).finished
    assert digest(whole[0]) == digest(tmp_path / "run")


def test_other_checks_would_end_the_run_at_another_draw(
    small_job, store, whole, tmp_path, monkeypatch
):
    # The broken partner: what the tests above compare does depend on where the rule is checked.
    monkeypatch.setattr(StopRule, "next_check", lambda *words: -(-words[3] // 700) * 700)
    report = small_job.sample(store, tmp_path / "run", **SIZES)
    assert 700 == report.summary["stop"]["draws"]
    assert digest(whole[0]) != digest(tmp_path / "run")


def test_more_can_be_asked_of_a_finished_run(small_job, store, whole, tmp_path):
    small_job.sample(store, tmp_path / "run", **{**SIZES, "stop": StopRule.parse("ess=300")})
    less = RunDirectory.open(tmp_path / "run").draws
    report = small_job.sample(store, tmp_path / "run", **SIZES)
    assert less < report.summary["stop"]["draws"]
    assert digest(whole[0]) == digest(tmp_path / "run")


def test_a_run_ends_at_the_most_draws_and_says_so(small_job, store, tmp_path):
    rule = StopRule.parse("ess=1e9,draws=170")
    report = small_job.sample(store, tmp_path / "run", **{**SIZES, "stop": rule})
    stop = report.summary["stop"]
    assert ("draws", False, 150) == (stop["ended_by"], stop["passed"], stop["draws"])
    assert any("after 150 draws per chain, the most" in line for line in report.warnings)
    again = small_job.sample(store, tmp_path / "run", **{**SIZES, "stop": rule})
    assert (False, report.summary) == (again.changed, again.summary)


def test_time_ends_a_run_at_a_commit_and_says_so(small_job, store, whole, tmp_path, monkeypatch):
    kept = Chains.checkpoint

    def slow(self):
        self.clock["draws"] += 10.0
        return kept(self)

    rule = StopRule.parse("ess=900,time=15")
    settings = {**SIZES, "progress": lambda *_: None}
    with monkeypatch.context() as patch:
        patch.setattr(Chains, "checkpoint", slow)
        patch.setattr(Chains, "intervals", lambda *_: 1)
        report = small_job.sample(store, tmp_path / "run", **{**settings, "stop": rule})
    stop = report.summary["stop"]
    assert ("time", False, 50) == (stop["ended_by"], stop["passed"], stop["draws"])
    assert any("ended by time, 15 s, at 50 draws" in line for line in report.warnings)
    again = small_job.sample(store, tmp_path / "run", **{**settings, "stop": rule})
    assert (False, report.summary) == (again.changed, again.summary)
    small_job.sample(store, tmp_path / "run", **SIZES)
    assert digest(whole[0]) == digest(tmp_path / "run")


def test_a_run_that_time_ended_before_its_first_check_is_left_though_its_draws_are_enough(
    small_job, store, tmp_path, monkeypatch
):
    kept = Chains.checkpoint

    def slow(self):
        self.clock["draws"] += 10.0
        return kept(self)

    rule = StopRule.parse("ess=1,time=15")
    settings = {**SIZES, "progress": lambda *_: None, "stop": rule}
    monkeypatch.setattr(Chains, "checkpoint", slow)
    monkeypatch.setattr(Chains, "intervals", lambda *_: 1)
    report = small_job.sample(store, tmp_path / "run", **settings)
    stop = report.summary["stop"]
    assert ("time", True, 50) == (stop["ended_by"], stop["passed"], stop["draws"])
    assert not [line for line in report.warnings if "stopping rule" in line]
    before = contents(tmp_path / "run")
    again = small_job.sample(store, tmp_path / "run", **settings)
    assert (False, report.summary) == (again.changed, again.summary)
    assert before == contents(tmp_path / "run")


def test_a_rule_that_ends_before_its_first_check_is_refused(small_job, store, tmp_path):
    rule = StopRule.parse("ess=1,draws=99")
    with pytest.raises(ConfigError, match=r"at least the 100 draws of the first check, found 99"):
        small_job.sample(store, tmp_path / "run", **{**SIZES, "stop": rule})
    assert not (tmp_path / "run").exists()


def test_without_the_rule_a_run_is_an_ordinary_one_again(small_job, store, tmp_path):
    rule = StopRule.parse("ess=1e9,draws=100")
    small_job.sample(store, tmp_path / "run", **{**SIZES, "stop": rule})
    report = small_job.sample(store, tmp_path / "run", **{**SIZES, "draws": 150, "stop": None})
    assert "stop" not in report.summary
    run = RunDirectory.open(tmp_path / "run")
    assert (150, None) == (run.committed_draws, run.attributes["stopping"])


def test_a_sampler_that_makes_all_draws_together_has_no_rule(small_job, store, tmp_path):
    with pytest.raises(ConfigError, match="laplace, which makes all draws together"):
        small_job.sample(store, tmp_path / "run", sampler=samplers.laplace(), **SIZES)
    assert not (tmp_path / "run").exists()


QUICK = {name: {"n_levels": 3, "n_steps": 4} for name in ("pt", "spt", "stt", "tt")}
QUICK["mint"] = {"control_variate": 2, "alpha": 0.99}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*SAMPLERS_OF_ROWS} - {"laplace"}))
def test_every_sampler_has_the_draws_of_a_run_of_as_many_draws(name, tmp_path):
    rng = np.random.default_rng(3)
    X = np.c_[np.ones(2000), rng.normal(size=(2000, 2))]
    data = from_arrays(X, rng.random(2000) < 1 / (1 + np.exp(-X @ np.array([-0.3, 0.4, -0.2]))))
    sampler = registry.sampler(name)(**QUICK.get(name, {}))
    model = models.logistic(prior=normal(scale=2.5))
    draws = {}
    for rule in (None, StopRule.parse("ess=1e9,draws=150")):
        path = tmp_path / str(rule is None)
        sizes = {"draws": 150 if rule is None else 50, "warmup": 60, "chains": 2, "seed": 1}
        request = RunRequest(data, model, sampler, path=path, audit=False, stop=rule, **sizes)
        jobs.run_job(request)
        draws[rule is None] = RunDirectory.open(path).draws_matrix()
    assert (2, 150, 3) == draws[True].shape
    assert (draws[True] == draws[False]).all()


def test_sample_takes_a_rule(small_job, store):
    import streammc

    model = models.logistic(prior=normal(scale=10.0))
    options = {"draws": 100, "warmup": 100, "chains": 2, "seed": 1, "audit": False}
    tree = streammc.sample(store, model, stop={"ess": 300}, **options)
    stop = streammc.facts(tree)["summary"]["stop"]
    assert stop["passed"]
    assert tree["posterior"].sizes["draw"] == stop["draws"] > 100
